//! How an agent proves the secret where TLS does not: each end sends a random number, and an HMAC of both numbers and its role.
//! So a proof is good for one connection, and cannot be sent back to the end that made it.

use crate::error::ChannelError;
use crate::proof::keys::Role;
use crate::proof::secret::Secret;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The first bytes of a connection without TLS say what dials.
pub(crate) const PLAIN_AGENT: &[u8; 16] = b"jitney agent 1\n\n";
pub(crate) const PLAIN_WORKER: &[u8; 16] = b"jitney worker 1\n";

const NUMBER: usize = 32;
const PROOF: usize = 32;

/// The agent's side: the front proves the secret first.
pub(crate) async fn prove<S>(stream: &mut S, secret: &Secret) -> Result<(), ChannelError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let own = number();
    stream.write_all(&own).await?;
    stream.flush().await?;
    let (mut other, mut proof) = ([0; NUMBER], [0; PROOF]);
    stream.read_exact(&mut other).await.map_err(refused)?;
    stream.read_exact(&mut proof).await.map_err(refused)?;
    check(secret, Role::Front, &own, &other, &proof)?;
    stream.write_all(&sign(secret, Role::Agent, &own, &other)).await?;
    Ok(stream.flush().await?)
}

/// The front's side.
pub(crate) async fn demand<S>(stream: &mut S, secret: &Secret) -> Result<(), ChannelError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut other = [0; NUMBER];
    stream.read_exact(&mut other).await.map_err(refused)?;
    let own = number();
    stream.write_all(&own).await?;
    stream.write_all(&sign(secret, Role::Front, &other, &own)).await?;
    stream.flush().await?;
    let mut proof = [0; PROOF];
    stream.read_exact(&mut proof).await.map_err(refused)?;
    check(secret, Role::Agent, &other, &own, &proof)
}

fn number() -> [u8; NUMBER] {
    let mut number = [0; NUMBER];
    SystemRandom::new().fill(&mut number).expect("the system has random numbers");
    number
}

fn key(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &secret.derive("jitney challenge"))
}

fn message(role: Role, agents: &[u8; NUMBER], fronts: &[u8; NUMBER]) -> Vec<u8> {
    let role = match role {
        Role::Front => b"front",
        Role::Agent => b"agent",
    };
    [&role[..], agents, fronts].concat()
}

fn sign(secret: &Secret, role: Role, agents: &[u8; NUMBER], fronts: &[u8; NUMBER]) -> Vec<u8> {
    hmac::sign(&key(secret), &message(role, agents, fronts)).as_ref().to_vec()
}

fn check(
    secret: &Secret,
    role: Role,
    agents: &[u8; NUMBER],
    fronts: &[u8; NUMBER],
    proof: &[u8; PROOF],
) -> Result<(), ChannelError> {
    // Compared in constant time.
    hmac::verify(&key(secret), &message(role, agents, fronts), proof).map_err(|_| ChannelError::OtherSecret)
}

/// An end that closes the connection here has not accepted what it got.
fn refused(error: io::Error) -> ChannelError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return ChannelError::Stranger(
            "it closed the connection before both had proven the secret; both need the same kind of TLS".into(),
        );
    }
    error.into()
}
