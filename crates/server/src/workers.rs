//! The socket of the workers: who may be one.

use crate::clock::Clock;
use crate::link::frame::FrameReader;
use crate::link::front::Link;
use crate::report::Report;
use jitney_core::request::ReplicaId;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::mpsc;

/// After this a socket that cannot accept is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// 128 random bits, as hex.
pub(crate) fn secret() -> std::io::Result<String> {
    let mut bytes = [0u8; 16];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// Lets workers in that know the secret.
pub(crate) async fn accept(
    listener: UnixListener,
    secret: String,
    clock: Clock,
    reports: mpsc::UnboundedSender<Report>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (secret, reports) = (secret.clone(), reports.clone());
        tokio::spawn(async move {
            crate::link::frame::widen(&stream);
            let (reader, writer) = stream.into_split();
            let mut reader = FrameReader::new(reader);
            match Link::greet(&mut reader).await {
                Ok(hello) if is_same(hello.secret.as_bytes(), secret.as_bytes()) => {
                    let worker = ReplicaId(hello.worker);
                    Link::start(reader, writer, worker, clock, reports);
                }
                Ok(_) => tracing::warn!("a connection to the worker socket had the wrong secret"),
                Err(error) => tracing::debug!(%error, "a connection to the worker socket said no hello"),
            }
        });
    }
}

/// Compares in a time that does not depend on where the two differ.
fn is_same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
