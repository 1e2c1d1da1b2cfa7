//! The life of an agent: dial, join, do what the front says, leave.

use crate::link::agents::agent_link::MISCONFIGURED;
use crate::link::agents::messages::{Join, Kill, Output, Room, Stacks, Started};
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::Frame;
use crate::link::front::worker_event::WorkerEvent;
use crate::run::agent::children::Children;
use crate::run::agent::connection::{Connection, NotJoined};
use crate::workers::backends::children;
use jitney_channel::{Address, Pin, Secret, Stream, Tls, dial_agent};
use jitney_core::replicas::loss_history::Loss;
use jitney_core::supervisor::worker_life::LEASE;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep};

/// The first pause before the front is dialled again.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// That no server is there is said again after this.
const SAID_AGAIN: Duration = Duration::from_secs(60);
/// The exit code of an agent that could not finish its work in order.
const CUT: i32 = 1;

/// What the command line says, as JSON.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    /// Addresses of fronts, of which the first that answers is joined.
    pub connect: Vec<String>,
    /// The file with the secret.
    pub secret_file: String,
    /// `auto`, `off`, `CERT,KEY` or `CERT,KEY,CA`, as that of the server.
    pub workers_tls: String,
    /// Room for workers.
    pub places: Vec<Room>,
    /// What the whole machine has of other things.
    pub resources: BTreeMap<String, f64>,
    /// What an operator says of the machine, by name.
    pub labels: BTreeMap<String, String>,
    /// The targets that it can import; empty: every target.
    pub targets: Vec<String>,
    /// The interpreter of the workers, and its version.
    pub python: String,
    /// See `python`.
    pub python_version: String,
    /// The engine that started this agent; empty without one. Such an agent ends with the process that started it, and after its
    /// lease.
    pub engine: String,
    /// Its name between the front and the engine; empty: a random one.
    pub name: String,
    /// Workers may take so long to finish what they have when the agent is to end.
    pub drain_timeout_s: f64,
    /// `text` or `json`.
    pub log_format: String,
    /// As of a server.
    pub log_level: String,
}

/// Runs an agent to its end; the exit code.
pub fn run(settings: AgentSettings) -> i32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(|error| (format!("no runtime: {error}"), CUT)).and_then(|runtime| {
        runtime.block_on(async {
            // This process does nothing else: it may reap what it has not started. Ends with the runtime.
            tokio::spawn(children::reap());
            let mut agent = Agent::new(settings)?;
            agent.live().await
        })
    });
    match result {
        Ok(()) => 0,
        Err((why, code)) => {
            tracing::error!("{why}");
            code
        }
    }
}

type End = (String, i32);

struct Agent {
    settings: AgentSettings,
    secret: Secret,
    addresses: Vec<Address>,
    name: String,
    children: Children,
    terminate: Signal,
    interrupt: Signal,
    /// When workers that have not finished are killed, once the agent is to end.
    leaves_by: Option<Instant>,
    /// What workers printed while no front was there.
    printed: VecDeque<(WorkerEvent, String)>,
    /// Since when no front is there.
    alone_since: Instant,
    _folder: tempfile::TempDir,
}

/// Why a connection to a front is over.
enum Over {
    /// It is lost, for this reason.
    Lost(String),
    /// The agent has left.
    Left,
}

/// What ended a wait.
enum Woken {
    Front(Option<Frame>),
    Child(WorkerEvent),
    Stop,
    Late,
}

impl Agent {
    fn new(settings: AgentSettings) -> Result<Agent, End> {
        let misconfigured = |error: jitney_channel::ChannelError| (error.to_string(), MISCONFIGURED);
        let broken = |error: io::Error| (error.to_string(), CUT);
        let tls =
            Tls::read(&settings.workers_tls).map_err(|error| (format!("--workers-tls: {error}"), MISCONFIGURED))?;
        let secret = Secret::read(Path::new(&settings.secret_file)).map_err(misconfigured)?.with_tls(tls);
        let addresses =
            settings.connect.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(misconfigured)?;
        if !settings.engine.is_empty() {
            end_with_parent();
        }
        let name = if settings.name.is_empty() { random_name().map_err(broken)? } else { settings.name.clone() };
        let folder = tempfile::Builder::new().prefix("jitney-agent-").tempdir().map_err(broken)?;
        let (python, pin) = (settings.python.clone(), Pin::of_front(&secret));
        let children = Children::new(python, folder.path().into(), settings.places.clone(), pin);
        Ok(Agent {
            secret,
            addresses,
            name,
            children: children.map_err(broken)?,
            terminate: signal(SignalKind::terminate()).map_err(broken)?,
            interrupt: signal(SignalKind::interrupt()).map_err(broken)?,
            leaves_by: None,
            printed: VecDeque::new(),
            alone_since: Instant::now(),
            settings,
            _folder: folder,
        })
    }

