//! Binds the addresses where the server listens, and accepts connections.

use crate::engine::server_state::ServerState;
use crate::protocols::connection::driver;
use crate::protocols::connection::driver::Closing;
use crate::protocols::connection::limits::{ACCEPT_PAUSE, BACKLOG, UNSENT_BYTES, WARN_EVERY};
use crate::protocols::connection::services::Services;
use crate::protocols::connection::socket::Stream;
use crate::protocols::connection::tls::Tls;
use jitney_core::tables::metrics;
use prometheus::IntGauge;
use socket2::SockRef;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// Bound, not yet accepting.
#[derive(Debug)]
pub struct Listener {
    socket: SocketKind,
    address: String,
    /// The host, as it was asked for, of an address that only this machine can reach.
    own_host: Option<Arc<str>>,
    /// Of HTTPS.
    tls: Option<Tls>,
}

#[derive(Debug)]
enum SocketKind {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Binds all of them or none. An address is `tcp:HOST:PORT` (port 0: any free one) or `unix:PATH`.
pub async fn bind(addresses: &[String]) -> Result<Vec<Listener>, String> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        listeners.push(match split(address)? {
            Address::Tcp(host, port) => bind_tcp(address, host, port).await?,
            Address::Unix(path) => bind_unix(address, path).await?,
        });
    }
    Ok(listeners)
}

enum Address<'a> {
    Tcp(&'a str, u16),
    Unix(&'a Path),
}

fn split(address: &str) -> Result<Address<'_>, String> {
    let wrong = |what: &str| {
        format!("listen: `{address}` {what}; write tcp:HOST:PORT (such as tcp:127.0.0.1:8000) or unix:PATH")
    };
    match address.split_once(':') {
        Some(("unix", "")) => Err(wrong("names no path")),
        Some(("unix", path)) => Ok(Address::Unix(Path::new(path))),
        Some(("tcp", rest)) => {
            let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("names no port"))?;
            let port = port.parse().map_err(|_| wrong("has no port between 0 and 65535"))?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            if host.is_empty() { Err(wrong("names no host")) } else { Ok(Address::Tcp(host, port)) }
        }
        _ => Err(wrong("is not an address")),
    }
}

/// Whether only this machine can reach the address. A name counts only if it is `localhost`: others may change their mind.
pub fn is_loopback(address: &str) -> bool {
    match split(address) {
        Ok(Address::Unix(_)) => true,
        Ok(Address::Tcp(host, _)) => host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
        Err(_) => false,
    }
}

/// Refuses addresses that others can reach, unless that was asked for.
pub fn check_reach(addresses: &[String], allow_unauthenticated: bool) -> Result<(), String> {
    for address in addresses {
        split(address)?;
        if !allow_unauthenticated && !is_loopback(address) {
            return Err(format!(
                "listen: `{address}` can be reached from other machines, and nobody who calls needs a key; \
                 set JITNEY_API_KEYS or --api-keys-file, listen on 127.0.0.1, [::1], localhost or unix:PATH, \
                 or pass --allow-unauthenticated if that is wanted"
            ));
        }
    }
    Ok(())
}

async fn bind_tcp(address: &str, host: &str, port: u16) -> Result<Listener, String> {
    let found = tokio::net::lookup_host((host, port)).await;
    let candidates: Vec<SocketAddr> = found
        .map_err(|error| {
            format!("listen: the host of `{address}` cannot be resolved ({error}); write an IP address of this machine")
        })?
        .collect();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for candidate in candidates {
        match listen_tcp(candidate) {
            Ok(listener) => {
                let local = listener.local_addr().map_or_else(|_| address.to_owned(), |local| format!("tcp:{local}"));
                let own_host = is_loopback(address).then(|| host.into());
                return Ok(Listener { socket: SocketKind::Tcp(listener), address: local, own_host, tls: None });
            }
            Err(error) => last = error,
        }
    }
    let advice = match last.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there: stop it or choose another port (0 takes any free one)"
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose a higher one",
        _ => "choose an address of this machine",
    };
    Err(format!("listen: `{address}` cannot be bound ({last}); {advice}"))
}

fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for the last connections of its predecessor to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    // Accepted sockets inherit it. A kernel that does not know it can serve all the same.
    let _ = SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES);
    socket.listen(BACKLOG)
}

