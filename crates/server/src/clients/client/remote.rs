//! A connection to a server: it is dialled again, with back-off, whenever it is lost.

use crate::base::fatal::{Doing, Fatal};
use crate::clients::call_frame::Caller;
use crate::clients::client::calls::{Address, Shared, Standing};
use crate::clients::client::entrance::RemoteEntrance;
use crate::clients::client::line::connect;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The pause before a server is dialled again, at first and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A connection to a server that is dialled again when it is lost.
#[derive(Debug)]
pub struct Remote {
    shared: Arc<Shared>,
    runtime: Mutex<Option<Runtime>>,
    process: u32,
}

impl Remote {
    /// Begins to dial.
    pub fn dial(address: Address) -> io::Result<Remote> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("jitney-dial")
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared::new(address, Caller::Program));
        runtime.spawn(stay_connected(shared.clone()));
        Ok(Remote { shared, runtime: Mutex::new(Some(runtime)), process: std::process::id() })
    }

    /// Waits for a connection, but not longer than this.
    pub fn ready(&self, within: Duration) -> Doing {
        let shared = self.shared.clone();
        let waiting = async move {
            let mut standing = shared.standing.subscribe();
            let settled = standing.wait_for(|standing| !matches!(standing, Standing::Dialling(_)));
            match tokio::time::timeout(within, settled).await {
                Ok(Ok(standing)) if matches!(*standing, Standing::Connected(_)) => Ok(()),
                _ => Err(Fatal::new(shared.lost().detail)),
            }
        };
        match &*self.runtime.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(runtime) => {
                let waiting = runtime.spawn(waiting);
                Box::pin(async move { waiting.await.unwrap_or_else(|error| Err(Fatal::new(error.to_string()))) })
            }
            None => Box::pin(std::future::ready(Err(Fatal::new("the connection was closed")))),
        }
    }

    /// The manifests of the server's deployments by name, as JSON; empty while there is no connection.
    pub fn manifests(&self) -> String {
        self.shared.manifests()
    }

    /// The way in to a deployment; that there is one is only seen by calling it.
    pub fn entrance(&self, name: &str) -> RemoteEntrance {
        RemoteEntrance { deployment: name.into(), shared: self.shared.clone() }
    }

    /// Whether this is a fork of the process that dialled.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Lets go of the connection. Requests in flight fail, and the server cancels their items.
    pub fn release(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        match runtime {
            Some(runtime) if self.is_forked() => std::mem::forget(runtime),
            Some(runtime) => {
                self.shared.standing.send_replace(Standing::Dialling("the connection was closed".into()));
                self.shared.lose();
                runtime.shutdown_background();
            }
            None => {}
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.release();
    }
}

async fn stay_connected(shared: Arc<Shared>) {
    let mut pause = BACK_OFF.0;
    loop {
        let wait = dial_once(&shared, &mut pause).await;
        // Programs that lost one server together must not come back together.
        tokio::time::sleep(wait.mul_f64(0.5 + f64::from(std::process::id() % 64) / 128.0)).await;
    }
}

/// Dials once and speaks with the server until the connection ends. Returns how long to wait before the next attempt;
/// `pause` is the wait after the next failure.
async fn dial_once(shared: &Arc<Shared>, pause: &mut Duration) -> Duration {
    let end = connect(shared).await.map_or_else(|error| error.to_string(), |()| "it ended the connection".to_owned());
    let last = shared.standing.borrow().clone();
    shared.lose();
    if matches!(last, Standing::Connected(_)) {
        // However it ended: a connection that worked says nothing about the failures before it.
        *pause = BACK_OFF.0;
    }
    if !matches!(last, Standing::Refused(_)) {
        shared.standing.send_replace(Standing::Dialling(end));
    }
    std::mem::replace(pause, (*pause * 2).min(BACK_OFF.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::greeting::Welcome;
    use crate::link::frame::header::small_frame;
    use crate::link::frame::kind::Kind;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    /// The wait after a connection to a server that sends these bytes and then ends the connection.
    async fn wait_after(sent: &[u8], pause: &mut Duration) -> Duration {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp:{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::new(Address { address, key: None }, Caller::Program));
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(sent).await.unwrap();
        };
        tokio::join!(dial_once(&shared, pause), serve).0
    }

    #[tokio::test]
    async fn only_a_connection_that_never_worked_makes_the_pause_grow() {
        let welcome = Welcome { deployments: [].into(), max_body_bytes: 1000, max_items: 10, max_requests: 1 };
        let welcome = small_frame(Kind::Welcome, &serde_json::to_vec(&welcome).unwrap()).concat();
        // What no server sends ends the connection with an error, as a reset of the connection does.
        let broken = [&welcome[..], &small_frame(Kind::Welcome, b"").concat()].concat();
        for worked in [welcome, broken] {
            let mut pause = BACK_OFF.0;
            assert_eq!(wait_after(b"", &mut pause).await, BACK_OFF.0);
            assert_eq!(wait_after(b"", &mut pause).await, BACK_OFF.0 * 2);
            assert_eq!(wait_after(&worked, &mut pause).await, BACK_OFF.0, "it worked before it ended");
            assert_eq!(wait_after(b"", &mut pause).await, BACK_OFF.0 * 2);
        }
    }
}
