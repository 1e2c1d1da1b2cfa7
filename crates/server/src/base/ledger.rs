//! How many bytes clients make the server keep in memory, and how many of their items wait: the one place that is asked, and
//! the one that counts. Telemetry reads it; nothing is decided by what telemetry says.
//!
//! An account may have parts, one per connection. What a part holds its whole holds too. All parts together may hold a
//! limit, and each part a multiple of what is then still free of it or of its half. So of `n` connections that take all they
//! can each has the same share, and some is left for the next one. The rules are `Account::has_room` for answers,
//! `CountedBytes::grow` for bodies, and `room::check_share` for items.

use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The first bytes of a body, which are seldom refused for what else its connection holds: most bodies have no more.
const FIRST_BYTES: u64 = 256 * 1024;

/// The rate, in bytes per second, at which a client must at least take its answers, after the time that it may be silent: a
/// modem's. Without it one byte now and then would hold an answer without end.
pub const TAKE_RATE: usize = 16 * 1024;

/// The accounts of a server.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Bodies, messages and frames that are being received, also inflated, until they have been decoded.
    pub received: Account,
    /// Answers that clients have not taken yet.
    pub untaken: Account,
    /// Of one connection: its parts of the items that wait in each deployment.
    pub waiting: ConnectionParts,
    /// Whose accounts they are: the address at the other end of the connection; `None` over a Unix socket.
    pub peer: Option<IpAddr>,
}

impl Ledger {
    /// The accounts of one more connection.
    #[must_use]
    pub fn connection(&self) -> Ledger {
        let (received, untaken) = (self.received.part(), self.untaken.part());
        Ledger { received, untaken, waiting: ConnectionParts::default(), peer: None }
    }

    /// The same accounts, of a connection to this peer.
    #[must_use]
    pub fn with_peer(self, peer: Option<IpAddr>) -> Ledger {
        Ledger { peer, ..self }
    }
}

/// The parts of one connection in accounts of which each deployment has its own; cheap to share.
#[derive(Clone, Debug, Default)]
pub struct ConnectionParts(Arc<Mutex<SmallVec<[Account; 1]>>>);

impl ConnectionParts {
    /// The part of the connection in `whole`.
    pub fn of(&self, whole: &Account) -> Account {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = parts.iter().find(|part| Arc::ptr_eq(&part.whole().0, &whole.0)) {
            return part.clone();
        }
        // A part that only this list refers to counts nothing, and its deployment may have been replaced.
        parts.retain(|part| Arc::strong_count(&part.0) > 1);
        let part = whole.part();
        parts.push(part.clone());
        part
    }
}

/// An amount of one kind, in bytes unless its name says something else; cheap to share.
#[derive(Clone, Debug, Default)]
pub struct Account(Arc<Counter>);

#[derive(Debug, Default)]
struct Counter {
    amount: AtomicU64,
    /// Where the amount is a number of items: their bytes.
    item_bytes: AtomicU64,
    whole: Option<Account>,
}

impl Account {
    /// A part of this account.
    #[must_use]
    pub fn part(&self) -> Account {
        Account(Arc::new(Counter { whole: Some(self.clone()), ..Counter::default() }))
    }

    /// What is held now, by all parts.
    pub fn amount(&self) -> u64 {
        self.0.amount.load(Ordering::Relaxed)
    }

    /// Whether one more answer may be held, when all parts of the whole may hold `limit` bytes: the first of a part while
    /// they hold less, each further one while its part holds at most what is free of one half of `limit`. So parts with many
    /// answers hold less than that half, and leave the other half to parts with one answer.
    pub fn has_room(&self, limit: u64) -> bool {
        let (own, all) = (self.amount(), self.whole().amount());
        let is_within = self.0.whole.is_none() || own == 0 || own <= (limit / 2).saturating_sub(all);
        all < limit && is_within
    }

    /// Holds bytes until what is returned is dropped.
    #[must_use]
    pub fn hold(&self, bytes: usize) -> CountedBytes {
        let mut held = CountedBytes { account: self.clone(), bytes: 0 };
        held.add(bytes as u64);
        held
    }

    /// Counts one item of `bytes` until what is returned is dropped.
    #[must_use]
    pub fn count_item(&self, bytes: u64) -> CountedItem {
        let mut item = CountedItem { account: self.clone(), bytes, is_counted: false };
        item.set_counted(true);
        item
    }

