//! Addresses of the front, as text.

use crate::error::ChannelError;
use crate::proof::keys::Pin;
use std::fmt;
use std::str::FromStr;

/// `tcp:HOST:PORT`, or `tcp:HOST:PORT#PIN` with the public key of the front, as a worker gets it. The host of an IPv6 address
/// stands in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `HOST:PORT`.
    pub host_and_port: String,
    /// The public key that the front must prove to have.
    pub pin: Option<Pin>,
}

impl FromStr for Address {
    type Err = ChannelError;

    fn from_str(text: &str) -> Result<Address, ChannelError> {
        let error = || ChannelError::Address(format!("{text:?} is not an address; write tcp:HOST:PORT"));
        let rest = text.strip_prefix("tcp:").ok_or_else(error)?;
        let (host_and_port, pin) = match rest.split_once('#') {
            Some((host_and_port, pin)) => (host_and_port, Some(pin.parse()?)),
            None => (rest, None),
        };
        let (host, port) = host_and_port.rsplit_once(':').ok_or_else(error)?;
        let is_bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        if host.is_empty() || !is_bare || port.parse::<u16>().is_err() {
            return Err(error());
        }
        Ok(Address { host_and_port: host_and_port.to_owned(), pin })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp:{}", self.host_and_port)?;
        self.pin.as_ref().map_or(Ok(()), |pin| write!(f, "#{pin}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let pin = "ab".repeat(32);
        for good in ["tcp:front:7070", "tcp:[::1]:1", "tcp:10.0.0.1:65535", &format!("tcp:front:7070#{pin}")] {
            assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        }
        for bad in ["", "front:7070", "tcp:front", "tcp::7070", "tcp:::1:7070", "tcp:front:70700", "tcp:front:1#ab"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
