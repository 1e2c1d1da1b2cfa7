//! How the connections of a server's machines are protected.

use crate::error::ChannelError;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;

/// How connections are protected. The secret is needed in each case.
#[derive(Clone, Debug, Default)]
pub enum Tls {
    /// TLS with keys that come from the secret.
    #[default]
    Auto,
    /// No encryption: tokens, inputs and answers are readable on the way. Agents still prove the secret.
    Off,
    /// TLS with certificates of the operator, at both ends; agents prove the secret, too.
    Files(Arc<Files>),
}

/// A certificate, its key, and whose certificates are accepted.
pub struct Files {
    /// As it was given: `CERT,KEY` or `CERT,KEY,CA`.
    pub(crate) text: String,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// Who signs the other end's certificate; without it the other end has the very same certificate.
    pub(crate) authority: Option<Arc<RootCertStore>>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("text", &self.text).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads `auto`, `off`, `CERT,KEY` or `CERT,KEY,CA`, with the files that it names (PEM).
    pub fn read(text: &str) -> Result<Tls, ChannelError> {
        match text.split(',').collect::<Vec<_>>()[..] {
            ["auto"] => Ok(Tls::Auto),
            ["off"] => Ok(Tls::Off),
            [cert, key] => Files::read(text, cert, key, None),
            [cert, key, authority] => Files::read(text, cert, key, Some(authority)),
            _ => Err(ChannelError::Secret(format!("{text:?} is not auto, off, CERT,KEY or CERT,KEY,CA"))),
        }
    }
}

impl Files {
    fn read(text: &str, cert: &str, key: &str, authority: Option<&str>) -> Result<Tls, ChannelError> {
        let chain = certificates(cert)?;
        let read = PrivateKeyDer::from_pem_file(Path::new(key));
        let key = read.map_err(|error| ChannelError::Secret(format!("the key file {key} cannot be read: {error}")))?;
        let authority = authority.map(|path| {
            let mut store = RootCertStore::empty();
            let (good, _) = store.add_parsable_certificates(certificates(path)?);
            let wrong = || ChannelError::Secret(format!("{path} has no certificate of an authority"));
            if good == 0 { Err(wrong()) } else { Ok(Arc::new(store)) }
        });
        let authority = authority.transpose()?;
        Ok(Tls::Files(Arc::new(Files { text: text.to_owned(), chain, key, authority })))
    }
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, ChannelError> {
    let failed = |error| ChannelError::Secret(format!("the certificate file {path} cannot be read: {error}"));
    let read = CertificateDer::pem_file_iter(Path::new(path)).map_err(|error| failed(error.to_string()))?;
    let chain = read.collect::<Result<Vec<_>, _>>().map_err(|error| failed(error.to_string()))?;
    if chain.is_empty() { Err(failed("it has no certificate".into())) } else { Ok(chain) }
}
