//! Why there is no connection.

use std::io;

/// Why there is no connection, or no secret.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The secret file is missing or not a secret. A retry does not help.
    #[error("{0}")]
    Secret(String),
    /// An address that is not one. A retry does not help.
    #[error("{0}")]
    Address(String),
    /// The other end has another key, so its secret is another one. A retry does not help.
    #[error("the other end has another secret; give both ends a copy of the same secret file")]
    OtherSecret,
    /// The other end is something else than jitney, or another version of it.
    #[error("the other end does not speak as jitney does: {0}")]
    Stranger(String),
    /// The other end did not answer in time.
    #[error("the other end did not answer within {0} s")]
    Silent(u64),
    /// The network failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ChannelError {
    /// Whether another try may succeed without a change by the operator.
    pub fn is_passing(&self) -> bool {
        matches!(self, ChannelError::Silent(_) | ChannelError::Io(_))
    }

    /// Whether something else may listen at this address.
    pub fn is_of_another_protocol(&self) -> bool {
        matches!(self, ChannelError::Stranger(_))
    }

    /// What a failed handshake means.
    pub(crate) fn of_handshake(error: io::Error) -> ChannelError {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let text = "the other end closed the connection during the handshake; it may have no TLS";
            return ChannelError::Io(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).cloned();
        tls.map_or(ChannelError::Io(error), ChannelError::of_tls)
    }

    pub(crate) fn of_tls(error: rustls::Error) -> ChannelError {
        use rustls::{AlertDescription, CertificateError};
        match error {
            rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
            | rustls::Error::AlertReceived(AlertDescription::AccessDenied) => ChannelError::OtherSecret,
            rustls::Error::AlertReceived(AlertDescription::HandshakeFailure) => {
                ChannelError::Stranger("both need the same kind of TLS: keys of the secret, or certificates".into())
            }
            other => ChannelError::Stranger(other.to_string()),
        }
    }
}

impl From<ChannelError> for io::Error {
    fn from(error: ChannelError) -> io::Error {
        match error {
            ChannelError::Io(error) => error,
            ChannelError::Silent(_) => io::Error::new(io::ErrorKind::TimedOut, error.to_string()),
            ChannelError::OtherSecret => io::Error::new(io::ErrorKind::PermissionDenied, error.to_string()),
            other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
        }
    }
}
