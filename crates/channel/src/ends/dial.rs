//! The agent's end.

use crate::ends::acceptor::HANDSHAKE_TIMEOUT;
use crate::ends::challenge::{PLAIN_AGENT, prove};
use crate::ends::config::{self, BUFFERED};
use crate::ends::socket::{share, tune};
use crate::ends::stream::{Stream, buffered};
use crate::error::ChannelError;
use crate::proof::address::Address;
use crate::proof::secret::Secret;
use crate::proof::tls::Tls;
use std::io;
use std::net::SocketAddr;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};
use tokio_rustls::{TlsConnector, TlsStream};

/// Connects an agent to its front within 10 s. Both have proven the secret then.
///
/// The front may still close the connection right after: TLS 1.3 checks the agent's key last. So an agent has joined only
/// when the front has answered.
pub async fn dial_agent(address: &Address, secret: &Secret) -> Result<Stream, ChannelError> {
    let silent = |_| ChannelError::Silent(HANDSHAKE_TIMEOUT.as_secs());
    timeout(HANDSHAKE_TIMEOUT, connect(address, secret)).await.map_err(silent)?
}

/// Connects to the first address of a host that answers.
async fn connect_one(host_and_port: &str) -> io::Result<TcpStream> {
    let until = Instant::now() + HANDSHAKE_TIMEOUT;
    let addresses: Vec<SocketAddr> = lookup_host(host_and_port).await?.collect();
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host_and_port} has no address"));
    for (address, others) in addresses.iter().zip((0..addresses.len()).rev()) {
        let time = share(until.saturating_duration_since(Instant::now()), others);
        match timeout(time, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

async fn connect(address: &Address, secret: &Secret) -> Result<Stream, ChannelError> {
    let tcp = connect_one(&address.host_and_port).await?;
    tune(&tcp)?;
    let mut socket = buffered(tcp);
    if let Tls::Off = secret.tls {
        socket.write_all(PLAIN_AGENT).await?;
        prove(&mut socket, secret).await?;
        return Ok(Stream::plain(socket));
    }
    let name = config::name(&address.host_and_port)?;
    let connected = TlsConnector::from(config::agent(secret)?).connect(name, socket).await;
    let mut stream = connected.map_err(ChannelError::of_handshake)?;
    stream.get_mut().1.set_buffer_limit(Some(BUFFERED));
    if let Tls::Files(_) = secret.tls {
        prove(&mut stream, secret).await?;
    }
    Ok(Stream::tls(TlsStream::Client(stream)))
}
