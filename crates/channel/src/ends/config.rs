//! TLS 1.3 as all connections between machines use it: raw public keys that are known before, no resumption, no early data.

use crate::error::ChannelError;
use crate::proof::keys::{Pin, Role, certified};
use crate::proof::secret::Secret;
use crate::proof::tls::{Files, Tls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption, WebPkiServerVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, WebPkiClientVerifier};
use rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    ServerConfig, SignatureScheme, version::TLS13,
};
use std::sync::Arc;

/// The names by which who dials says what it is (ALPN). A peer that says it is an agent must prove the agents' key.
pub(crate) const AGENT: &[u8] = b"jitney-agent/1";
pub(crate) const WORKER: &[u8] = b"jitney-worker/1";

fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    // Its order has 256 bits first. Nothing here needs them, and they cost 90 microseconds for 1 MB, and not 76.
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

/// Bytes that wait encrypted in one connection at most, beyond those in the socket.
pub(crate) const BUFFERED: usize = 256 << 10;

/// The name of the front, which only an authority's certificate names.
pub(crate) fn name(host_and_port: &str) -> Result<ServerName<'static>, ChannelError> {
    let host = host_and_port.rsplit_once(':').map_or(host_and_port, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    ServerName::try_from(host).map_err(|_| ChannelError::Address(format!("{host_and_port} names no host")))
}

/// The front, for a peer that says that it is an agent, or a worker.
pub(crate) fn front(secret: &Secret, dials: &'static [u8]) -> Result<Arc<ServerConfig>, ChannelError> {
    let versions = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let versions = versions.expect("ring has TLS 1.3");
    let mut config = match &secret.tls {
        Tls::Files(files) => {
            let clients: Arc<dyn ClientCertVerifier> = match &files.authority {
                Some(roots) => WebPkiClientVerifier::builder_with_provider(roots.clone(), provider())
                    .build()
                    .map_err(|error| ChannelError::Secret(format!("{}: {error}", files.text)))?,
                None => Arc::new(Known::certificate(files)),
            };
            let configured = versions.with_client_cert_verifier(clients);
            configured
                .with_single_cert(files.chain.clone(), files.key.clone_key())
                .map_err(|error| unfit(files, &error))?
        }
        Tls::Auto | Tls::Off => {
            let clients = if dials == AGENT {
                versions.with_client_cert_verifier(Arc::new(Known::key(Pin::of(secret, Role::Agent))))
            } else {
                versions.with_no_client_auth()
            };
            let keys = AlwaysResolvesServerRawPublicKeys::new(certified(secret, Role::Front));
            clients.with_cert_resolver(Arc::new(keys))
        }
    };
    config.alpn_protocols = vec![dials.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// An agent: it proves the agents' key, or its certificate.
pub(crate) fn agent(secret: &Secret) -> Result<Arc<ClientConfig>, ChannelError> {
    if let Tls::Files(files) = &secret.tls {
        return certified_dialer(files, AGENT);
    }
    let keys = AlwaysResolvesClientRawPublicKeys::new(certified(secret, Role::Agent));
    let front = Known::key(Pin::of(secret, Role::Front));
    let config = dialer(Arc::new(front)).with_client_cert_resolver(Arc::new(keys));
    Ok(Arc::new(finish(config, AGENT)))
}

/// A worker: it proves nothing, or its certificate; its token says who it is, later.
pub(crate) fn worker(front: &Pin) -> Result<Arc<ClientConfig>, ChannelError> {
    if let Pin::Files(text) = front
        && let Tls::Files(files) = Tls::read(text)?
    {
        return certified_dialer(&files, WORKER);
    }
    Ok(Arc::new(finish(dialer(Arc::new(Known::key(front.clone()))).with_no_client_auth(), WORKER)))
}

fn certified_dialer(files: &Files, role: &[u8]) -> Result<Arc<ClientConfig>, ChannelError> {
    let front: Arc<dyn ServerCertVerifier> = match &files.authority {
        Some(roots) => WebPkiServerVerifier::builder_with_provider(roots.clone(), provider())
            .build()
            .map_err(|error| ChannelError::Secret(format!("{}: {error}", files.text)))?,
        None => Arc::new(Known::certificate(files)),
    };
    let config = dialer(front).with_client_auth_cert(files.chain.clone(), files.key.clone_key());
    Ok(Arc::new(finish(config.map_err(|error| unfit(files, &error))?, role)))
}

fn unfit(files: &Files, error: &Error) -> ChannelError {
    ChannelError::Secret(format!("the key and the certificate of {} do not belong together: {error}", files.text))
}

fn dialer(front: Arc<dyn ServerCertVerifier>) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    let versions = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    versions.expect("ring has TLS 1.3").dangerous().with_custom_certificate_verifier(front)
}

fn finish(mut config: ClientConfig, role: &[u8]) -> ClientConfig {
    config.alpn_protocols = vec![role.to_vec()];
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    config
}

/// Accepts one public key, or one certificate.
#[derive(Debug)]
struct Known {
    key: Pin,
    certificate: Option<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Known {
    fn key(key: Pin) -> Known {
        Known { key, certificate: None, algorithms: provider().signature_verification_algorithms }
    }

    fn certificate(files: &Files) -> Known {
        Known { certificate: files.chain.first().cloned(), ..Known::key(Pin::Plain) }
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        if self.certificate.is_some() { self.algorithms.supported_schemes() } else { vec![SignatureScheme::ED25519] }
    }

    fn check(&self, spki: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        let is_known = match &self.certificate {
            Some(certificate) => certificate == spki,
            None => self.key.is(spki) && others.is_empty(),
        };
        if is_known {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.certificate.is_some() {
            return verify_tls13_signature(message, spki, signed, &self.algorithms);
        }
        let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, signed, &self.algorithms)
    }
}

const NO_TLS12: Error = Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered);

/// What both verifiers of rustls have in common, under the same names.
macro_rules! as_known {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _spki: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(NO_TLS12)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            spki: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.signature(message, spki, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.schemes()
        }

        fn requires_raw_public_keys(&self) -> bool {
            self.certificate.is_none()
        }
    };
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        spki: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(spki, others).map(|()| ServerCertVerified::assertion())
    }

    as_known!();
}

impl ClientCertVerifier for Known {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        spki: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(spki, others).map(|()| ClientCertVerified::assertion())
    }

    as_known!();
}
