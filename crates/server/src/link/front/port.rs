//! The TCP port at which agents and workers of other machines connect. Peers that have proven nothing get little: a place
//! among 64, 10 s, and one line of log per minute and address. A flood from some addresses costs others little: the
//! connection that gives way is drawn among those of the address that has most places.

use jitney_channel::{Acceptor, Address, Peer, Secret, Stream, Tokens};
use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

/// Most connections whose peers have proven nothing yet. A further one ends one of them.
const MOST_UNPROVEN: usize = 64;
/// Within this time a peer proves who it is, and says what it has: the handshake and its first frames.
const PROOF_TIMEOUT: Duration = Duration::from_secs(10);
/// After this a socket that cannot accept is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// Refusals of one address are logged once in this time.
const QUIET: Duration = Duration::from_secs(60);
/// Addresses whose refusals are logged apart; the rest share one line.
const MOST_ADDRESSES: usize = 256;

/// A connection whose handshake has succeeded.
#[derive(Debug)]
pub struct Arrival {
    /// The connection.
    pub stream: Stream,
    /// Who the other end is, as far as it has proven it.
    pub peer: Peer,
    /// Its address.
    pub from: SocketAddr,
    /// It is dropped as soon as the peer has proven who it is. Until then the connection may be ended in favour of another one.
    pub place: UnprovenPlace,
}

/// A place among those of peers that have proven nothing yet.
#[derive(Debug)]
pub struct UnprovenPlace(#[expect(dead_code, reason = "it counts as long as it lives")] Arc<()>);

/// A connection whose peer has proven nothing yet, as far as is known.
#[derive(Debug)]
struct Unproven {
    from: IpAddr,
    place: Weak<()>,
    task: AbortHandle,
}

impl Unproven {
    fn is_over(&self) -> bool {
        self.task.is_finished() || self.place.strong_count() == 0
    }
}

/// Which of the connections from these addresses gives way to a further one: any of the address that has most. The oldest ones
/// would be those of honest peers that are far away.
fn gives_way(addresses: &[IpAddr], random: u64) -> usize {
    let count = |address: &IpAddr| addresses.iter().filter(|other| *other == address).count();
    let most = addresses.iter().map(count).max().unwrap_or_default();
    let crowd: Vec<usize> = (0..addresses.len()).filter(|&index| count(&addresses[index]) == most).collect();
    crowd.get(random as usize % crowd.len().max(1)).copied().unwrap_or_default()
}

/// All ports of a server at which agents and workers connect.
#[derive(Debug)]
pub struct WorkerPorts {
    /// The ports.
    pub ports: Vec<Port>,
    /// What workers say instead of the secret.
    pub tokens: Arc<Tokens>,
}

impl WorkerPorts {
    /// Listens at each of these `HOST:PORT`. An error says at which one it cannot.
    pub async fn listen(places: &[impl AsRef<str>], secret: &Secret) -> Result<WorkerPorts, String> {
        let mut ports = Vec::new();
        for place in places {
            let place = place.as_ref();
            let port = Port::listen(place, secret).await;
            ports.push(port.map_err(|error| format!("cannot listen on tcp:{place}: {error}"))?);
        }
        Ok(WorkerPorts { ports, tokens: Arc::new(Tokens::new(secret)) })
    }
}

/// A socket that listens for agents and workers.
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
    acceptor: Acceptor,
}

impl Port {
    /// Listens at `HOST:PORT` for agents that have this secret, and for workers; port 0 takes a free one.
    pub async fn listen(host_and_port: &str, secret: &Secret) -> io::Result<Port> {
        Ok(Port { listener: TcpListener::bind(host_and_port).await?, acceptor: Acceptor::new(secret)? })
    }

    /// The address that a worker on this machine dials, with the front's key.
    pub fn address(&self) -> io::Result<Address> {
        let host_and_port = self.listener.local_addr()?.to_string();
        Ok(Address { host_and_port, pin: Some(self.acceptor.pin()) })
    }

