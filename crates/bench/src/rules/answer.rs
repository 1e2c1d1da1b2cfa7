//! Reads an HTTP/1.1 answer: its status, what jitney's headers say of it, and where its body ends. Keeps no body.

use super::parts::{Dialect, PartReader, Streamed};
use bytes::{Buf, BytesMut};
use httparse::{EMPTY_HEADER, Status};

/// More headers than any server sends.
const HEADERS: usize = 100;
/// A head or a line of a chunked body that is longer is not read.
const LONGEST_LINE: usize = 256 * 1024;

/// How the document calls it that the client itself could not ask.
pub const SOCKETS: &str = "client_sockets";

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It did not come in time.
    Timeout,
    /// No connection could be made.
    Connect,
    /// The client had no socket left: open files, or ports.
    Sockets,
    /// The connection ended before the answer did.
    Closed,
    /// What came is not HTTP/1.1.
    Malformed,
}

impl Loss {
    /// As the document calls it.
    pub fn reason(self) -> &'static str {
        match self {
            Loss::Timeout => "timeout",
            Loss::Connect => "connect",
            Loss::Sockets => SOCKETS,
            Loss::Closed => "closed",
            Loss::Malformed => "malformed",
        }
    }
}

/// What an answer says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// `x-jitney-reason`, of an answer that is not a success; of a stream that broke off the reason for that.
    pub reason: Option<String>,
    /// `x-jitney-batch-size`.
    pub batch_size: Option<u32>,
    /// Items of the request that failed, by `x-jitney-failed`.
    pub failed_items: u32,
    /// `server-timing`.
    pub timing: Option<Timing>,
    /// What its body says, if it was to come in parts.
    pub streamed: Option<Streamed>,
}

/// Where a request spent its time in the server, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Until its batch ran.
    pub queue_us: u64,
    /// Around the model; `None` of an answer in parts.
    pub batch_us: Option<u64>,
    /// In the model; `None` of an answer in parts.
    pub model_us: Option<u64>,
    /// From the queue to the first part of an answer in parts.
    pub first_part_us: Option<u64>,
}

/// The end of the body, if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Left(u64),
    ChunkSize,
    ChunkLeft(u64),
    ChunkEnd,
    Trailers,
    UntilEnd,
}

/// Takes an answer apart as its bytes come.
#[derive(Debug, Default)]
pub struct Reader {
    answer: Answer,
    body: Option<Body>,
    is_last: bool,
    /// `Some`: successful answers come in parts.
    dialect: Option<Dialect>,
    parts: Option<PartReader>,
}

/// A whole answer, and whether its connection can be used again.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    /// The answer.
    pub answer: Answer,
    /// The server closes, or has closed.
    pub is_last: bool,
}

impl Reader {
    /// Reads one answer. `dialect`: a success comes in parts, of this kind.
    pub fn new(dialect: Option<Dialect>) -> Reader {
        Reader { dialect, ..Reader::default() }
    }

    /// How many parts have come so far.
    pub fn parts(&self) -> u64 {
        self.parts.as_ref().map_or(0, PartReader::parts)
    }

    /// Takes what it understands from the front of `bytes`; `Some` when the answer is complete.
    pub fn read(&mut self, bytes: &mut BytesMut) -> Result<Option<Read>, Loss> {
        while self.body.is_none() {
            if !self.read_head(bytes)? {
                return Ok(None);
            }
        }
        Ok(self.read_body(bytes)?.then(|| self.finish()))
    }

    /// The connection has ended: some bodies end so.
    pub fn end(&mut self) -> Result<Read, Loss> {
        if self.body != Some(Body::UntilEnd) {
            return Err(Loss::Closed);
        }
        self.is_last = true;
        Ok(self.finish())
    }

    /// How many bytes of the body must still come, if that is known.
    pub fn bytes_left(&self) -> u64 {
        match self.body {
            Some(Body::Left(left) | Body::ChunkLeft(left)) => left,
            _ => 0,
        }
    }

    fn finish(&mut self) -> Read {
        let mut answer = std::mem::take(&mut self.answer);
        if let Some(parts) = self.parts.take() {
            let (streamed, failure) = parts.finish();
            answer.streamed = Some(streamed);
            answer.reason = failure;
        }
        Read { answer, is_last: self.is_last }
    }

