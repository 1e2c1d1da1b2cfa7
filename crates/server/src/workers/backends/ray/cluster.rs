//! All that a front has of a Ray cluster: its provider, the places there, and the port at which their agents join.

use crate::link::front::port::WorkerPorts;
use crate::workers::backends::ray::messages::{Start, Want};
use crate::workers::backends::ray::places::Places;
use crate::workers::backends::ray::provider::{Provider, ProviderEvent};
use jitney_channel::Secret;
use jitney_core::config::options::ServerOptions;
use tokio::sync::mpsc;

/// What places wait for at first.
pub(crate) const CONNECTING: &str = "the Ray cluster is not connected yet";
/// What places wait for after the provider has failed for another reason than an address where nothing answers.
const NOT_CONNECTED: &str = "the Ray cluster cannot be connected; see the log";

/// The front's side of a Ray cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) places: Places,
    pub(crate) provider: Provider,
    /// The port, once it is open.
    pub(crate) opened: mpsc::UnboundedReceiver<Result<WorkerPorts, String>>,
    opens: mpsc::UnboundedSender<Result<WorkerPorts, String>>,
    secret: Secret,
    listen: Option<String>,
    /// The address of this machine in the cluster; `None` until the provider is connected.
    host: Option<String>,
    /// Where agents join; empty until the port is open.
    pub(crate) connect: String,
    /// Why the cluster cannot be reached now; `None` if it can.
    unreachable: Option<String>,
    /// This provider has said so: its end says nothing new then.
    has_said_so: bool,
    /// Why the provider has ended, until it is connected again.
    ended: Option<String>,
}

/// What the cluster brings.
#[derive(Debug)]
pub(crate) enum Arrived {
    Provider(ProviderEvent),
    Port(Result<Box<WorkerPorts>, String>),
}

/// The next thing that the cluster brings; never, without one.
pub(crate) async fn arrived(cluster: &mut Option<Cluster>) -> Arrived {
    let Some(cluster) = cluster else { return std::future::pending().await };
    tokio::select! {
        Some(event) = cluster.provider.events.recv() => Arrived::Provider(event),
        Some(port) = cluster.opened.recv() => Arrived::Port(port.map(Box::new)),
        else => std::future::pending().await,
    }
}

impl Cluster {
    /// Starts the provider, if the options name a cluster. `random` is a name, another one with each call.
    pub(crate) fn start(
        options: &ServerOptions,
        python: &str,
        random: impl Fn() -> std::io::Result<String>,
    ) -> std::io::Result<Option<Cluster>> {
        let Some(address) = options.ray_address.clone() else { return Ok(None) };
        // The agents' secret is of this run and for this cluster only: a user of the cluster who reads it cannot join other fronts.
        let secret = random()? + &random()?;
        let mut front = random()?;
        front.truncate(8);
        let folder = std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned();
        let namespace = options.ray_namespace.clone();
        tracing::info!("connecting to the Ray cluster at {address}");
        let start = Start { address, namespace, front: front.clone(), secret: secret.clone(), folder };
        let (opens, opened) = mpsc::unbounded_channel();
        Ok(Some(Cluster {
            places: Places::new(front),
            provider: Provider::start(python.to_owned(), start),
            opened,
            opens,
            secret: Secret::new(&secret).map_err(std::io::Error::other)?,
            listen: options.ray_listen.clone(),
            host: None,
            connect: String::new(),
            unreachable: None,
            has_said_so: false,
            ended: None,
        }))
    }

    /// The provider is connected: the port is opened at this machine's address in the cluster, unless it is open already.
    pub(crate) fn connected(&mut self, host: &str) {
        (self.unreachable, self.has_said_so, self.ended) = (None, false, None);
        if self.host.replace(host.to_owned()).is_some() {
            return;
        }
        let place =
            self.listen.as_deref().map_or_else(|| bracketed(host) + ":0", |listen| listen.replacen("tcp:", "", 1));
        let (opens, secret) = (self.opens.clone(), self.secret.clone());
        tokio::spawn(async move {
            let ports = WorkerPorts::listen(&[place], &secret).await;
            let _ = opens.send(ports.map_err(|error| format!("for replicas in the Ray cluster: {error}")));
        });
    }

    /// The cluster cannot be reached; true if that is news.
    pub(crate) fn unreachable(&mut self, why: String) -> bool {
        let is_news = self.unreachable.as_ref() != Some(&why);
        (self.unreachable, self.has_said_so) = (Some(why), true);
        is_news
    }

    /// The provider has ended; true if that is news, and nothing else has said why.
    pub(crate) fn ended(&mut self, why: &str) -> bool {
        if std::mem::take(&mut self.has_said_so) {
            return false;
        }
        self.unreachable = None;
        let is_news = self.ended.as_deref() != Some(why);
        self.ended = Some(why.to_owned());
        is_news
    }

    /// Why no agent can join from the cluster; `None` if one can.
    pub(crate) fn obstacle(&self) -> Option<&str> {
        match &self.unreachable {
            Some(why) => Some(why),
            None if self.connect.is_empty() => Some(if self.ended.is_some() { NOT_CONNECTED } else { CONNECTING }),
            None => None,
        }
    }

    /// Agents join at this port. If it listens everywhere, they reach it at the address of this machine in the cluster.
    pub(crate) fn listens_at(&mut self, address: std::net::SocketAddr) {
        let host = self.host.clone().filter(|_| address.ip().is_unspecified());
        let host = host.unwrap_or_else(|| address.ip().to_string());
        self.connect = format!("tcp:{}:{}", bracketed(&host), address.port());
    }

    /// Says to the provider which places there should be; none before agents can join.
    pub(crate) fn tell(&self) {
        if !self.connect.is_empty() {
            let (connect, places, lost) = (self.connect.clone(), self.places.wanted(), self.places.lost());
            self.provider.want(Want { connect, places, lost });
        }
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
