//! The keys of the front and of agents: Ed25519 key pairs, each computed from the secret.

use crate::error::ChannelError;
use crate::proof::secret::Secret;
use crate::proof::tls::Tls;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What stands before the 32 bytes of a private key in its PKCS #8 form (RFC 8410).
const PKCS8: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
/// What stands before the 32 bytes of a public key in its `SubjectPublicKeyInfo` form (RFC 8410).
const SPKI: [u8; 12] = *b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// Whose key it is. The two ends have different ones, so the proof of one end cannot be sent back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Front,
    Agent,
}

/// How a worker knows its front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// By this public key; as text 64 hexadecimal digits.
    Key([u8; 32]),
    /// Not at all: the connection is not encrypted; as text `plain`.
    Plain,
    /// By certificates of the operator, in files on the worker's machine; as text `files:CERT,KEY[,CA]`.
    Files(String),
}

impl Pin {
    /// What a worker gets that is started by an owner of this secret.
    pub fn of_front(secret: &Secret) -> Pin {
        match &secret.tls {
            Tls::Auto => Pin::of(secret, Role::Front),
            Tls::Off => Pin::Plain,
            Tls::Files(files) => Pin::Files(files.text.clone()),
        }
    }

    pub(crate) fn of(secret: &Secret, role: Role) -> Pin {
        let key = certified(secret, role);
        let spki = key.cert[0].as_ref();
        Pin::Key(spki[SPKI.len()..].try_into().expect("an Ed25519 key has 32 bytes"))
    }

    /// Whether this is the key, in the form in which TLS sends it.
    pub(crate) fn is(&self, spki: &[u8]) -> bool {
        matches!(self, Pin::Key(key) if spki.strip_prefix(&SPKI) == Some(key))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pin::Key(key) => key.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Pin::Plain => f.write_str("plain"),
            Pin::Files(text) => write!(f, "files:{text}"),
        }
    }
}

impl FromStr for Pin {
    type Err = ChannelError;

    fn from_str(text: &str) -> Result<Pin, ChannelError> {
        if let Some(files) = text.strip_prefix("files:") {
            return Ok(Pin::Files(files.to_owned()));
        }
        if text == "plain" {
            return Ok(Pin::Plain);
        }
        let error = || ChannelError::Address("a public key has 64 hexadecimal digits".into());
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(error());
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| error())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| error())?;
        }
        Ok(Pin::Key(bytes))
    }
}

/// The key pair of a role, as a raw public key (RFC 7250): there is no certificate that could expire.
pub(crate) fn certified(secret: &Secret, role: Role) -> Arc<CertifiedKey> {
    let seed = secret.derive(match role {
        Role::Front => "jitney front",
        Role::Agent => "jitney agent",
    });
    let pkcs8 = PrivatePkcs8KeyDer::from([&PKCS8[..], &seed[..]].concat());
    let key = any_eddsa_type(&pkcs8).expect("every 32 bytes are an Ed25519 key");
    let spki = key.public_key().expect("an Ed25519 key has a public key").to_vec();
    Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki)], key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_different_keys_and_a_pin_is_read_as_it_was_written() {
        let secret = Secret::new(&"a".repeat(32)).unwrap();
        let (front, agent) = (Pin::of_front(&secret), Pin::of(&secret, Role::Agent));
        assert_ne!(front, agent);
        assert_eq!(front.to_string().parse::<Pin>().unwrap(), front);
        assert!(front.is(certified(&secret, Role::Front).cert[0].as_ref()));
        assert!(!front.is(certified(&secret, Role::Agent).cert[0].as_ref()) && !front.is(b""));
        for wrong in ["", "0", &"g".repeat(64), &"+1".repeat(32), &"ä".repeat(32), &"a".repeat(65)] {
            assert!(wrong.parse::<Pin>().is_err(), "{wrong}");
        }
    }
}
