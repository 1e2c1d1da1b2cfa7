//! Every fixed bound of the HTTP front, with the reason for its value. What users may choose is in `ServerOptions`.

use std::time::Duration;

/// HTTP/1: bytes of one request head. Most proxies stop at 8 KiB per line; four of them leave room for cookies that
/// a shared domain adds. hyper's own bound of 100 header lines stays as it is: setting it costs an allocation a request.
pub(crate) const H1_HEAD_BYTES: usize = 32 * 1024;

/// HTTP/1: most that one connection buffers in either direction; bodies move in pieces of at most this.
pub(crate) const H1_BUFFER_BYTES: usize = 256 * 1024;

/// The first read of a connection, from which its protocol is told; most heads fit.
pub(crate) const SNIFF_BYTES: usize = 1024;

/// HTTP/1: what a client that waits for an answer has sent beyond its request is read up to this, to see whether it leaves.
pub(crate) const AHEAD_BYTES: usize = 16 * 1024;

/// HTTP/2: requests at once on one connection. Enough for one client to fill two large batches.
pub(crate) const H2_STREAMS: u32 = 256;

/// HTTP/2: streams that the peer opened and reset before they were accepted (rapid reset); above it the connection ends.
pub(crate) const H2_PENDING_RESETS: usize = 32;

/// HTTP/2: streams that we reset because the peer broke the rules (`MadeYouReset`), in the whole life of a connection;
/// above it the connection ends. Streams above `H2_STREAMS` count too, and so does each frame of a body that follows one
/// of them: an honest client that opens a thousand before it has read our settings makes about 750 such streams, with
/// two or three frames each. What a peer can gain with as many is little: a reset cancels the request that it meets.
pub(crate) const H2_LOCAL_RESETS: usize = 4096;

/// HTTP/2: decoded size of one header list; also what bounds CONTINUATION frames.
pub(crate) const H2_HEADER_LIST_BYTES: u32 = 32 * 1024;

/// HTTP/2: largest frame that we take. 16 KiB is the least that the protocol allows; four times that saves frames of large bodies.
pub(crate) const H2_FRAME_BYTES: u32 = 64 * 1024;

/// HTTP/2: what one stream may send before we have read it.
pub(crate) const H2_STREAM_WINDOW: u32 = 512 * 1024;

/// HTTP/2: what one connection may send before we have read it; bounds the memory that a peer can pin unread.
pub(crate) const H2_CONNECTION_WINDOW: u32 = 1024 * 1024;

/// HTTP/2: bytes of answers that wait in a stream for the peer's window.
pub(crate) const H2_SEND_BUFFER_BYTES: usize = 256 * 1024;

/// HTTP/2: a silent peer is asked whether it lives, and closed if it does not say so in time.
pub(crate) const H2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// See `H2_PING_INTERVAL`.
pub(crate) const H2_PING_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP/2: after GOAWAY a live peer needs one round trip; an idle connection that lets us wait longer is dropped.
pub(crate) const GOAWAY_LINGER: Duration = Duration::from_millis(500);

/// Pending connections that the kernel keeps for us while the limit of open ones is reached.
pub(crate) const BACKLOG: u32 = 4096;

/// A failure to accept that lasts is said this often.
pub(crate) const WARN_EVERY: Duration = Duration::from_secs(10);

/// Pause after an `accept` that failed for want of descriptors or memory: the same call would fail at once.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A frame of a body below this is copied to where the others are: it is a slice of a much larger read buffer, which
/// would stay alive with it.
pub(crate) const COPY_BELOW: usize = 8 * 1024;

/// An answer from this size on is counted until its client has taken it; shorter ones are bounded by what a connection
/// buffers anyway.
pub(crate) const COUNTED_BYTES: usize = 1024;

/// The rate, in bytes per second, at which a body must at least come in, averaged over `body_timeout_s`: half of what the
/// slowest mobile networks carry. Without it one byte now and then would hold a connection for ever.
pub(crate) const LEAST_RATE: u64 = 512;

/// A client that is refused while it sends may not look for the answer before it has sent all; closing at once would
/// make its kernel throw the answer away. What it sends is read and dropped until it pauses for so long …
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// … and at most for so long, which is less than an idle connection may stay. How much it sends meanwhile is not bounded:
/// whoever wants us to read much can open connections for it.
pub(crate) const LINGER_MOST: Duration = Duration::from_secs(30);

/// What asks the server itself, and no model, has no more bytes, nor inflated: some of it is answered without a key.
pub(crate) const QUESTION_BYTES: u64 = 64 * 1024;

/// Of what is dropped meanwhile, so much is read at once …
pub(crate) const DROPPED_AT_ONCE: u64 = 64 * 1024;
/// … and then nothing for so long for each other one of which the same is done: half a gigabyte a second of them all, an
/// eighth of what a core could.
pub(crate) const DROP_PAUSE: Duration = Duration::from_micros(125);
/// Of so many at once; each may keep a quarter of a megabyte in the kernel.
pub(crate) const DROPPING_MOST: u32 = 1024;

/// What is left of a body that is as good as here.
pub(crate) const SMALL_BYTES: u64 = 256 * 1024;

/// Body of a refused request that is read and dropped so that the connection can be used again.
pub(crate) const DRAIN_BYTES: u64 = 64 * 1024;

/// Longest `retry-after`: whoever should wait longer should ask again before it relies on our estimate.
pub(crate) const RETRY_AFTER_MOST_S: u64 = 30;
