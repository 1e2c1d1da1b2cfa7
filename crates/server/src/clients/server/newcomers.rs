//! Connections that have not shown a key yet. They take no place of a program: connections that are silent must not keep
//! out a program that has a key.

use crate::link::frame::reader::{Frame, FrameReader};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncRead;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// A program sends its first frame as soon as it is connected. If a packet of it is lost, TCP sends it again after 1 s.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of a first frame.
const LONGEST_DIAL: usize = 4 << 10;

/// The newcomers of one listener, in order of arrival. If one comes that is too many, the oldest connection ends: it has
/// been silent for longest. A program sends its key at once, so all the others would have to arrive while the key is on its
/// way.
#[derive(Debug)]
pub(super) struct Newcomers {
    most: usize,
    /// Dropping a sender ends its connection.
    waiting: Mutex<VecDeque<oneshot::Sender<Infallible>>>,
}

impl Newcomers {
    /// Room for so many.
    pub(super) fn new(most: usize) -> Newcomers {
        Newcomers { most, waiting: Mutex::default() }
    }

    /// Adds one, which will take one of these places when it has shown its key.
    pub(super) fn add(&self, places: &Arc<Semaphore>, is_own: bool, peer: Option<IpAddr>) -> Newcomer {
        let (sender, crowded_out) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|newcomer| !newcomer.is_closed());
        waiting.push_back(sender);
        if waiting.len() > self.most {
            waiting.pop_front();
        }
        Newcomer { crowded_out, places: places.clone(), place: None, is_own, peer }
    }
}

/// A connection, until its first frame; then it is a program's, and has a place.
#[derive(Debug)]
pub(super) struct Newcomer {
    crowded_out: oneshot::Receiver<Infallible>,
    places: Arc<Semaphore>,
    /// It is taken until the connection ends.
    place: Option<OwnedSemaphorePermit>,
    /// Whether it is a worker of this server, which may read what a model's exceptions say. Any other program is a client.
    pub(super) is_own: bool,
    /// Its address; `None` over a Unix socket.
    pub(super) peer: Option<IpAddr>,
}

impl Newcomer {
    /// Reads its first frame, if it comes in time and before the connection is one too many.
    pub(super) async fn first_frame<R: AsyncRead + Unpin>(&mut self, reader: &mut FrameReader<R>) -> io::Result<Frame> {
        let frame = tokio::select! {
            biased;
            frame = tokio::time::timeout(DIAL_TIMEOUT, reader.next_within(LONGEST_DIAL)) => frame??,
            _ = &mut self.crowded_out => return Err(io::Error::other("it was silent, and others came")),
        };
        self.crowded_out.close();
        frame.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Takes a place of a program; false if there is none.
    pub(super) fn take_place(&mut self) -> bool {
        self.place = self.places.clone().try_acquire_owned().ok();
        self.place.is_some()
    }

    #[cfg(test)]
    pub(super) fn for_test() -> Newcomer {
        let newcomers = Box::leak(Box::new(Newcomers::new(1)));
        newcomers.add(&Arc::new(Semaphore::new(1)), false, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::frame::header::small_frame;
    use crate::link::frame::kind::Kind;
    use tokio::io::AsyncWriteExt;

    #[tokio::test(start_paused = true)]
    async fn only_a_connection_that_is_silent_is_ended() {
        let newcomers = Newcomers::new(1);
        let places = Arc::new(Semaphore::new(1));
        let (near, mut far) = tokio::io::duplex(1 << 10);
        let mut reader = FrameReader::new(near);
        let mut program = newcomers.add(&places, false, None);
        far.write_all(&small_frame(Kind::Dial, b"{}")[0]).await.unwrap();
        assert!(program.first_frame(&mut reader).await.is_ok());
        let mut first = newcomers.add(&places, false, None);
        let mut second = newcomers.add(&places, false, None);
        assert!(first.first_frame(&mut reader).await.unwrap_err().to_string().contains("silent"), "one too many");
        let late = second.first_frame(&mut reader).await.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert!(program.take_place() && !second.take_place());
        drop(program);
        assert!(second.take_place(), "a place is free again when its connection has ended");
    }
}