    fn read_head(&mut self, bytes: &mut BytesMut) -> Result<bool, Loss> {
        let mut headers = [EMPTY_HEADER; HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let Status::Complete(length) = head.parse(bytes).map_err(|_| Loss::Malformed)? else {
            return if bytes.len() > LONGEST_LINE { Err(Loss::Malformed) } else { Ok(false) };
        };
        let status = head.code.unwrap_or(0);
        let mut answer = Answer { status, ..Answer::default() };
        let (mut body, mut is_last) = (Body::UntilEnd, head.version == Some(0));
        let mut media_type: &[u8] = b"";
        for header in head.headers.iter() {
            let (name, value) = (header.name, header.value);
            if name.eq_ignore_ascii_case("content-length") {
                // A body in chunks has no other length.
                if body == Body::UntilEnd {
                    body = Body::Left(number(value).ok_or(Loss::Malformed)?);
                }
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                body = Body::ChunkSize;
            } else if name.eq_ignore_ascii_case("content-type") {
                media_type = value;
            } else if name.eq_ignore_ascii_case("connection") {
                is_last = value.eq_ignore_ascii_case(b"close");
            } else if name.eq_ignore_ascii_case("server-timing") {
                answer.timing = timing(value);
            } else if name.eq_ignore_ascii_case("x-jitney-batch-size") {
                answer.batch_size = number(value).and_then(|size| u32::try_from(size).ok());
            } else if name.eq_ignore_ascii_case("x-jitney-failed") {
                answer.failed_items = number(value).and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
            } else if name.eq_ignore_ascii_case("x-jitney-reason") {
                answer.reason = Some(String::from_utf8_lossy(value).into_owned());
            }
        }
        let is_success = (200..300).contains(&status);
        self.parts = self.dialect.filter(|_| is_success).map(|dialect| PartReader::new(dialect, media_type));
        bytes.advance(length);
        // 100 Continue and its like announce the real answer.
        if status >= 200 {
            self.body = Some(if matches!(status, 204 | 304) { Body::Left(0) } else { body });
            self.answer = answer;
            self.is_last = is_last;
        }
        Ok(true)
    }

    fn read_body(&mut self, bytes: &mut BytesMut) -> Result<bool, Loss> {
        loop {
            let (next, is_enough) = match self.body.unwrap_or(Body::UntilEnd) {
                Body::Left(left) => {
                    let left = left - self.take(bytes, left);
                    self.body = Some(Body::Left(left));
                    return Ok(left == 0);
                }
                Body::UntilEnd => {
                    self.take(bytes, u64::MAX);
                    return Ok(false);
                }
                Body::ChunkLeft(left) => match left - self.take(bytes, left) {
                    0 => (Body::ChunkEnd, true),
                    left => (Body::ChunkLeft(left), false),
                },
                Body::ChunkSize => match httparse::parse_chunk_size(bytes).map_err(|_| Loss::Malformed)? {
                    Status::Complete((line, size)) => {
                        bytes.advance(line);
                        (if size == 0 { Body::Trailers } else { Body::ChunkLeft(size) }, true)
                    }
                    Status::Partial if bytes.len() > LONGEST_LINE => return Err(Loss::Malformed),
                    Status::Partial => (Body::ChunkSize, false),
                },
                Body::ChunkEnd => match line(bytes)? {
                    Some(0) => (Body::ChunkSize, true),
                    Some(_) => return Err(Loss::Malformed),
                    None => (Body::ChunkEnd, false),
                },
                Body::Trailers => match line(bytes)? {
                    Some(0) => return Ok(true),
                    Some(_) => (Body::Trailers, true),
                    None => (Body::Trailers, false),
                },
            };
            self.body = Some(next);
            if !is_enough {
                return Ok(false);
            }
        }
    }

    /// Drops up to so many bytes of the body, after their parts were counted; how many bytes they were.
    fn take(&mut self, bytes: &mut BytesMut, most: u64) -> u64 {
        let taken = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
        if let Some(parts) = &mut self.parts {
            parts.read(&bytes[..taken]);
        }
        bytes.advance(taken);
        taken as u64
    }
}

/// Drops a line; how long it was without its end.
fn line(bytes: &mut BytesMut) -> Result<Option<usize>, Loss> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
        return if bytes.len() > LONGEST_LINE { Err(Loss::Malformed) } else { Ok(None) };
    };
    bytes.advance(end + 2);
    Ok(Some(end))
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// `queue;dur=1.234, batch;dur=0.100, model;dur=5.000`, or `queue;dur=1.234, first-part;dur=5.000` of an answer in parts. `None`
/// unless the queue and what follows it are there.
fn timing(text: &[u8]) -> Option<Timing> {
    let mut found = (None, None, None, None);
    for metric in std::str::from_utf8(text).ok()?.split(',') {
        let (name, length_us) = metric.trim().split_once(";dur=").map(|(name, text)| (name, microseconds(text)))?;
        match name {
            "queue" => found.0 = length_us,
            "batch" => found.1 = length_us,
            "model" => found.2 = length_us,
            "first-part" => found.3 = length_us,
            _ => {}
        }
    }
    let timing = Timing { queue_us: found.0?, batch_us: found.1, model_us: found.2, first_part_us: found.3 };
    let is_complete = timing.first_part_us.is_some() || (timing.batch_us.is_some() && timing.model_us.is_some());
    is_complete.then_some(timing)
}

