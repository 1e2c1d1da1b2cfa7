//! How a worker comes back to its front. A worker on another machine keeps its model for a while after its link was lost, and
//! dials again: loading the model takes longer than most failures of a network, and than a restart of the front.

use crate::link::frame::header::small_frame;
use crate::link::frame::kind::Kind;
use crate::link::worker::stream::{ByteStream, write_all_vectored};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::{Duration, Instant};

/// Pauses between two tries to connect: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Connects to the front.
pub type DialAgain = Box<dyn Fn() -> io::Result<Box<dyn ByteStream>> + Send + Sync>;

/// How long a worker keeps its model without its front, and how it dials.
pub struct Lease {
    /// Connects to the front again.
    pub dial: DialAgain,
    /// How long it tries. Then the worker ends.
    pub length: Duration,
}

/// Who a worker is, for its front.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The number of this worker for its front and its agent: 128 random bits. Empty on the front's machine.
    pub id: String,
    /// Admits one connection. The front sends the next one over the link.
    pub token: String,
    /// What it has loaded (JSON), once it has: its target, deployment, replica, and hashes of what they depend on.
    pub rejoin: Option<serde_json::Value>,
    /// The manifest that it has sent. A front that was restarted has none, and gets it after the hello.
    pub manifest: Option<Vec<u8>>,
}

impl Identity {
    /// The first frame of a connection: the version, the token, the machine, and the devices that the environment names. Of a
    /// worker that comes back, its manifest follows.
    pub(super) fn hello(&self) -> Vec<u8> {
        let visible = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"].iter().find_map(|name| std::env::var(name).ok());
        let devices: Vec<&str> =
            visible.as_deref().unwrap_or_default().split(',').filter(|name| !name.is_empty()).collect();
        let hello = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "token": self.token,
            "host": rustix::system::uname().nodename().to_string_lossy(),
            "devices": devices,
            "id": self.id,
            "rejoin": self.rejoin,
        });
        let mut bytes = small_frame(Kind::Hello, hello.to_string().as_bytes())[0].to_vec();
        if let (Some(_), Some(manifest)) = (&self.rejoin, &self.manifest) {
            bytes.extend_from_slice(&small_frame(Kind::Manifest, manifest)[0]);
        }
        bytes
    }
}

/// A link that is lost and may come back.
#[derive(Debug)]
pub(super) struct Absence {
    since: Instant,
    pause: Duration,
}

impl Absence {
    pub(super) fn begin() -> Absence {
        Absence { since: Instant::now(), pause: FIRST_PAUSE }
    }

    /// Waits, and connects once; `None` when the lease is over. Between half and one and a half pauses, because all workers
    /// of a front lose it at the same time.
    pub(super) fn try_again(&mut self, lease: &Lease, identity: &Identity) -> Option<io::Result<Box<dyn ByteStream>>> {
        let random = RandomState::new().hash_one(()) % 1000;
        let pause = self.pause / 2 + self.pause * random as u32 / 1000;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let left = (self.since + lease.length).saturating_duration_since(Instant::now());
        std::thread::sleep(pause.min(left));
        if left <= pause {
            return None;
        }
        Some((lease.dial)().and_then(|mut stream| {
            write_all_vectored(&mut stream, &[&identity.hello()])?;
            Ok(stream)
        }))
    }
}
