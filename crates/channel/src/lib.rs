//! Connections between the machines of one server. A secret file is all that its operator manages: both ends derive their
//! keys from it, and TLS 1.3 with these keys says who the other end is. Frames, workers and models are the matter of others.
//!
//! - The front: [`Acceptor::accept`] gives a stream, and whether the other end is an agent or has proven nothing.
//! - An agent: [`dial_agent`]. It has the secret.
//! - A worker: [`dial_worker`], which blocks. It has the front's public key (a *pin*) instead of the secret.
//!
//! Floors, from the ground: `error`, `proof`, `ends`.

mod ends;
mod error;
mod proof;

pub use ends::acceptor::{Acceptor, Peer};
pub use ends::blocking::{BlockingStream, Dialled, dial_worker};
pub use ends::dial::dial_agent;
pub use ends::stream::Stream;
pub use error::ChannelError;
pub use proof::address::Address;
pub use proof::keys::Pin;
pub use proof::secret::Secret;
pub use proof::tls::Tls;
pub use proof::tokens::Tokens;
