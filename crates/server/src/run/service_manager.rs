//! What the service manager reads of the server: datagrams of systemd's notify protocol. `Type=notify` with `WatchdogSec=`.

use crate::engine::deployment::Deployment;
use crate::engine::readiness::Readiness;
use crate::engine::server_state::ServerState;
use futures_util::future::join_all;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

/// Longest status that is sent, in characters. It is one line of `systemctl status`.
const MOST_STATUS: usize = 500;
/// What the service manager could not take is sent again after this time.
const AGAIN: Duration = Duration::from_secs(1);

/// The socket of the service manager that has started this process.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    /// It expects a sign of life within this time.
    patience: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names; `None` if there is none, or if it cannot be reached.
    pub(crate) fn from_environment() -> Option<ServiceManager> {
        let variable = |name: &str| std::env::var(name).ok();
        let address = variable("NOTIFY_SOCKET").filter(|address| !address.is_empty())?;
        // A watchdog that is meant for another process is not ours: `systemd-run`, a shell, `--reload`.
        let is_ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let patience = variable("WATCHDOG_USEC").filter(|_| is_ours).and_then(|text| text.parse().ok());
        match ServiceManager::connect(&address, patience.map(Duration::from_micros)) {
            Ok(manager) => Some(manager),
            Err(error) => {
                tracing::warn!(
                    "NOTIFY_SOCKET: {address} cannot be reached: {error}; the service manager is not notified"
                );
                None
            }
        }
    }

    fn connect(address: &str, patience: Option<Duration>) -> std::io::Result<ServiceManager> {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&parse(address)?)?;
        // A manager that does not read must not stop the server.
        socket.set_nonblocking(true)?;
        Ok(ServiceManager { socket, patience })
    }

    /// Whether it was sent: the queue of the socket may be full.
    fn send(&self, lines: &str) -> bool {
        self.socket.send(lines.as_bytes()).is_ok()
    }

    /// Reports what `/readyz` says, whenever it changes, and signs of life while all engines answer. Never returns.
    pub(crate) async fn follow(self, state: Arc<ServerState>) {
        let mut readiness = state.watch_readiness();
        let mut has_been_ready = false;
        let mut beat = self.patience.filter(|patience| !patience.is_zero()).map(beat);
        let mut is_silent = false;
        loop {
            let now = readiness.borrow_and_update().clone();
            let is_sent = self.send(&message(&now, has_been_ready));
            has_been_ready |= now.ready && is_sent;
            let again = tokio::time::sleep(AGAIN);
            tokio::pin!(again);
            loop {
                tokio::select! {
                    // The sender is in `state`.
                    _ = readiness.changed() => break,
                    () = &mut again, if !is_sent => break,
                    patience = next(&mut beat) => {
                        let silent = silent(&state, patience).await;
                        if silent.is_empty() {
                            self.send("WATCHDOG=1");
                        } else if !is_silent {
                            tracing::warn!(
                                "no answer from the engine of {} within {:.1} s: the service manager gets no sign of life",
                                silent.join(", "),
                                patience.as_secs_f64()
                            );
                        }
                        is_silent = !silent.is_empty();
                    }
                }
            }
        }
    }
}

/// A path, or a name in the abstract namespace of Linux, which begins with `@`.
fn parse(address: &str) -> std::io::Result<SocketAddr> {
    match address.strip_prefix('@') {
        #[cfg(target_os = "linux")]
        Some(name) => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name),
        _ => SocketAddr::from_pathname(address),
    }
}

/// Two signs of life within the time in which one is expected; the first at once.
fn beat(patience: Duration) -> Interval {
    let mut beat = interval_at(Instant::now(), patience / 2);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat
}

/// Waits until a sign of life is due, and returns how long engines may take to answer. Never without a watchdog.
async fn next(beat: &mut Option<Interval>) -> Duration {
    match beat {
        Some(beat) => {
            beat.tick().await;
            beat.period() / 2
        }
        None => std::future::pending().await,
    }
}

/// The deployments whose engines do not answer within this time.
async fn silent(state: &ServerState, patience: Duration) -> Vec<String> {
    // The front itself carries out compositions of deployments.
    let with_engines = state.deployments().into_iter().filter(|deployment| deployment.manifest.composed.is_none());
    let asked = with_engines.map(|deployment| async move {
        let is_alive = answers(&deployment, patience).await;
        (!is_alive).then(|| deployment.manifest.name.clone())
    });
    join_all(asked).await.into_iter().flatten().collect()
}

async fn answers(deployment: &Deployment, patience: Duration) -> bool {
    let Some(shown) = deployment.showing_learned() else { return false };
    timeout(patience, shown).await.is_ok_and(|shown| shown.is_ok())
}