    /// The bytes of the items that are counted now, by all parts.
    pub fn item_bytes(&self) -> u64 {
        self.0.item_bytes.load(Ordering::Relaxed)
    }

    /// Holds bytes if the account then has at most `limit`, or had none: one of any size finds room alone.
    pub fn hold_within(&self, bytes: usize, limit: u64) -> Option<CountedBytes> {
        debug_assert!(self.0.whole.is_none(), "a part is bounded by its whole");
        let bytes = bytes as u64;
        let fits = |held: u64| Some(held.saturating_add(bytes)).filter(|&sum| held == 0 || sum <= limit);
        let added = self.0.amount.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        added.is_ok().then(|| CountedBytes { account: self.clone(), bytes })
    }

    /// Of this account, and of its whole if it is a part.
    fn counters(&self) -> impl Iterator<Item = &Counter> {
        std::iter::once(&*self.0).chain(self.0.whole.as_ref().map(|whole| &*whole.0))
    }

    /// The account of which this is a part, or this account.
    pub fn whole(&self) -> &Account {
        self.0.whole.as_ref().unwrap_or(self)
    }
}

/// An item that an account counts, with its bytes; given back when this is dropped.
#[derive(Debug)]
pub struct CountedItem {
    account: Account,
    bytes: u64,
    is_counted: bool,
}

