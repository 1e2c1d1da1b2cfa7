//! Tokens: what a worker says to its front instead of the secret. Each belongs to one worker and admits one connection.

use crate::proof::secret::Secret;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Bytes of the random part of a token.
const NONCE: usize = 16;
/// So many used tokens are remembered at least, and twice as many at most. A worker that connects again each second uses as many in a
/// day.
const REMEMBERED: usize = 100_000;

/// Issues and checks tokens. Another process with the same secret checks them too, so workers outlive a restart of the
/// front; which tokens were used is remembered only while this process lives.
#[derive(Debug)]
pub struct Tokens {
    key: hmac::Key,
    texts: hmac::Key,
    random: SystemRandom,
    used: Mutex<Used>,
}

impl Tokens {
    /// The tokens of a server with this secret.
    pub fn new(secret: &Secret) -> Tokens {
        let key = |purpose| hmac::Key::new(hmac::HMAC_SHA256, &secret.derive(purpose));
        Tokens {
            key: key("jitney tokens"),
            texts: key("jitney texts"),
            random: SystemRandom::new(),
            used: Mutex::default(),
        }
    }

    /// An HMAC of a text: it shows whether another text is the same one, and nothing else. 64 hexadecimal digits.
    pub fn fingerprint(&self, text: &str) -> String {
        hex(hmac::sign(&self.texts, text.as_bytes()).as_ref())
    }

    /// A new token of this worker: 96 hexadecimal digits.
    pub fn issue(&self, worker: &str) -> String {
        let mut nonce = [0; NONCE];
        self.random.fill(&mut nonce).expect("the system has random numbers");
        hex(&nonce) + &hex(hmac::sign(&self.key, &signed(worker, &nonce)).as_ref())
    }

    /// Whether this is a token of this worker that was not used yet. It is used then.
    pub fn redeem(&self, worker: &str, token: &str) -> bool {
        let Some(bytes) = bytes(token) else { return false };
        let Some((nonce, proof)) = bytes.split_first_chunk::<NONCE>() else { return false };
        // Compared in constant time.
        if hmac::verify(&self.key, &signed(worker, nonce), proof).is_err() {
            return false;
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).note(*nonce)
    }
}

/// Tokens that were used: the latest ones, and those before them.
#[derive(Debug, Default)]
struct Used {
    latest: HashSet<[u8; NONCE]>,
    before: HashSet<[u8; NONCE]>,
}

impl Used {
    /// Whether this one was not used yet, as far as is remembered. The oldest ones are forgotten when there are too many.
    fn note(&mut self, nonce: [u8; NONCE]) -> bool {
        if self.latest.len() >= REMEMBERED {
            self.before = std::mem::take(&mut self.latest);
        }
        !self.before.contains(&nonce) && self.latest.insert(nonce)
    }
}

/// The length of the nonce is fixed, so no two pairs sign the same bytes.
fn signed(worker: &str, nonce: &[u8; NONCE]) -> Vec<u8> {
    [&nonce[..], worker.as_bytes()].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let is_hex = hex.len() == 2 * (NONCE + 32) && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
    let pairs = is_hex.then(|| hex.as_bytes().chunks(2))?;
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_token_is_remembered_while_100_000_others_are_used() {
        let mut used = Used::default();
        let nonce = |number: usize| (number as u128).to_le_bytes();
        for number in 0..3 * REMEMBERED {
            assert!(used.note(nonce(number)));
            assert!(!used.note(nonce(number.saturating_sub(REMEMBERED - 1))), "{number}");
        }
        assert!(used.latest.len() + used.before.len() <= 2 * REMEMBERED);
    }

    #[test]
    fn a_token_admits_one_connection_of_one_worker() {
        let secret = Secret::new(&"a".repeat(32)).unwrap();
        let tokens = Tokens::new(&secret);
        let (first, second) = (tokens.issue("w1"), tokens.issue("w1"));
        assert_ne!(first, second);
        assert!(!tokens.redeem("w2", &first), "of another worker");
        assert!(tokens.redeem("w1", &first) && !tokens.redeem("w1", &first), "once");
        let restarted = Tokens::new(&secret);
        assert!(restarted.redeem("w1", &second), "a restarted front takes it");
        let other = Tokens::new(&Secret::new(&"b".repeat(32)).unwrap());
        assert_eq!(tokens.fingerprint("a"), restarted.fingerprint("a"));
        assert!(
            tokens.fingerprint("a") != tokens.fingerprint("b") && tokens.fingerprint("a") != other.fingerprint("a")
        );
        assert!(!other.redeem("w1", &tokens.issue("w1")), "another secret");
        for wrong in ["", "00", &"0".repeat(96), &"ä".repeat(48), &first[..95], &format!("{first}0")] {
            assert!(!tokens.redeem("w1", wrong), "{wrong}");
        }
    }
}
