//! Every fixed bound of the HTTP front, with the reason for its value. What users may choose is in `ServerOptions`.

use std::time::Duration;

/// HTTP/1: bytes of one request head. Most proxies allow 8 KiB per line; four times that leaves room for cookies that a
/// shared domain adds. hyper's default limit of 100 header lines is not changed: setting it costs one allocation per
/// request.
pub(crate) const H1_HEAD_BYTES: usize = 32 * 1024;

/// HTTP/1: most that one connection buffers in either direction; bodies move in pieces of at most this.
pub(crate) const H1_BUFFER_BYTES: usize = 256 * 1024;

/// Bytes of the first read of a connection, which decides between HTTP/1 and HTTP/2. Most heads fit.
pub(crate) const SNIFF_BYTES: usize = 1024;

/// HTTP/1: what a client that waits for an answer has sent beyond its request is read up to this, to see whether it leaves.
pub(crate) const AHEAD_BYTES: usize = 16 * 1024;

/// HTTP/2: requests at once on one connection. Enough for one client to fill two large batches.
pub(crate) const H2_STREAMS: u32 = 256;

/// HTTP/2: streams that the peer opened and reset before they were accepted (rapid reset); above it the connection ends.
pub(crate) const H2_PENDING_RESETS: usize = 32;

/// HTTP/2: streams that the server resets because the peer broke the rules (`MadeYouReset`), in the whole life of a
/// connection. Above this number the connection ends. Streams above `H2_STREAMS` count too. Each frame of a body on such
/// a stream also counts. A correct client that opens a thousand streams before it has read the server's settings makes
/// about 750 of them, with two or three frames each. A peer gains little with this many: a reset cancels its own request.
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

/// TCP: bytes of answers that the kernel takes and has not sent. By itself it takes 2 to 4 MB of each connection, and takes more
/// only after a third of that has left: a client that reads 40 kB/s seems to read nothing for 20 s. With this bound it takes
/// more after half of it has left, so a client at `TAKE_RATE` shows progress every 16 s, and one that reads nothing costs
/// the kernel no more. Answers of 1 MB are as fast as without it; a smaller bound costs them more turns. What is sent and not
/// acknowledged is not bounded, so long distances lose no throughput.
pub(crate) const UNSENT_BYTES: u32 = 512 * 1024;

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

/// Least rate at which a body must arrive, in bytes per second, averaged over `body_timeout_s`: half of what the
/// slowest mobile networks carry. Without it, a client could hold a connection without end by sending a byte now and
/// then.
pub(crate) const LEAST_RATE: u64 = 512;

/// How long a client that still sends after a refusal may pause before its connection is closed. Such a client may look
/// for the answer only after it has sent everything, and a connection that is closed immediately makes its kernel drop
/// the answer. So what it sends is read and dropped.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// Longest time for which the server reads and drops what a refused client sends. It is shorter than the time of an
/// idle connection. The number of bytes has no limit: a client that wants the server to read much can open more
/// connections.
pub(crate) const LINGER_MOST: Duration = Duration::from_secs(30);

/// Most bytes of a request to the server itself, not to a model. The limit also holds after decompression. Some of these
/// requests need no key.
pub(crate) const QUESTION_BYTES: u64 = 64 * 1024;

/// Bytes of dropped bodies that are read in one turn of a connection.
pub(crate) const DROPPED_AT_ONCE: u64 = 64 * 1024;
/// Pause between two such turns of a connection, for each other connection whose body is dropped. All of them together
/// are read at half a gigabyte per second, an eighth of what one core could read.
pub(crate) const DROP_PAUSE: Duration = Duration::from_micros(125);
/// Most connections whose bodies are dropped at one time. Each may keep 256 KiB in the kernel.
pub(crate) const DROPPING_MOST: u32 = 1024;

/// What is left of a body that is as good as here.
pub(crate) const SMALL_BYTES: u64 = 256 * 1024;

/// Body of a refused request that is read and dropped so that the connection can be used again.
pub(crate) const DRAIN_BYTES: u64 = 64 * 1024;

/// Longest `retry-after`, in seconds. The estimate of a longer wait is not reliable, so the client should ask again
/// earlier.
pub(crate) const RETRY_AFTER_MOST_S: u64 = 30;
