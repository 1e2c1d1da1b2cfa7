//! The secret that the front and its agents share, and what is derived from it.

use crate::error::ChannelError;
use crate::proof::tls::Tls;
use ring::hkdf;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Fewest characters of a secret.
const SHORTEST: usize = 32;
/// Most bytes of a secret file. A path that names something else, such as a log, is refused.
const LONGEST: u64 = 4096;

/// What the front and its agents know, and no other. It is never sent, and it is not shown by `Debug`.
#[derive(Clone)]
pub struct Secret {
    derived: hkdf::Prk,
    pub(crate) tls: Tls,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads a secret file: at least 32 characters, without the white space around them. A file that other users may read
    /// is accepted with a warning.
    pub fn read(path: &Path) -> Result<Secret, ChannelError> {
        let name = path.display();
        let failed = |error| ChannelError::Secret(format!("the secret file {name} cannot be read: {error}"));
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        let mut bytes = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LONGEST {
            return Err(ChannelError::Secret(format!(
                "{name} has more than {LONGEST} bytes; a secret file has one line"
            )));
        }
        if mode & 0o077 != 0 {
            tracing::warn!("other users may open the secret file {name} (mode {mode:04o}); run `chmod 600 {name}`");
        }
        let text = String::from_utf8_lossy(&bytes);
        Secret::new(text.trim()).map_err(|error| ChannelError::Secret(format!("the secret file {name}: {error}")))
    }

    /// A secret from its text.
    pub fn new(text: &str) -> Result<Secret, ChannelError> {
        let count = text.chars().count();
        if count < SHORTEST {
            let error = format!(
                "a secret has at least {SHORTEST} characters, this one has {count}; `jitney secret PATH` makes one"
            );
            return Err(ChannelError::Secret(error));
        }
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"jitney workers 1");
        Ok(Secret { derived: salt.extract(text.as_bytes()), tls: Tls::Auto })
    }

    /// The same secret for connections that are protected in this way.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Secret {
        Secret { tls, ..self }
    }

    /// 32 bytes for one purpose. They reveal neither the secret nor the bytes of another purpose.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut bytes = [0; 32];
        let labels = [purpose.as_bytes()];
        let expanded = self.derived.expand(&labels, hkdf::HKDF_SHA256).expect("32 bytes are one block");
        expanded.fill(&mut bytes).expect("the length is that of the algorithm");
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_short_or_missing_secret_is_an_error_that_says_so() {
        let error = |result: Result<Secret, ChannelError>| result.unwrap_err().to_string();
        assert!(error(Secret::new(&"a".repeat(31))).contains("has 31"));
        assert!(Secret::new(&"ä".repeat(32)).is_ok());
        assert!(error(Secret::read(Path::new("missing"))).contains("missing cannot be read"));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, " \n{}\n", "b".repeat(31)).unwrap();
        assert!(error(Secret::read(file.path())).contains("has 31"), "white space does not count");
        file.write_all(&[b'c'; 5000]).unwrap();
        assert!(error(Secret::read(file.path())).contains("one line"));
    }

    #[test]
    fn what_is_derived_differs_by_purpose_and_by_secret() {
        let (one, two) = (Secret::new(&"a".repeat(32)).unwrap(), Secret::new(&"b".repeat(32)).unwrap());
        assert_ne!(one.derive("front"), one.derive("agent"));
        assert_ne!(one.derive("front"), two.derive("front"));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "\t{} ", "a".repeat(32)).unwrap();
        assert_eq!(Secret::read(file.path()).unwrap().derive("front"), one.derive("front"));
        assert_eq!(format!("{one:?}"), "Secret");
    }
}
