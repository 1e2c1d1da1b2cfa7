//! TLS of the HTTP port: the server's certificates, which are read again when they change, and the handshake.

use crate::protocols::connection::socket::Activity;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The first byte of every handshake.
const HANDSHAKE: u8 = 0x16;
/// Plain text that waits encrypted in a connection, in bytes.
const BUFFERED: usize = 64 << 10;
/// The answer to a client that speaks HTTP without TLS.
const NOT_PLAIN: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 37\r\nconnection: close\r\n\r\n\
    this port speaks TLS: call https://\r\n";

/// The certificates of this server, leaf first, and their key. New connections get those that were read last.
#[derive(Debug)]
pub(crate) struct Certificates {
    cert: PathBuf,
    key: PathBuf,
    current: RwLock<Current>,
}

#[derive(Debug)]
struct Current {
    pair: Arc<CertifiedKey>,
    stamps: Stamps,
}

/// What shows that a file has changed, of both files.
type Stamps = [Option<(SystemTime, u64, u64)>; 2];

impl Certificates {
    /// Those of `tls_cert` and `tls_key`; `None` without these options.
    pub(crate) fn load(cert: Option<&str>, key: Option<&str>) -> Result<Option<Arc<Certificates>>, String> {
        let (cert, key) = match (cert, key) {
            (Some(cert), Some(key)) => (PathBuf::from(cert), PathBuf::from(key)),
            (None, None) => return Ok(None),
            (Some(_), None) => return Err("tls_cert needs tls_key, the file with its key".into()),
            (None, Some(_)) => return Err("tls_key needs tls_cert, the file with its certificates".into()),
        };
        let current = RwLock::new(read(&cert, &key)?);
        Ok(Some(Arc::new(Certificates { cert, key, current })))
    }

    /// Reads both files. If they are of no use, what was read before stays.
    pub(crate) fn reread(&self) -> Result<String, String> {
        let new = read(&self.cert, &self.key)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(format!("the certificates in {}", self.cert.display()))
    }

    /// Reads the files again whenever they have changed. Never returns.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut failed = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let certificates = self.clone();
            // Not on a thread that serves: the files may be on a disk that does not answer.
            let looked = tokio::task::spawn_blocking(move || certificates.look()).await;
            match looked.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(None) => {}
                Ok(Some(what)) => {
                    failed = None;
                    tracing::info!("{what} have changed, and are used from now on");
                }
                Err(error) if failed.as_ref() == Some(&error) => {}
                Err(error) => {
                    tracing::warn!("{error}; the certificates stay as they were");
                    failed = Some(error);
                }
            }
        }
    }

    fn look(&self) -> Result<Option<String>, String> {
        let known = self.current.read().unwrap_or_else(PoisonError::into_inner).stamps;
        if stamps(&self.cert, &self.key) == known { Ok(None) } else { self.reread().map(Some) }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).pair.clone())
    }
}

fn stamps(cert: &Path, key: &Path) -> Stamps {
    [cert, key].map(|path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    })
}

fn read(cert: &Path, key: &Path) -> Result<Current, String> {
    // Looked at before they are read: what is written in between is found the next time.
    let stamps = stamps(cert, key);
    let wrong = |option: &str, path: &Path, error: &dyn std::fmt::Display| {
        format!("{option}: {} cannot be read as PEM: {error}", path.display())
    };
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| wrong("tls_cert", cert, &error))?;
    if chain.is_empty() {
        return Err(format!("tls_cert: {} has no certificate", cert.display()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong("tls_key", key, &error))?;
    let pair = CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            format!("tls_key: {} is not the key of the first certificate in {}", key.display(), cert.display())
        }
        error => format!("tls_cert and tls_key: {} and {}: {error}", cert.display(), key.display()),
    })?;
    Ok(Current { pair: Arc::new(pair), stamps })
}

/// Makes accepted connections TLS. Cheap to share.
#[derive(Clone)]
pub(crate) struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// TLS 1.2 and 1.3 with these certificates, for HTTP/2 and HTTP/1.1.
    pub(crate) fn new(certificates: Arc<Certificates>) -> Tls {
        let versions = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let versions = versions.with_safe_default_protocol_versions().expect("ring has both versions");
        let mut config = versions.with_no_client_auth().with_cert_resolver(certificates);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Tls(TlsAcceptor::from(Arc::new(config)))
    }

    /// The handshake. A client that speaks plain HTTP gets an answer that says so.
    pub(crate) async fn accept(&self, mut tcp: TcpStream, activity: Arc<Activity>) -> io::Result<TlsStream<Watched>> {
        let mut first = [HANDSHAKE];
        tcp.peek(&mut first).await?;
        if first != [HANDSHAKE] {
            tcp.write_all(NOT_PLAIN).await?;
            tcp.shutdown().await?;
            // Bytes that were not read would make the kernel discard the answer.
            let _ = tcp.read(&mut [0; 4096]).await?;
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut stream = self.0.accept(Watched { tcp, activity }).await?;
        stream.get_mut().1.set_buffer_limit(Some(BUFFERED));
        Ok(stream)
    }
}

/// The socket below TLS. It notes what the peer takes: plain text that TLS has taken says nothing about the peer.
#[derive(Debug)]
pub(crate) struct Watched {
    tcp: TcpStream,
    activity: Arc<Activity>,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.tcp).poll_write(cx, buf);
        self.activity.wrote(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs);
        self.activity.wrote(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
