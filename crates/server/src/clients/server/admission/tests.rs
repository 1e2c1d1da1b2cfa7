//! Which programs are admitted, and for how long.

use super::*;
use crate::base::keys::Keys;
use crate::clients::greeting::Refused;
use crate::link::frame::header::small_frame;
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::FrameReader;
use crate::protocols::connection::listen::bind;
use std::collections::VecDeque;
use std::future::ready;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

fn ready_server() -> Arc<ServerState> {
    let state = Arc::new(ServerState::for_test(1000));
    state.set_readiness(crate::engine::readiness::Readiness { ready: true, ..Default::default() });
    state
}

async fn listeners(paths: &[&Path]) -> Vec<Listener> {
    let addresses: Vec<String> = paths.iter().map(|path| format!("unix:{}", path.display())).collect();
    bind(&addresses).await.unwrap()
}

/// Dials and says nothing.
async fn silent(path: &Path, count: usize) -> Vec<UnixStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(UnixStream::connect(path).await.unwrap());
    }
    all
}

#[tokio::test]
async fn strangers_cannot_take_every_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(serve(listeners(&[&path]).await, ready_server(), stopped, ready(())));
    let mut strangers = silent(&path, NEWCOMERS + 10).await;
    for stranger in &mut strangers[..10] {
        assert_eq!(read(stranger).await, Some(0), "one that is too many ends the one that was silent for longest");
    }
    let mut programs = Vec::new();
    for _ in 0..PROGRAMS {
        programs.push(Program::dial(&path).await);
        assert!(programs.last_mut().unwrap().is_served().await);
    }
    let mut late = Program::dial(&path).await;
    assert!(late.refusal().await.contains("as many programs as it can"));
    drop(programs);
    let served = async {
        while !Program::dial(&path).await.is_served().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), served).await.expect("it is admitted when others have left");
    stop.send(true).unwrap();
    serving.await.unwrap();
}

/// How many bytes come, or 0 at the end; `None` if nothing happens for a while.
async fn read(stream: &mut UnixStream) -> Option<usize> {
    tokio::time::timeout(Duration::from_secs(5), stream.read(&mut [0])).await.ok().map(Result::unwrap)
}

#[tokio::test]
async fn programs_at_one_listener_take_no_place_from_another_or_from_workers() {
    static IS_WORKER: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let [full, other] = ["full", "other"].map(|name| folder.path().join(name));
    let (stop, stopped) = watch::channel(false);
    let both = listeners(&[&full, &other]).await;
    let is_of_a_worker = |_: &Stream| IS_WORKER.load(Ordering::Relaxed);
    let serving = tokio::spawn(admit(both, ready_server(), stopped, ready(()), is_of_a_worker));
    let _strangers = silent(&full, NEWCOMERS).await;
    let mut programs = Vec::new();
    for _ in 0..PROGRAMS / 2 {
        programs.push(Program::dial(&full).await);
        assert!(programs.last_mut().unwrap().is_served().await);
    }
    assert!(!Program::dial(&full).await.is_served().await, "this listener is full");
    assert!(Program::dial(&other).await.is_served().await);
    IS_WORKER.store(true, Ordering::Relaxed);
    assert!(Program::dial(&full).await.is_served().await, "the server's own workers have their own places");
    drop(programs);
    stop.send(true).unwrap();
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_with_a_key_is_served_while_strangers_come_all_the_time() {
    let mut state = ServerState::for_test(1000);
    state.keys = Keys::load(Some("a-key-of-this-server"), None).unwrap().map(Arc::new);
    state.set_readiness(crate::engine::readiness::Readiness { ready: true, ..Default::default() });
    let listeners = bind(&["tcp:127.0.0.1:0".to_owned()]).await.unwrap();
    let address = listeners[0].local_address().strip_prefix("tcp:").unwrap().to_owned();
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(serve(listeners, Arc::new(state), stopped, ready(())));
    let strangers = Arc::new(Mutex::new(VecDeque::new()));
    let flood = async |count: usize| {
        for _ in 0..count {
            let stranger = TcpStream::connect(&address).await.unwrap();
            let mut strangers = strangers.lock().unwrap();
            strangers.push_back(stranger);
            // The oldest one leaves, and is replaced.
            if strangers.len() > 256 {
                strangers.pop_front();
            }
        }
    };
    flood(256).await;
    let mut programs = Vec::new();
    for _ in 0..20 {
        let serve_one = async {
            let stream = TcpStream::connect(&address).await.unwrap();
            let mut program = Program::greet(stream, r#"{"key": "a-key-of-this-server"}"#).await;
            assert!(program.is_served().await, "it is admitted the first time it dials");
            program
        };
        let (program, ()) = tokio::join!(serve_one, flood(40));
        programs.push(program);
    }
    for program in &mut programs {
        assert!(program.is_served().await, "silent connections end no program that was admitted");
    }
    stop.send(true).unwrap();
    serving.await.unwrap();
}

/// A program that asks for signs of life.
struct Program(FrameReader<Box<dyn AsyncRead + Send + Unpin>>, Box<dyn AsyncWrite + Send + Unpin>);

impl Program {
    async fn dial(path: &Path) -> Program {
        Program::greet(UnixStream::connect(path).await.unwrap(), r#"{"key": null}"#).await
    }

    async fn greet(stream: impl AsyncRead + AsyncWrite + Send + 'static, dial: &str) -> Program {
        let (reader, mut writer) = tokio::io::split(stream);
        // The server may have ended the connection already.
        let _ = writer.write_all(&small_frame(Kind::Dial, dial.as_bytes())[0]).await;
        Program(FrameReader::new(Box::new(reader)), Box::new(writer))
    }

    /// Why it is turned away.
    async fn refusal(&mut self) -> String {
        let frame =
            tokio::time::timeout(Duration::from_secs(5), self.0.next()).await.expect("a word").unwrap().unwrap();
        assert_eq!(frame.kind, Kind::Refused);
        let refused: Refused = serde_json::from_slice(&frame.table).unwrap();
        assert!(refused.is_temporary);
        refused.why
    }

    /// False if the server has ended the connection.
    async fn is_served(&mut self) -> bool {
        let _ = self.1.write_all(&small_frame(Kind::Ping, b"")[0]).await;
        loop {
            match tokio::time::timeout(Duration::from_secs(5), self.0.next()).await.expect("an answer or the end") {
                Ok(Some(frame)) if frame.kind == Kind::Pong => return true,
                Ok(Some(_)) => {}
                _ => return false,
            }
        }
    }
}

#[tokio::test]
async fn workers_are_served_until_the_other_doors_have_ended() {
    for is_worker in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (stop, stopped) = watch::channel(false);
        let (last_request, answered) = tokio::sync::oneshot::channel::<()>();
        let others = async move { drop(answered.await) };
        let of_workers: fn(&Stream) -> bool = if is_worker { |_| true } else { |_| false };
        let serving = tokio::spawn(admit(listeners(&[&path]).await, ready_server(), stopped, others, of_workers));
        let mut program = Program::dial(&path).await;
        assert!(program.is_served().await);
        stop.send(true).unwrap();
        let mut late = Program::dial(&path).await;
        assert_eq!((program.is_served().await, late.is_served().await), (is_worker, is_worker));
        assert!(!serving.is_finished());
        drop(last_request);
        tokio::time::timeout(Duration::from_secs(5), serving).await.expect("it ends").unwrap();
        assert!(!program.is_served().await && !late.is_served().await);
    }
}
