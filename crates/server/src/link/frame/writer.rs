//! Writes frames to a byte stream.

use crate::link::frame::header::Segments;
use bytes::{Buf, Bytes};
use std::io;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Most frames that leave in one write.
const FRAMES_AT_ONCE: usize = 64;
/// Bytes of the send buffer that is asked for.
const SEND_BUFFER: usize = 1 << 20;

/// Asks the kernel for a large send buffer: each time that the buffer is full costs two switches between processes.
pub(crate) fn widen(socket: &impl std::os::fd::AsFd) {
    // The kernel may grant less; then a large frame only takes longer.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER);
}

/// Writes every frame of the queue, until all its senders are dropped or the stream breaks. The other end sees an end then: half of
/// a TCP connection that is only dropped ends nothing while somebody reads the other half.
pub(crate) async fn write_all<W: AsyncWrite + Unpin>(writer: W, queue: mpsc::UnboundedReceiver<Segments>) {
    write_together(writer, queue, || false).await;
}

/// Writes every frame of the queue. While `more_may_come` says so, tasks that are ready run first: their frames leave in the
/// same write.
pub(crate) async fn write_together<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut queue: mpsc::UnboundedReceiver<Segments>,
    more_may_come: impl Fn() -> bool,
) {
    let mut frames = Vec::with_capacity(FRAMES_AT_ONCE);
    while queue.recv_many(&mut frames, FRAMES_AT_ONCE).await > 0 {
        if more_may_come() {
            tokio::task::yield_now().await;
            while frames.len() < FRAMES_AT_ONCE
                && let Ok(frame) = queue.try_recv()
            {
                frames.push(frame);
            }
        }
        let segments = frames.drain(..).flatten().collect();
        if write_segments(&mut writer, segments).await.is_err() {
            return;
        }
    }
    // A stream that cannot be ended has ended.
    let _ = writer.shutdown().await;
}

async fn write_segments<W: AsyncWrite + Unpin>(writer: &mut W, segments: Segments) -> io::Result<()> {
    let mut chain = Chain { segments, next: 0 };
    writer.write_all_buf(&mut chain).await?;
    // TLS may have encrypted more than the socket took.
    writer.flush().await
}

/// Segments as one buffer, so that they leave in vectored writes.
struct Chain {
    segments: Vec<Bytes>,
    next: usize,
}

impl Buf for Chain {
    fn remaining(&self) -> usize {
        self.segments[self.next..].iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.segments.get(self.next).map_or(&[], |segment| segment)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [io::IoSlice<'a>]) -> usize {
        let rest = &self.segments[self.next..];
        slices.iter_mut().zip(rest).map(|(slice, segment)| *slice = io::IoSlice::new(segment)).count()
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 || self.segments.get(self.next).is_some_and(Bytes::is_empty) {
            let segment = &mut self.segments[self.next];
            let step = count.min(segment.len());
            segment.advance(step);
            count -= step;
            if segment.is_empty() {
                self.next += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::frame::header::small_frame;
    use crate::link::frame::kind::Kind;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn the_other_end_sees_the_end_of_the_queue_although_this_end_still_reads() {
        let (mut other, this) = tokio::io::duplex(1 << 10);
        let (_reader, writer) = tokio::io::split(this);
        let (frames, queue) = mpsc::unbounded_channel();
        frames.send(small_frame(Kind::Ping, b"")).unwrap();
        drop(frames);
        tokio::spawn(write_all(writer, queue));
        let mut read = Vec::new();
        other.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, small_frame(Kind::Ping, b"").concat());
    }
}