impl CountedItem {
    /// Whether it counts from now on.
    pub fn set_counted(&mut self, is_counted: bool) {
        if std::mem::replace(&mut self.is_counted, is_counted) == is_counted {
            return;
        }
        for counter in self.account.counters() {
            if is_counted {
                counter.amount.fetch_add(1, Ordering::Relaxed);
                counter.item_bytes.fetch_add(self.bytes, Ordering::Relaxed);
            } else {
                counter.amount.fetch_sub(1, Ordering::Relaxed);
                counter.item_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for CountedItem {
    fn drop(&mut self) {
        self.set_counted(false);
    }
}

/// Why bytes that are being received find no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// All connections together have the limit.
    Full,
    /// The connection has its share.
    OfConnection {
        /// Bytes of its other bodies.
        others: u64,
    },
}

/// Bytes that an account holds; given back when this is dropped.
#[derive(Debug)]
pub struct CountedBytes {
    account: Account,
    bytes: u64,
}

impl CountedBytes {
    /// Adds bytes of a body that is being received. All bodies together may now have `most`, and in the end `limit`. A body
    /// that is alone on its connection may have all that is free. With other bodies on its connection it may grow while those have
    /// at most what is free of one half of `limit`, and its first bytes while those have what is free of three quarters.
    /// So one connection holds three eighths of `limit`, or one large body and a little more. New bodies of other connections
    /// need one half.
    pub fn grow(&mut self, bytes: usize, most: u64, limit: u64) -> Result<(), NoRoom> {
        self.add(bytes as u64);
        let all = self.account.whole().amount();
        if all > most {
            return Err(NoRoom::Full);
        }
        let share = if self.bytes <= FIRST_BYTES { limit - limit / 4 } else { limit / 2 };
        let others = self.account.amount().saturating_sub(self.bytes);
        let is_within = self.account.0.whole.is_none() || others == 0 || others <= share.saturating_sub(all);
        if is_within { Ok(()) } else { Err(NoRoom::OfConnection { others }) }
    }

    /// Holds more bytes, which need no room: they are here.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.account.0.amount.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.account.0.whole {
            whole.0.amount.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.account.0.amount.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(whole) = &self.account.0.whole {
            whole.0.amount.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_with_many_answers_leave_room_for_those_with_one() {
        let server = Account::default();
        let mut held = Vec::new();
        for number in 1..=20 {
            let greedy = server.part();
            while greedy.has_room(1000) {
                held.push(greedy.hold(10));
            }
            assert!(number > 1 || greedy.amount() == 260, "the last one began at a quarter");
        }
        assert!(server.amount() <= 700, "a half, and one answer for each: {}", server.amount());
        let modest = server.part();
        assert!(modest.has_room(1000) && server.has_room(1000));
        held.push(modest.hold(500));
        assert!(!modest.has_room(1000) && !server.has_room(1000), "together they hold all");
        drop(held);
        assert_eq!((modest.amount(), server.amount()), (0, 0));
    }

    const MIB: usize = 1 << 20;
    const LIMIT: u64 = 256 << 20;

    #[test]
    fn one_body_may_grow_to_the_limit() {
        let connection = Account::default().part();
        let mut body = connection.hold(0);
        assert_eq!((body.grow(256 * MIB, LIMIT, LIMIT), body.grow(1, LIMIT, LIMIT)), (Ok(()), Err(NoRoom::Full)));
    }

    /// Bytes that one connection holds when each of its bodies has grown to `most`, or as far as it may.
    fn flood(connection: &Account, bodies: usize, most: usize) -> (u64, Vec<CountedBytes>) {
        let mut growing: Vec<CountedBytes> = (0..bodies).map(|_| connection.hold(0)).collect();
        let mut whole = Vec::new();
        while let Some(mut body) = growing.pop() {
            match body.grow(most / 16, LIMIT, LIMIT) {
                Ok(()) if body.bytes < most as u64 => growing.insert(0, body),
                Ok(()) => whole.push(body),
                Err(_) => {}
            }
        }
        (connection.amount(), whole)
    }

    #[test]
    fn bodies_of_one_connection_leave_the_half_that_new_ones_need() {
        for (bodies, most) in [(256, 64 * MIB), (16, 16 * MIB), (2, 64 * MIB), (10_000, MIB / 4), (1000, MIB / 2)] {
            let server = Account::default();
            let (held, kept) = flood(&server.part(), bodies, most);
            assert!(held <= LIMIT * 3 / 8 + most as u64, "{bodies} bodies of {most}: {held}");
            assert!(server.part().hold(0).grow(MIB, LIMIT / 2, LIMIT).is_ok(), "{bodies} bodies of {most}: {held}");
            drop(kept);
            assert_eq!(server.amount(), 0);
        }
    }

    #[test]
    fn short_bodies_of_one_connection_find_room_beside_large_ones_of_others() {
        let server = Account::default();
        let _large: Vec<_> = (0..3).map(|_| server.part().hold(50 * MIB)).collect();
        let connection = server.part();
        let (_beside, mut short) = (connection.hold(10 * MIB), connection.hold(0));
        assert_eq!(short.grow(MIB / 4, LIMIT, LIMIT), Ok(()));
        assert_eq!(short.grow(1, LIMIT, LIMIT), Err(NoRoom::OfConnection { others: 10 << 20 }));
    }

    #[test]
    fn an_item_counts_with_its_bytes_in_its_part_and_in_the_whole() {
        let whole = Account::default();
        let part = whole.part();
        let items = [part.count_item(10), whole.count_item(5)];
        assert_eq!((part.amount(), part.item_bytes(), whole.amount(), whole.item_bytes()), (1, 10, 2, 15));
        drop(items);
        assert_eq!((part.amount(), part.item_bytes(), whole.amount(), whole.item_bytes()), (0, 0, 0, 0));
    }

    #[test]
    fn a_connection_has_one_part_in_each_account() {
        let (parts, wholes) = (ConnectionParts::default(), [Account::default(), Account::default()]);
        let counts: Vec<_> = [0, 1, 0].map(|index| parts.of(&wholes[index]).hold(1)).into();
        assert_eq!(wholes.each_ref().map(|whole| parts.of(whole).amount()), [2, 1]);
        drop(counts);
        assert_eq!(wholes.each_ref().map(Account::amount), [0, 0]);
        parts.of(&Account::default());
        assert_eq!(parts.0.lock().unwrap().len(), 1, "parts that count nothing are forgotten");
    }

    #[test]
    fn what_is_alone_finds_room_and_two_at_once_are_not_alone() {
        let account = Account::default();
        let alone = account.hold_within(1000, 10).expect("nothing else is held");
        assert!(account.hold_within(1, 10).is_none());
        drop(alone);
        for _ in 0..200 {
            let start = std::sync::Barrier::new(2);
            let hold = || {
                start.wait();
                account.hold_within(1000, 10)
            };
            let both = std::thread::scope(|scope| {
                let other = scope.spawn(hold);
                [hold(), other.join().unwrap()]
            });
            assert_eq!(both.iter().flatten().count(), 1);
        }
    }
}