async fn bind_unix(address: &str, path: &Path) -> Result<Listener, String> {
    let wrong = |error: io::Error, what: &str| {
        format!("listen: `{address}` {what} ({error}); choose another path or remove it")
    };
    if let Ok(metadata) = fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(format!("listen: `{address}` exists and is not a socket; choose another path or remove it"));
        }
        if tokio::net::UnixStream::connect(path).await.is_ok() {
            return Err(format!("listen: another process listens on `{address}`; stop it or choose another path"));
        }
        fs::remove_file(path).map_err(|error| wrong(error, "is left over and cannot be removed"))?;
    }
    let socket = UnixSocket::new_stream().map_err(|error| wrong(error, "cannot be made"))?;
    socket.bind(path).map_err(|error| wrong(error, "cannot be bound"))?;
    // Set before the socket listens, so no other user can have connected.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .map_err(|error| wrong(error, "cannot be made private"))?;
    let listener = socket.listen(BACKLOG).map_err(|error| wrong(error, "cannot be listened on"))?;
    let socket = SocketKind::Unix(listener, path.to_owned());
    Ok(Listener { socket, address: address.to_owned(), own_host: None, tls: None })
}

impl Listener {
    /// The address that clients use, with the real port.
    pub fn local_address(&self) -> String {
        self.address.clone()
    }

    /// Speaks TLS from now on, if it is not a socket in the file system.
    pub(crate) fn protect(&mut self, tls: &Tls) {
        if !self.is_unix() {
            self.tls = Some(tls.clone());
        }
    }

    /// Whether it speaks TLS.
    pub(crate) fn is_protected(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether it is a socket in the file system.
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.socket, SocketKind::Unix(..))
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        match &self.socket {
            SocketKind::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // An answer is written in one piece; holding it back for more would only delay it.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            SocketKind::Unix(listener, _) => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let SocketKind::Unix(_, path) = &self.socket {
            let _ = fs::remove_file(path);
        }
    }
}

/// Counts one open connection while it lives, however it ends.
struct Open {
    gauge: IntGauge,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

/// Accepts connections until `stop_accepting`. Then it closes idle connections immediately, and each other connection
/// after the answer to its request in flight. Returns when all are closed. If it is dropped before, the rest ends with
/// the runtime.
pub(crate) async fn serve(
    listeners: Vec<Listener>,
    state: Arc<ServerState>,
    services: impl Services,
    mut stop_accepting: watch::Receiver<bool>,
) {
    let most = state.options.max_connections.max(1);
    let places = Arc::new(Semaphore::new(most as usize));
    let closing = Arc::new(Closing { flag: AtomicBool::new(false), signal: watch::Sender::new(false) });
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(admit(listener, state.clone(), services.clone(), places.clone(), closing.clone()));
    }
    // An error means that the sender was dropped. Its owner has ended, so this ends too.
    let _ = stop_accepting.wait_for(|stop| *stop).await;
    accepting.shutdown().await;
    closing.flag.store(true, Ordering::Release);
    closing.signal.send_replace(true);
    let _ = places.acquire_many(most).await;
}

async fn admit<S: Services>(
    listener: Listener,
    state: Arc<ServerState>,
    services: S,
    places: Arc<Semaphore>,
    closing: Arc<Closing>,
) {
    let gauge = state.telemetry.gauge(metrics::CONNECTIONS, &[]);
    let own_host = listener.own_host.clone().filter(|_| !state.options.allow_unauthenticated);
    let mut warned = None;
    loop {
        let Ok(permit) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok(stream) => {
                gauge.inc();
                let open = Open { gauge: gauge.clone(), _permit: permit };
                let (state, services) = (state.clone(), services.clone());
                let (own_host, closing, tls) = (own_host.clone(), closing.clone(), listener.tls.clone());
                // A panic in here ends this task, and with it this connection only.
                tokio::spawn(async move {
                    let _open = open;
                    driver::run(stream, tls, state, services, own_host, closing).await;
                });
            }
            Err(error) if is_peers(&error) => {}
            Err(error) => {
                if warned.is_none_or(|at: Instant| at.elapsed() >= WARN_EVERY) {
                    warned = Some(Instant::now());
                    tracing::warn!(address = %listener.address, %error, "cannot accept connections; trying again");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Failures of one connection that came and went before we could take it.
fn is_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_needs_no_word() {
        for address in ["tcp:127.0.0.1:0", "tcp:localhost:80", "tcp:[::1]:80", "tcp:127.8.9.1:1", "unix:/tmp/x"] {
            assert!(is_loopback(address), "{address}");
        }
        for address in ["tcp:0.0.0.0:0", "tcp:[::]:80", "tcp:example.org:80", "tcp:10.0.0.1:80", "nonsense"] {
            assert!(!is_loopback(address), "{address}");
            assert!(check_reach(&[address.into()], false).is_err());
        }
        assert!(check_reach(&["tcp:0.0.0.0:0".into()], true).is_ok());
    }

    #[test]
    fn a_wrong_address_is_named() {
        for address in ["", "8000", "tcp:", "tcp:host", "tcp::80", "tcp:h:99999", "unix:", "http:h:80"] {
            let error = check_reach(&[address.into()], true).unwrap_err();
            assert!(error.contains(&format!("`{address}`")) && error.contains("tcp:HOST:PORT"), "{error}");
        }
    }
}