/// Milliseconds with decimals, as a whole number of microseconds: cheaper than a float, and exact.
fn microseconds(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let decimals = decimals.get(..decimals.len().min(3))?;
    let scale = 10u64.pow(3 - decimals.len() as u32);
    let rest = if decimals.is_empty() { 0 } else { decimals.parse::<u64>().ok()? * scale };
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const JITNEY: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer-Timing: queue;dur=1.5, batch;dur=0.100, \
        model;dur=5000.000\r\nX-Jitney-Batch-Size: 64\r\ncontent-length: 5\r\n\r\nhello";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nc;x=y\r\n and goodbye\r\n0\r\nx-end: 1\r\n\r\n";

    fn whole(text: &str) -> Result<Option<Read>, Loss> {
        Reader::default().read(&mut BytesMut::from(text))
    }

    #[test]
    fn jitneys_headers_are_read() {
        let read = whole(JITNEY).unwrap().unwrap();
        let timing = Timing { queue_us: 1_500, batch_us: Some(100), model_us: Some(5_000_000), first_part_us: None };
        let answer = Answer { status: 200, batch_size: Some(64), timing: Some(timing), ..Answer::default() };
        assert_eq!(read, Read { answer, is_last: false });
    }

    #[test]
    fn a_refusal_has_its_reason_and_its_connection_may_close() {
        let text =
            "HTTP/1.1 429 Too Many\r\nx-jitney-reason: queue_full\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let read = whole(text).unwrap().unwrap();
        assert_eq!((read.answer.status, read.answer.reason.as_deref()), (429, Some("queue_full")));
        assert!(read.is_last);
    }

    #[test]
    fn parts_are_counted_as_their_chunks_come() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut bytes = BytesMut::from(head);
        let mut reader = Reader::new(Some(Dialect::Native));
        assert_eq!((reader.read(&mut bytes), reader.parts()), (Ok(None), 0));
        bytes.extend_from_slice(b"9\r\ndata: 1\n\n\r\n");
        assert_eq!((reader.read(&mut bytes), reader.parts()), (Ok(None), 1));
        bytes.extend_from_slice(b"17\r\nevent: end\ndata: null\n\n\r\n0\r\n\r\n");
        let answer = reader.read(&mut bytes).unwrap().unwrap().answer;
        assert_eq!(answer.streamed, Some(Streamed { parts: 1, ..Streamed::default() }));
    }

    #[test]
    fn a_refusal_is_no_stream() {
        let text = "HTTP/1.1 429 Too Many\r\nx-jitney-reason: queue_full\r\ncontent-length: 0\r\n\r\n";
        let read = Reader::new(Some(Dialect::Native)).read(&mut BytesMut::from(text)).unwrap().unwrap();
        assert_eq!((read.answer.streamed, read.answer.reason.as_deref()), (None, Some("queue_full")));
    }

    #[test]
    fn an_interim_answer_is_skipped() {
        let read = whole("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap();
        assert_eq!(read.answer.status, 204);
    }

    #[test]
    fn a_body_without_a_length_ends_with_its_connection() {
        let mut reader = Reader::default();
        assert_eq!(reader.read(&mut BytesMut::from("HTTP/1.1 200 OK\r\n\r\nhel")), Ok(None));
        assert!(reader.end().unwrap().is_last);
        assert_eq!(Reader::default().end(), Err(Loss::Closed));
    }

    #[test]
    fn what_is_not_http_is_malformed() {
        for text in ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"] {
            assert_eq!(whole(text), Err(Loss::Malformed), "{text}");
        }
        let bad = CHUNKED.replace("hello\r\n", "helloXX");
        assert_eq!(whole(&bad), Err(Loss::Malformed));
    }

    #[test]
    fn timings_of_other_servers_are_left_alone() {
        for text in
            ["", "db;dur=53, app;dur=47.2", "cache;desc=hit", "queue;dur=1, batch;dur=x, model;dur=2", "x;dur=1.12é"]
        {
            assert_eq!(timing(text.as_bytes()), None, "{text}");
        }
        assert_eq!(timing(b"queue;dur=1, db;dur=2, batch;dur=0.25, model;dur=2.0009").unwrap().batch_us, Some(250));
        assert_eq!(timing(b"queue;dur=1, first-part;dur=2.5").unwrap().first_part_us, Some(2_500));
    }

    proptest! {
        #[test]
        fn an_answer_is_the_same_in_whatever_pieces_it_comes(
            text in prop::sample::select(vec![JITNEY, CHUNKED]), cuts in prop::collection::vec(0usize..200, 0..12)
        ) {
            let two = [text, text].concat();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| cut < two.len()).collect();
            cuts.extend([0, two.len()]);
            cuts.sort_unstable();
            let (mut bytes, mut reader, mut read) = (BytesMut::new(), Reader::default(), Vec::new());
            for piece in cuts.windows(2) {
                bytes.extend_from_slice(&two.as_bytes()[piece[0]..piece[1]]);
                while let Some(one) = reader.read(&mut bytes).unwrap() {
                    read.push(one);
                    reader = Reader::default();
                }
            }
            let expected = whole(text).unwrap().unwrap();
            prop_assert!(bytes.is_empty());
            prop_assert_eq!(read.len(), 2);
            prop_assert!(read.iter().all(|one| *one == expected));
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut reader = Reader::default();
            let _ = reader.read(&mut BytesMut::from(bytes.as_slice()));
        }
    }
}