fn message(readiness: &Readiness, has_been_ready: bool) -> String {
    let mut lines = vec![format!("STATUS={}", status(readiness))];
    if readiness.ready && !has_been_ready {
        lines.push("READY=1".into());
    }
    if readiness.draining {
        lines.push("STOPPING=1".into());
    }
    lines.join("\n")
}

/// One line for people. A line break would begin another field.
fn status(readiness: &Readiness) -> String {
    let names = || readiness.deployments.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let text = match (readiness.ready, readiness.draining) {
        (_, true) => format!("shutting down: {}", readiness.reasons.join("; ")),
        (true, false) => format!("ready: {}", names()),
        (false, false) => format!("not ready: {}", readiness.reasons.join("; ")),
    };
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MOST_STATUS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::deployment::Inbound;

    #[test]
    fn what_systemd_reads_follows_from_readiness() {
        let loading = Readiness { reasons: vec!["a:\nno replica".into(), "b".into()], ..Readiness::default() };
        assert_eq!(message(&loading, false), "STATUS=not ready: a: no replica; b");
        let deployments = [("a".to_owned(), true)].into();
        let ready = Readiness { ready: true, deployments, ..Readiness::default() };
        assert_eq!(message(&ready, false), "STATUS=ready: a\nREADY=1");
        assert_eq!(message(&ready, true), "STATUS=ready: a");
        let ending = Readiness::ending("SIGTERM");
        assert_eq!(message(&ending, true), "STATUS=shutting down: SIGTERM\nSTOPPING=1");
    }

    #[tokio::test]
    async fn signs_of_life_are_sent_while_engines_answer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = tokio::net::UnixDatagram::bind(&path).unwrap();
        let patience = Duration::from_millis(100);
        let own = ServiceManager::connect(path.to_str().unwrap(), Some(patience)).unwrap();
        let state = Arc::new(ServerState::for_test(1000));
        let following = tokio::spawn(own.follow(state.clone()));
        let next = async || {
            let mut buffer = [0; 1000];
            let length = timeout(Duration::from_secs(20), manager.recv(&mut buffer)).await.unwrap().unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        assert!(next().await.starts_with("STATUS=not ready: the targets"));
        for _ in 0..3 {
            assert_eq!(next().await, "WATCHDOG=1");
        }
        state.set_readiness(Readiness { ready: true, ..Readiness::default() });
        while !next().await.ends_with("READY=1") {}
        following.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_is_sent_again_if_the_queue_of_the_socket_was_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let own = ServiceManager::connect(path.to_str().unwrap(), None).unwrap();
        while own.send("full") {}
        let state = Arc::new(ServerState::for_test(1000));
        state.set_readiness(Readiness { ready: true, ..Readiness::default() });
        let following = tokio::spawn(own.follow(state));
        tokio::time::sleep(AGAIN / 2).await;
        manager.set_nonblocking(true).unwrap();
        let mut buffer = [0; 1000];
        while manager.recv(&mut buffer).is_ok() {}
        tokio::time::sleep(AGAIN).await;
        let length = manager.recv(&mut buffer).unwrap();
        assert!(buffer[..length].ends_with(b"READY=1"));
        following.abort();
    }

    #[tokio::test]
    async fn an_engine_that_does_not_answer_is_named() {
        let state = ServerState::for_test(1000);
        let text = serde_json::json!({ "kind": "text", "arrays": [], "schema": true });
        let manifest = crate::open_inference::tests::manifest(text.clone(), text, serde_json::json!({}));
        let (inbound, mut engine) = tokio::sync::mpsc::unbounded_channel();
        state.serve([Deployment::new(Arc::new(manifest), inbound, &state.telemetry)].into_iter().collect());
        let patience = Duration::from_millis(50);
        assert_eq!(silent(&state, patience).await, ["m"]);
        let answering = tokio::spawn(async move {
            while let Some(message) = engine.recv().await {
                if let Inbound::ShowLearned(reply) = message {
                    let _ = reply.send(());
                }
            }
        });
        assert!(silent(&state, Duration::from_secs(20)).await.is_empty());
        answering.abort();
        let _ = answering.await;
        assert_eq!(silent(&state, patience).await, ["m"], "it has ended");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_name_may_be_abstract() {
        let name = format!("@jitney-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&parse(&name).unwrap()).unwrap();
        assert!(ServiceManager::connect(&name, None).unwrap().send("READY=1"));
        let mut buffer = [0; 20];
        let length = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        assert!(ServiceManager::connect("/no/such/socket", None).is_err());
    }
}