    /// The address at which it listens.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts connections without end. `welcome` reads the first frames and hands the connection over to other tasks; it has 10 s,
    /// with the handshake. Until it drops `Arrival::place`, both may be dropped. Its error is the reason of a refusal.
    pub async fn serve<W, F>(self, welcome: W)
    where
        W: Fn(Arrival) -> F + Clone + Send + 'static,
        F: Future<Output = Result<(), String>> + Send,
    {
        let refusals = Arc::new(Refusals::default());
        let mut unproven: Vec<Unproven> = Vec::new();
        loop {
            let Ok((tcp, from)) = self.listener.accept().await else {
                sleep(PAUSE).await;
                continue;
            };
            unproven.retain(|one| !one.is_over());
            if unproven.len() >= MOST_UNPROVEN {
                let addresses: Vec<IpAddr> = unproven.iter().map(|one| one.from).collect();
                let one = unproven.swap_remove(gives_way(&addresses, RandomState::new().hash_one(())));
                one.task.abort();
                refusals.note(one.from, "too many connections have proven nothing; this one was closed");
            }
            let (acceptor, welcome, refusals) = (self.acceptor.clone(), welcome.clone(), refusals.clone());
            let taken = Arc::new(());
            let place = Arc::downgrade(&taken);
            let proof = async move {
                let proven = timeout(PROOF_TIMEOUT, prove(acceptor, tcp, from, UnprovenPlace(taken), welcome)).await;
                let proven = proven.unwrap_or_else(|_| Err("it did not say who it is within 10 s".to_owned()));
                proven.unwrap_or_else(|reason| refusals.note(from.ip(), &reason));
            };
            unproven.push(Unproven { from: from.ip(), place, task: tokio::spawn(proof).abort_handle() });
        }
    }
}

async fn prove<W, F>(
    acceptor: Acceptor,
    tcp: TcpStream,
    from: SocketAddr,
    place: UnprovenPlace,
    welcome: W,
) -> Result<(), String>
where
    W: Fn(Arrival) -> F,
    F: Future<Output = Result<(), String>>,
{
    let (stream, peer) = acceptor.accept(tcp).await.map_err(|error| error.to_string())?;
    welcome(Arrival { stream, peer, from, place }).await
}

/// Which addresses were refused recently, and how often.
#[derive(Debug, Default)]
struct Refusals(Mutex<HashMap<Option<IpAddr>, (Instant, u64)>>);

impl Refusals {
    fn note(&self, from: IpAddr, reason: &str) {
        match self.count(from) {
            Some(0) => {
                tracing::warn!(%from, "a connection to the worker port from {from} was refused: {reason}");
            }
            Some(more) => {
                tracing::warn!(
                    %from, more,
                    "a connection to the worker port from {from} was refused, and {more} before it: {reason}"
                );
            }
            None => {}
        }
    }