    async fn live(&mut self) -> Result<(), End> {
        let mut pause = FIRST_PAUSE;
        let mut last = (String::new(), Instant::now());
        loop {
            for address in self.addresses.clone() {
                let place = format!("tcp:{}", address.host_and_port);
                let Some(dialled) = self.dial(address).await? else { return Ok(()) };
                match dialled {
                    Ok(mut connection) => {
                        tracing::info!("joined the server at {place}");
                        (pause, last.0) = (FIRST_PAUSE, String::new());
                        match self.serve(&mut connection).await? {
                            Over::Left => return Ok(()),
                            Over::Lost(why) => tracing::warn!(
                                "the connection to the server at {place} is lost: {why}; it is dialled again, and workers keep \
                                 their models for {} s",
                                LEASE.as_secs()
                            ),
                        }
                        self.alone_since = Instant::now();
                    }
                    Err(NotJoined::Never(why, code)) => return Err((why, code)),
                    Err(NotJoined::Later(why)) => {
                        if why != last.0 || last.1.elapsed() >= SAID_AGAIN {
                            tracing::warn!("no server at {place}: {why}; trying again");
                            last = (why, Instant::now());
                        }
                    }
                }
            }
            if self.during(sleep(pause), true).await?.is_none() || self.is_alone_for_too_long() {
                return Ok(());
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Connects to a front, and joins it; `None` if it became time to end.
    async fn dial(&mut self, address: Address) -> Result<Option<Result<Connection<Stream>, NotJoined>>, End> {
        let (secret, place) = (self.secret.clone(), format!("tcp:{}", address.host_and_port));
        let dialled = address.clone();
        let Some(stream) = self.during(async move { dial_agent(&dialled, &secret).await }, true).await? else {
            return Ok(None);
        };
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) if error.is_passing() => return Ok(Some(Err(NotJoined::Later(error.to_string())))),
            Err(error) => {
                let asks = error.is_of_another_protocol();
                let hint = if asks { "; is that the port of --workers-listen?" } else { "" };
                return Ok(Some(Err(NotJoined::Never(format!("{place}: {error}{hint}"), MISCONFIGURED))));
            }
        };
        let join = self.join(&address);
        let was_leaving = join.is_leaving;
        // The front knows what this says of the workers. What happens to them meanwhile is reported after it.
        let mut joined = self.during(async move { Connection::join(stream, &join).await }, false).await?;
        if let Some(Ok(connection)) = &mut joined
            && self.leaves_by.is_some()
            && !was_leaving
        {
            // That the connection is lost by now is seen when it is read.
            let _ = connection.send(Kind::Leaving, &()).await;
        }
        Ok(joined)
    }

    fn join(&self, address: &Address) -> Join {
        Join {
            version: env!("CARGO_PKG_VERSION").into(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            agent: self.name.clone(),
            dialled: format!("tcp:{}", address.host_and_port),
            places: self.children.rooms().to_vec(),
            resources: self.settings.resources.clone(),
            labels: self.settings.labels.clone(),
            targets: self.settings.targets.clone(),
            python: self.settings.python_version.clone(),
            engine: self.settings.engine.clone(),
            workers: self.children.running(),
            ended: self.children.ended(),
            is_leaving: self.leaves_by.is_some(),
        }
    }

    /// Does what the front says until the connection is lost, or until it is time to end.
    async fn serve(&mut self, connection: &mut Connection<Stream>) -> Result<Over, End> {
        for (event, id) in std::mem::take(&mut self.printed) {
            if let Err(error) = self.report(connection, event, id).await {
                return Ok(Over::Lost(error.to_string()));
            }
        }
        loop {
            if self.has_left() {
                return Ok(Over::Left);
            }
            let woken = tokio::select! {
                frame = connection.frames.recv() => Woken::Front(frame),
                Some(event) = self.children.events.recv() => Woken::Child(event),
                _ = self.terminate.recv() => Woken::Stop,
                _ = self.interrupt.recv() => Woken::Stop,
                () = until(self.leaves_by) => Woken::Late,
            };
            let sent = match woken {
                Woken::Front(None) => return Ok(Over::Lost("it ended, or nothing came over it for too long".into())),
                Woken::Front(Some(frame)) => self.obey(connection, frame).await,
                Woken::Child(event) => {
                    let id = event.worker().map(|worker| self.children.id(worker)).unwrap_or_default();
                    self.report(connection, event, id).await
                }
                Woken::Stop => {
                    self.stop()?;
                    connection.send(Kind::Leaving, &()).await
                }
                Woken::Late => return Err(self.late()),
            };
            if let Err(error) = sent {
                return Ok(Over::Lost(error.to_string()));
            }
        }
    }

    async fn obey(&mut self, connection: &mut Connection<Stream>, frame: Frame) -> io::Result<()> {
        match frame.kind {
            Kind::Ping => connection.send(Kind::Pong, &()).await,
            Kind::Start => match self.children.start(serde_json::from_slice(&frame.table)?) {
                Ok(()) => Ok(()),
                // The front counts this as the end of the worker, and logs it.
                Err(ended) => connection.send(Kind::Exited, &ended).await,
            },
            Kind::Kill => {
                let kill: Kill = serde_json::from_slice(&frame.table)?;
                self.children.kill(&kill);
                Ok(())
            }
            other => Err(io::Error::other(format!("a front does not send {other:?} to an agent"))),
        }
    }

    /// Reports to the front what became of a worker.
    async fn report(&mut self, connection: &mut Connection<Stream>, event: WorkerEvent, id: String) -> io::Result<()> {
        match event {
            WorkerEvent::Started(_) => connection.send(Kind::WorkerStarted, &Started { id }).await,
            WorkerEvent::Exited(worker, how, loss) => {
                let ended = self.children.end(worker, how, loss == Loss::Killed);
                connection.send(Kind::Exited, &ended).await
            }
            WorkerEvent::Stacks(_, text) => connection.send(Kind::Stacks, &Stacks { id, text }).await,
            WorkerEvent::Printed(_, is_stdout, lines, room) => {
                let lines = String::from_utf8_lossy(&lines).into_owned();
                let sent = connection.send(Kind::Output, &Output { id, is_stdout, lines }).await;
                drop(room);
                sent
            }
            _ => Ok(()),
        }
    }

    /// Waits for something while no front is there, and handles signals and, with `takes_events`, what happens to workers. `None`
    /// if it became time to end.
    async fn during<T>(&mut self, work: impl Future<Output = T>, takes_events: bool) -> Result<Option<T>, End> {
        tokio::pin!(work);
        loop {
            // Workers have their own links: they finish what they have also while their agent is alone.
            if self.has_left() {
                return Ok(None);
            }
            let woken = tokio::select! {
                done = &mut work => return Ok(Some(done)),
                Some(event) = self.children.events.recv(), if takes_events => Woken::Child(event),
                _ = self.terminate.recv() => Woken::Stop,
                _ = self.interrupt.recv() => Woken::Stop,
                () = until(self.leaves_by) => Woken::Late,
            };
            match woken {
                Woken::Child(WorkerEvent::Exited(worker, how, loss)) => {
                    drop(self.children.end(worker, how, loss == Loss::Killed));
                }
                Woken::Child(event @ WorkerEvent::Printed(..)) => {
                    let id = event.worker().map(|worker| self.children.id(worker)).unwrap_or_default();
                    self.printed.push_back((event, id));
                }
                Woken::Stop => self.stop()?,
                Woken::Late => return Err(self.late()),
                Woken::Child(_) | Woken::Front(_) => {}
            }
        }
    }

    /// Whether it is to end, and no worker is left.
    fn has_left(&self) -> bool {
        self.leaves_by.is_some() && self.children.is_empty()
    }

    /// Without a front for the length of the lease, workers are of no use. True if the agent is neither, because an engine has
    /// started it.
    fn is_alone_for_too_long(&self) -> bool {
        if self.alone_since.elapsed() < LEASE {
            return false;
        }
        let ends = !self.settings.engine.is_empty();
        if ends || !self.children.is_empty() {
            let what = if ends { "the agent ends" } else { "the workers are ended" };
            tracing::warn!("no server for {} s: {what}", LEASE.as_secs());
            self.children.kill_all();
        }
        ends
    }

    /// The agent is to end; a second time at once.
    fn stop(&mut self) -> Result<(), End> {
        if self.leaves_by.is_some() {
            return Err(("ended at once by a second signal".into(), 130));
        }
        tracing::info!("leaving: workers finish what they have");
        let longest = Duration::try_from_secs_f64(self.settings.drain_timeout_s).unwrap_or(Duration::MAX);
        self.leaves_by = Instant::now().checked_add(longest);
        if self.leaves_by.is_none() {
            self.leaves_by = Some(Instant::now() + Duration::from_secs(86_400 * 365));
        }
        Ok(())
    }

    fn late(&self) -> End {
        self.children.kill_all();
        let seconds = self.settings.drain_timeout_s;
        (format!("workers had not finished after drain_timeout_s = {seconds}, and were killed"), CUT)
    }
}

/// The kernel kills this process when the thread that started it ends. Its workers end with it.
fn end_with_parent() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        // Where this fails, the lease remains.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep(end.saturating_duration_since(Instant::now())).await,
        None => std::future::pending().await,
    }
}

fn random_name() -> io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}
