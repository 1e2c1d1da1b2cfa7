//! The front's end: who dials.

use crate::ends::challenge::{PLAIN_AGENT, PLAIN_WORKER, demand};
use crate::ends::config::{self, AGENT, BUFFERED, WORKER};
use crate::ends::socket::tune;
use crate::ends::stream::{Stream, buffered};
use crate::error::ChannelError;
use crate::proof::keys::Pin;
use crate::proof::secret::Secret;
use crate::proof::tls::Tls;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::ServerConfig;

/// A handshake must end within this time.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Who the other end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// It has proven that it has the secret.
    Agent,
    /// It has proven nothing: every program that reaches the port gets as far as this. Such a program may have checked the front's key.
    Unproven,
}

/// Makes accepted TCP connections safe. Cheap to share.
#[derive(Clone, Debug)]
pub struct Acceptor {
    secret: Secret,
    /// Without TLS there are none.
    agents: Arc<ServerConfig>,
    workers: Arc<ServerConfig>,
}

impl Acceptor {
    /// An acceptor for agents that have this secret, and for workers. An error says that certificates are of no use.
    pub fn new(secret: &Secret) -> Result<Acceptor, ChannelError> {
        let (agents, workers) = (config::front(secret, AGENT)?, config::front(secret, WORKER)?);
        Ok(Acceptor { secret: secret.clone(), agents, workers })
    }

    /// How workers of this machine know the front.
    pub fn pin(&self) -> Pin {
        Pin::of_front(&self.secret)
    }

    /// Ends the handshake of a connection within 10 s, and says who the other end is. Its memory is bounded: TLS takes at
    /// most 64 KiB of a handshake message.
    pub async fn accept(&self, tcp: TcpStream) -> Result<(Stream, Peer), ChannelError> {
        tune(&tcp)?;
        let silent = |_| ChannelError::Silent(HANDSHAKE_TIMEOUT.as_secs());
        timeout(HANDSHAKE_TIMEOUT, self.handshake(tcp)).await.map_err(silent)?
    }

    async fn handshake(&self, tcp: TcpStream) -> Result<(Stream, Peer), ChannelError> {
        if let Tls::Off = self.secret.tls {
            return self.plain(tcp).await;
        }
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), buffered(tcp)).await;
        let start = start.map_err(ChannelError::of_handshake)?;
        let names = start.client_hello().alpn().map_or_else(Vec::new, |names| names.map(<[u8]>::to_vec).collect());
        let (peer, config) = match names.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] {
            [AGENT] => (Peer::Agent, &self.agents),
            [WORKER] => (Peer::Unproven, &self.workers),
            _ => return Err(ChannelError::Stranger("it is neither an agent nor a worker of this version".into())),
        };
        let mut stream = start.into_stream(config.clone()).await.map_err(ChannelError::of_handshake)?;
        stream.get_mut().1.set_buffer_limit(Some(BUFFERED));
        if let (Peer::Agent, Tls::Files(_)) = (peer, &self.secret.tls) {
            demand(&mut stream, &self.secret).await?;
        }
        Ok((Stream::tls(TlsStream::Server(stream)), peer))
    }

    async fn plain(&self, tcp: TcpStream) -> Result<(Stream, Peer), ChannelError> {
        let mut socket = buffered(tcp);
        let mut first = [0; PLAIN_AGENT.len()];
        socket.read_exact(&mut first).await?;
        let peer = match &first {
            PLAIN_AGENT => Peer::Agent,
            PLAIN_WORKER => Peer::Unproven,
            [0x16, 3, ..] => {
                return Err(ChannelError::Stranger("it uses TLS, and this end has it switched off".into()));
            }
            _ => return Err(ChannelError::Stranger("it is neither an agent nor a worker of this version".into())),
        };
        if peer == Peer::Agent {
            demand(&mut socket, &self.secret).await?;
        }
        Ok((Stream::plain(socket), peer))
    }
}