    /// `None` if this refusal is not logged; else how many were not since the last line.
    fn count(&self, from: IpAddr) -> Option<u64> {
        let now = Instant::now();
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut from = Some(from);
        if !lines.contains_key(&from) && lines.len() >= MOST_ADDRESSES {
            lines.retain(|_, (since, _)| now - *since < QUIET);
            from = from.filter(|_| lines.len() < MOST_ADDRESSES);
        }
        match lines.get_mut(&from) {
            Some((since, more)) if now - *since < QUIET => {
                *more += 1;
                None
            }
            known => {
                let more = known.map_or(0, |(_, more)| *more);
                lines.insert(from, (now, 0));
                Some(more)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitney_channel::{BlockingStream, Dialled, dial_worker};
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::mpsc;

    /// A port whose peers send a byte first, which proves who they are, and then another one.
    async fn listen() -> (Address, mpsc::UnboundedReceiver<Peer>) {
        let secret = Secret::new(&"a".repeat(32)).unwrap();
        let port = Port::listen("127.0.0.1:0", &secret).await.unwrap();
        let address = port.address().unwrap();
        let (peers, welcomed) = mpsc::unbounded_channel();
        tokio::spawn(port.serve(move |mut arrival: Arrival| {
            let peers = peers.clone();
            async move {
                arrival.stream.read_u8().await.map_err(|error| error.to_string())?;
                drop(arrival.place);
                peers.send(arrival.peer).map_err(|error| error.to_string())?;
                arrival.stream.read_u8().await.map_err(|error| error.to_string())?;
                peers.send(arrival.peer).map_err(|error| error.to_string())
            }
        }));
        (address, welcomed)
    }

    /// An honest worker, which has sent its first byte.
    fn dial(address: Address) -> tokio::task::JoinHandle<BlockingStream> {
        tokio::task::spawn_blocking(move || {
            let Dialled::Tls(mut stream) = dial_worker(&address.host_and_port, &address.pin.unwrap()).unwrap() else {
                panic!("it uses TLS")
            };
            std::io::Write::write_all(&mut stream, b"x").unwrap();
            stream
        })
    }

    async fn knock(address: &Address) -> TcpStream {
        TcpStream::connect(&address.host_and_port).await.unwrap()
    }

    #[tokio::test]
    async fn an_honest_worker_gets_in_among_a_thousand_silent_strangers() {
        let (address, mut welcomed) = listen().await;
        let mut strangers = Vec::new();
        for _ in 0..1000 {
            strangers.push(knock(&address).await);
        }
        let dialled = dial(address);
        assert_eq!(welcomed.recv().await, Some(Peer::Unproven));
        dialled.await.unwrap();
        // It gave way to others, as nearly all did: none is ended for its silence before 10 s.
        assert_eq!(strangers[0].read(&mut [0]).await.ok(), Some(0));
    }

    #[tokio::test]
    async fn a_peer_that_has_proven_who_it_is_gives_way_to_nobody() {
        let (address, mut welcomed) = listen().await;
        let honest = dial(address.clone());
        assert_eq!(welcomed.recv().await, Some(Peer::Unproven));
        let mut strangers = Vec::new();
        for _ in 0..1000 {
            strangers.push(knock(&address).await);
        }
        let mut honest = honest.await.unwrap();
        assert_eq!(strangers[0].read(&mut [0]).await.ok(), Some(0), "the others gave way");
        tokio::task::spawn_blocking(move || std::io::Write::write_all(&mut honest, b"y")).await.unwrap().unwrap();
        assert_eq!(welcomed.recv().await, Some(Peer::Unproven));
    }

    #[test]
    fn one_of_the_address_that_has_most_gives_way() {
        let addresses = [1, 2, 2, 3, 2].map(|number: u32| IpAddr::V4(Ipv4Addr::from(number)));
        assert_eq!([0, 1, 2, 3].map(|random| gives_way(&addresses, random)), [1, 2, 4, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_that_say_nothing_are_closed_after_10_s() {
        let (address, _welcomed) = listen().await;
        let mut stranger = knock(&address).await;
        stranger.write_all(b"\x16").await.unwrap();
        let start = Instant::now();
        assert_eq!(stranger.read(&mut [0]).await.ok(), Some(0));
        assert!(start.elapsed() <= PROOF_TIMEOUT + Duration::from_millis(10));
    }

    #[tokio::test(start_paused = true)]
    async fn one_line_a_minute_and_address_and_one_for_all_that_are_too_many() {
        let refusals = Refusals::default();
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from(number));
        assert_eq!(refusals.count(address(0)), Some(0));
        assert_eq!((refusals.count(address(0)), refusals.count(address(0))), (None, None));
        let lines = (0..10_000).filter(|&number| refusals.count(address(number)).is_some()).count();
        assert_eq!(lines, MOST_ADDRESSES, "255 further ones and the shared one");
        assert!(refusals.0.lock().unwrap().len() <= MOST_ADDRESSES + 1);
        tokio::time::advance(QUIET).await;
        assert_eq!(refusals.count(address(0)), Some(3));
        assert_eq!(refusals.count(address(5_000)), Some(0));
    }
}
