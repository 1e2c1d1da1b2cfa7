//! Compression of bodies, in both directions. The body of a request is inflated up to the limit of a body, and not
//! further.

use crate::base::ledger::{Account, CountedBytes};
use crate::base::offload;
use crate::engine::room;
use crate::engine::server_state::ServerState;
use crate::protocols::request::body::remedy;
use crate::protocols::request::headers::{quoted, single};
use crate::values::answer::Failure;
use crate::values::chunks::Chunks;
use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use hyper::HeaderMap;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use jitney_core::tables::outcome::Outcome;
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, BufRead, Read, Write};
use std::time::Duration;

/// Compressed bytes between two looks at everything else.
const PIECE: usize = 16 * 1024;
/// Inflated bytes between two looks at the limits.
const STEP: u64 = 64 * 1024;
/// Most bytes that one compressed byte can become. It does so when it stands for zeros.
const RATIO: usize = 1032;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    /// What HTTP calls deflate is zlib's format.
    Deflate,
}

impl Coding {
    /// That of this name, if it is one that is taken.
    pub(crate) fn parse(name: &[u8]) -> Option<Coding> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"gzip") || is(b"x-gzip") { Some(Coding::Gzip) } else { is(b"deflate").then_some(Coding::Deflate) }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
        }
    }
}

/// How a body is compressed.
pub(crate) fn of_body(headers: &HeaderMap) -> Result<Option<Coding>, Failure> {
    let Some(value) = single(headers, &CONTENT_ENCODING)? else { return Ok(None) };
    let name = value.as_bytes().trim_ascii();
    if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
        return Ok(None);
    }
    Coding::parse(name).map(Some).ok_or_else(|| {
        let detail = format!("content-encoding {} is not taken; use gzip, deflate or none", quoted(value.as_bytes()));
        Failure::new(Outcome::UnsupportedMediaType, detail)
    })
}

/// How the client would like the answer to be compressed: the first of what it likes best.
pub(crate) fn of_answer(headers: &HeaderMap) -> Option<Coding> {
    let mut best: Option<(f32, Coding)> = None;
    for value in headers.get_all(ACCEPT_ENCODING) {
        for piece in value.to_str().unwrap_or_default().split(',') {
            let (name, weight) = piece.split_once(';').unwrap_or((piece, "q=1"));
            let weight = weight.trim().strip_prefix(['q', 'Q']).and_then(|weight| weight.strip_prefix('='));
            let weight = weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0);
            if let Some(coding) = Coding::parse(name.trim().as_bytes())
                && weight > best.map_or(0.0, |(most, _)| most)
            {
                best = Some((weight, coding));
            }
        }
    }
    best.map(|(_, coding)| coding)
}

/// A body as it was before it was compressed.
#[derive(Debug)]
pub(crate) struct Inflated {
    pub(crate) body: Bytes,
    /// Counts the body. The caller keeps it until the body has been decoded.
    pub(crate) received: CountedBytes,
}

/// The body as it was before it was compressed, of `most` bytes at most, which count in `received`. Others run between its pieces, and a client that
/// has left is noticed there.
pub(crate) async fn inflate(
    coding: Coding,
    mut body: Chunks,
    most: u64,
    state: &ServerState,
    received: &Account,
) -> Result<Inflated, Failure> {
    let packed = offload::run(body.len(), || body.contiguous().clone()).await;
    let mut inflating = Inflating::new(coding, &packed, most, state, received.hold(0));
    while !offload::run(packed.len().min(PIECE).saturating_mul(RATIO), || inflating.step()).await? {}
    inflating.finish()
}

/// A body that is half inflated.
struct Inflating<'a> {
    coding: Coding,
    decoder: Decoder<'a>,
    packed: usize,
    inflated: Vec<u8>,
    spent: Duration,
    held: CountedBytes,
    most: u64,
    state: &'a ServerState,
}

enum Decoder<'a> {
    Gzip(GzDecoder<Ration<'a>>),
    Deflate(ZlibDecoder<Ration<'a>>),
}

impl<'a> Decoder<'a> {
    fn reader(&mut self) -> &mut dyn Read {
        match self {
            Decoder::Gzip(decoder) => decoder,
            Decoder::Deflate(decoder) => decoder,
        }
    }

    fn input(&mut self) -> &mut Ration<'a> {
        match self {
            Decoder::Gzip(decoder) => decoder.get_mut(),
            Decoder::Deflate(decoder) => decoder.get_mut(),
        }
    }
}

/// Compressed bytes of which only some may be read for now: a decoder asks for more until it has something to say, and
/// blocks that hold nothing give it nothing to say.
struct Ration<'a> {
    rest: &'a [u8],
    left: usize,
}

