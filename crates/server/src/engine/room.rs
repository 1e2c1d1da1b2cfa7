//! How much requests and their answers may hold, and what is said when that is reached: the one place for all protocols.

use crate::base::ledger::{Account, CountedBytes, Ledger, NoRoom};
use crate::engine::deployment::Deployment;
use crate::values::answer::Failure;
use jitney_core::config::options::ServerOptions;
use jitney_core::tables::outcome::Outcome;
use std::time::Duration;

/// When a client should come back that found no room.
const COME_BACK: Duration = Duration::from_secs(1);
/// So many times as many items of a connection may wait as there is room for more: one connection alone has eight ninths of
/// a queue, and of twenty each has a twentieth.
const SHARE: u64 = 8;
/// A request may have one item for so many bytes that its body may have: an item that waits takes about 600 bytes, and one
/// that fails a problem of 300, so that what a body of `[1,1,1,…]` comes to is less than a body may have.
const LEAST_ITEM_BYTES: u64 = 1024;
/// Every request may have as many items as this, however small bodies must be.
const LEAST_ITEMS: u64 = 8192;

/// Refuses a request while its connection, or all of them together, leave no room for another answer.
pub(crate) fn check(ledger: &Ledger, options: &ServerOptions) -> Result<(), Failure> {
    let limit = options.max_receiving_bytes;
    if ledger.untaken.has_room(limit) {
        return Ok(());
    }
    if ledger.untaken.whole().amount() >= limit {
        return Err(answers_are_full(limit));
    }
    let own = ledger.untaken.amount();
    Err(busy(format!(
        "answers that this connection has not taken yet hold {own} bytes, which is its share of what all connections may leave \
         (max_receiving_bytes = {limit}); take them, or come back in a second"
    )))
}

/// Counts answers of so many bytes while they are written, which may take a while: meanwhile other answers of the connection
/// must see them. Refuses them if there is no room.
pub(crate) fn hold_answers(ledger: &Ledger, bytes: usize, options: &ServerOptions) -> Result<CountedBytes, Failure> {
    check(ledger, options)?;
    Ok(ledger.untaken.hold(bytes))
}

/// Refuses a request of so many items and `bytes` of a connection that has more than its share of a deployment's queue.
/// `waiting` counts the connection's items that wait there. Of a large request only the first piece counts. The queue has room
/// for so many items and bytes as the options say, and for fewer items if the next one would wait for too long. The share is a
/// multiple of the room that is left behind the request, so that some is left for connections that have no item in the queue.
pub(crate) fn check_share(deployment: &Deployment, waiting: &Account, items: usize, bytes: u64) -> Result<(), Failure> {
    let (own, all) = (waiting.amount(), waiting.whole());
    if own == 0 {
        return Ok(());
    }
    let (options, in_time) = (&deployment.manifest.options, deployment.published.most_waiting());
    let left = options.max_queued_items.min(in_time).saturating_sub(all.amount());
    let (own_bytes, limit) = (waiting.item_bytes(), options.max_queued_bytes);
    let left_bytes = limit.saturating_sub(all.item_bytes());
    let items = items.min(deployment.first_piece()) as u64;
    let exceeds = |own: u64, left: u64, new: u64| own > left.saturating_sub(new).saturating_mul(SHARE);
    let (outcome, detail) = if exceeds(own, left, items) {
        let detail = format!(
            "{own} items of this connection wait in the queue, which has room for {left} more items, and this request has {items}"
        );
        if in_time >= options.max_queued_items {
            let limit = options.max_queued_items;
            (Outcome::QueueFull, format!("{detail}; max_queued_items = {limit} is for all connections"))
        } else if options.latency_target_ms.is_some() {
            (Outcome::WouldBeLate, format!("{detail}; with more items answers would miss latency_target_ms"))
        } else {
            deployment.published.refused();
            (Outcome::WaitTooLong, format!("{detail}; with more items a request would wait for too long (max_wait_s)"))
        }
    } else if own_bytes > 0 && exceeds(own_bytes, left_bytes, bytes) {
        let detail = format!(
            "items of this connection wait in the queue with {own_bytes} bytes, this request has {bytes}, and the queue \
             has room for {left_bytes} more bytes of all connections (max_queued_bytes = {limit})"
        );
        (Outcome::QueueBytesFull, detail)
    } else {
        return Ok(());
    };
    let detail = format!("{detail}; wait for answers, or come back in a second");
    Err(Failure { retry_after: Some(COME_BACK), ..Failure::new(outcome, detail) })
}

/// Counts bytes of a body that is being received; refuses the body if they find no room.
pub(crate) fn receive(held: &mut CountedBytes, bytes: usize, options: &ServerOptions) -> Result<(), Failure> {
    receive_within(held, bytes, options.max_receiving_bytes, options)
}

/// Counts bytes of a body that is being received; refuses the body if all bodies together would have more than `most` bytes.
pub(crate) fn receive_within(
    held: &mut CountedBytes,
    bytes: usize,
    most: u64,
    options: &ServerOptions,
) -> Result<(), Failure> {
    let limit = options.max_receiving_bytes;
    let detail = match held.grow(bytes, most, limit) {
        Ok(()) => return Ok(()),
        Err(NoRoom::Full) if most < limit => format!(
            "bodies that are being received hold half of the {limit} bytes that they may (max_receiving_bytes), and need the \
             rest to come to their ends; come back in a second"
        ),
        Err(NoRoom::Full) => return Err(receiving_is_full(limit)),
        Err(NoRoom::OfConnection { others }) => format!(
            "other bodies that this connection is sending hold {others} bytes, which is its share of what all connections may \
             send at once (max_receiving_bytes = {limit}); send fewer at once, or come back in a second"
        ),
    };
    Err(busy(detail))
}

/// No room for an answer.
pub(crate) fn answers_are_full(limit: u64) -> Failure {
    full("answers that clients have not taken yet", limit)
}

/// No room for what is being received.
pub(crate) fn receiving_is_full(limit: u64) -> Failure {
    full("bodies that are being received", limit)
}

fn full(what: &str, limit: u64) -> Failure {
    let detail =
        format!("{what} already hold the {limit} bytes that they may (max_receiving_bytes); come back in a second");
    busy(detail)
}

fn busy(detail: String) -> Failure {
    Failure { retry_after: Some(COME_BACK), ..Failure::new(Outcome::QueueBytesFull, detail) }
}

/// The most items that one request may have.
pub(crate) fn most_items(options: &ServerOptions) -> usize {
    let most = (options.max_body_bytes / LEAST_ITEM_BYTES).max(LEAST_ITEMS);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// The most items of a request whose body has `bytes`: rows without elements take none, and a short header could ask for
/// any number of them.
pub(crate) fn most_items_of(options: &ServerOptions, bytes: usize) -> usize {
    most_items(options).min(bytes.max(LEAST_ITEMS as usize))
}