impl Read for Ration<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Ration<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match (self.rest.len(), self.left) {
            (1.., 0) => Err(io::ErrorKind::WouldBlock.into()),
            (rest, left) => Ok(&self.rest[..rest.min(left)]),
        }
    }

    fn consume(&mut self, amount: usize) {
        self.rest = &self.rest[amount..];
        self.left -= amount;
    }
}

impl<'a> Inflating<'a> {
    fn new(coding: Coding, packed: &'a [u8], most: u64, state: &'a ServerState, held: CountedBytes) -> Inflating<'a> {
        let input = Ration { rest: packed, left: PIECE };
        let decoder = match coding {
            Coding::Gzip => Decoder::Gzip(GzDecoder::new(input)),
            Coding::Deflate => Decoder::Deflate(ZlibDecoder::new(input)),
        };
        let (packed, inflated, spent) = (packed.len(), Vec::new(), Duration::ZERO);
        Inflating { coding, decoder, packed, inflated, spent, held, most, state }
    }

    /// Inflates one more piece; true if it was the last.
    fn step(&mut self) -> Result<bool, Failure> {
        let began = processor_time();
        self.decoder.input().left = PIECE;
        let is_over = loop {
            let before = self.inflated.len();
            // What was read before an error stays read.
            let read = self.decoder.reader().take(STEP).read_to_end(&mut self.inflated);
            let is_paused = read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            if let Err(error) = read
                && !is_paused
            {
                let detail = format!("the body is not {} that can be read: {error}", self.coding.name());
                return Err(Failure::new(Outcome::MalformedBody, detail));
            }
            let grown = self.inflated.len() - before;
            self.check_size(grown)?;
            if is_paused || grown == 0 {
                break !is_paused;
            }
        };
        self.spent += processor_time().saturating_sub(began);
        let read = self.packed - self.decoder.input().rest.len();
        if is_worth(self.spent, read + self.inflated.len()) {
            return Ok(is_over);
        }
        let detail = format!(
            "the body takes far longer to inflate than its size explains ({} ms for {read} bytes that became {}); compress \
             it in larger blocks",
            self.spent.as_millis(),
            self.inflated.len()
        );
        Err(Failure::new(Outcome::MalformedBody, detail))
    }

    fn check_size(&mut self, grown: usize) -> Result<(), Failure> {
        let most = self.most;
        if self.inflated.len() as u64 > most {
            let detail =
                format!("inflated, the body has more than the {most} bytes that it may; {}", remedy(most, self.state));
            return Err(Failure::new(Outcome::TooLarge, detail));
        }
        room::receive(&mut self.held, grown, &self.state.options)
    }

    fn finish(mut self) -> Result<Inflated, Failure> {
        // gzip may go on with another member, which may hold nothing: half a million of them are ten megabytes that no
        // limit of what comes out would stop.
        let rest = self.decoder.input().rest.len();
        if rest == 0 {
            return Ok(Inflated { body: self.inflated.into(), received: self.held });
        }
        let detail =
            format!("{rest} bytes follow the end of the body's {} data; compress it in one piece", self.coding.name());
        Err(Failure::new(Outcome::MalformedBody, detail))
    }
}

/// Whether so much work is in keeping with so many bytes, read and written. A block of a few bits may hold nothing and
/// costs a table all the same: 64 MB of them are minutes of work. Even a body that is flushed after every few bytes is
/// inflated at more than this rate.
fn is_worth(spent: Duration, bytes: usize) -> bool {
    const FREE: Duration = Duration::from_secs(1);
    const LEAST_RATE: f64 = 4e6;
    spent <= FREE + Duration::from_secs_f64(bytes as f64 / LEAST_RATE)
}

/// Processor time that this thread has used. Unlike clock time, it does not grow while other programs use the core.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// Compressed for a network that is slower than this machine's cores.
pub(crate) fn compress(coding: Coding, data: &[u8]) -> Vec<u8> {
    let packed = match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(data).and_then(|()| encoder.finish())
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(data).and_then(|()| encoder.finish())
        }
    };
    // A Vec takes every byte.
    packed.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    async fn all(coding: Coding, body: Chunks, state: &ServerState) -> Result<Bytes, Failure> {
        let inflated = inflate(coding, body, state.options.max_body_bytes, state, &state.ledger.received).await?;
        assert_eq!(state.ledger.received.amount(), inflated.body.len() as u64, "it counts until it has been decoded");
        Ok(inflated.body)
    }

    #[tokio::test]
    async fn a_bomb_is_refused_before_it_has_gone_off() {
        let state = ServerState::for_test(100_000);
        for coding in [Coding::Gzip, Coding::Deflate] {
            let bomb = compress(coding, &vec![0; 50_000_000]);
            assert!(bomb.len() < 300_000);
            let failure = all(coding, Bytes::from(bomb).into(), &state).await.unwrap_err();
            assert_eq!(failure.outcome, Outcome::TooLarge);
        }
        assert_eq!(state.ledger.received.amount(), 0);
    }

    #[tokio::test]
    async fn nothing_may_follow_what_was_compressed() {
        let state = ServerState::for_test(100_000);
        for coding in [Coding::Gzip, Coding::Deflate] {
            let (whole, nothing) = (compress(coding, b"body"), compress(coding, b""));
            assert_eq!(&all(coding, Bytes::from(whole.clone()).into(), &state).await.unwrap()[..], b"body");
            assert!(all(coding, Bytes::from(nothing.clone()).into(), &state).await.unwrap().is_empty());
            for rest in [vec![0], nothing.repeat(100_000)] {
                let failure = all(coding, Bytes::from([&whole[..], &rest].concat()).into(), &state).await.unwrap_err();
                assert_eq!(failure.outcome, Outcome::MalformedBody);
                assert!(failure.detail.starts_with(&format!("{} bytes follow", rest.len())), "{}", failure.detail);
            }
        }
    }

    #[tokio::test]
    async fn an_inflated_body_counts_for_its_connection() {
        let state = ServerState::for_test(1 << 20);
        let (greedy, other) = (state.ledger.connection().received, state.ledger.connection().received);
        let _others = greedy.hold(state.options.max_receiving_bytes as usize / 2);
        let packed = Bytes::from(compress(Coding::Gzip, &vec![0; 1 << 18]));
        let inflated = async |account| inflate(Coding::Gzip, packed.clone().into(), 1 << 20, &state, account).await;
        assert_eq!(inflated(&greedy).await.unwrap_err().outcome, Outcome::QueueBytesFull);
        assert_eq!(inflated(&other).await.unwrap().body.len(), 1 << 18);
    }

    /// Blocks of ten bits that hold nothing, and no end.
    fn empty_blocks(bytes: usize) -> Vec<u8> {
        // Not the last, compressed with the fixed code, of which seven zeros are the end of a block: 0 10 0000000.
        let mut bits = [false, true, false, false, false, false, false, false, false, false].into_iter().cycle();
        (0..bytes).map(|_| (0..8).fold(0, |byte, place| byte | u8::from(bits.next() == Some(true)) << place)).collect()
    }

    #[tokio::test]
    async fn blocks_that_hold_nothing_are_not_worth_the_work() {
        let state = ServerState::for_test(100_000_000);
        let body = [&[0x78, 0x9c][..], &empty_blocks(32 << 20)].concat();
        let failure = all(Coding::Deflate, Bytes::from(body).into(), &state).await.unwrap_err();
        assert_eq!(failure.outcome, Outcome::MalformedBody);
        assert!(failure.detail.contains("larger blocks"), "{}", failure.detail);
    }

    #[tokio::test]
    async fn a_body_of_many_pieces_is_one_body() {
        let state = ServerState::for_test(10_000_000);
        let data: Vec<u8> = (0..200_000u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()).collect();
        for coding in [Coding::Gzip, Coding::Deflate] {
            let packed = compress(coding, &data);
            assert!(packed.len() > 4 * PIECE);
            assert_eq!(all(coding, Bytes::from(packed).into(), &state).await.unwrap(), data);
        }
    }

    #[test]
    fn work_is_measured_against_bytes() {
        let (second, megabyte) = (Duration::from_secs(1), 1_000_000);
        assert!(is_worth(second, 0) && !is_worth(second + Duration::from_millis(1), 0));
        assert!(is_worth(second * 2, 4 * megabyte) && !is_worth(second * 3, 4 * megabyte));
    }

    #[test]
    fn the_client_says_what_it_likes_best() {
        for (text, best) in [
            ("gzip, deflate", Some(Coding::Gzip)),
            ("deflate;q=0.9, gzip;q=0.1", Some(Coding::Deflate)),
            ("gzip;q=0", None),
            ("br, *", None),
            ("identity", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
            assert_eq!(of_answer(&headers), best, "{text}");
        }
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    proptest! {
        #[test]
        fn bodies_survive(data in prop::collection::vec(any::<u8>(), 0..300)) {
            let state = ServerState::for_test(300);
            for coding in [Coding::Gzip, Coding::Deflate] {
                let packed = Bytes::from(compress(coding, &data));
                prop_assert_eq!(&now(all(coding, packed.into(), &state)).unwrap()[..], &data[..]);
                let _ = now(all(coding, Bytes::from(data.clone()).into(), &state));
            }
        }
    }
}
