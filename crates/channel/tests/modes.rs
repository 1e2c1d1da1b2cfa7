//! Connections without TLS, and with certificates of the operator.

#![allow(clippy::unwrap_used, reason = "a test")]

use jitney_channel::{
    Acceptor, Address, ChannelError, Dialled, Peer, Pin, Secret, Stream, Tls, dial_agent, dial_worker,
};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn secret(letter: &str, tls: &Tls) -> Secret {
    Secret::new(&letter.repeat(32)).unwrap().with_tls(tls.clone())
}

async fn listen() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
    (listener, address)
}

async fn accept(listener: &TcpListener, secret: &Secret) -> Result<(Stream, Peer), ChannelError> {
    Acceptor::new(secret).unwrap().accept(listener.accept().await.unwrap().0).await
}

/// An agent of `agents` and a front of `fronts`.
async fn meet(
    fronts: &Secret,
    agents: &Secret,
) -> (Result<(Stream, Peer), ChannelError>, Result<Stream, ChannelError>) {
    let (listener, address) = listen().await;
    tokio::join!(accept(&listener, fronts), dial_agent(&address, agents))
}

async fn meet_worker(
    front: &Secret,
    pin: Pin,
) -> (Result<(Stream, Peer), ChannelError>, Result<Dialled, ChannelError>) {
    let (listener, address) = listen().await;
    let dial = tokio::task::spawn_blocking(move || dial_worker(&address.host_and_port, &pin));
    let (accepted, dialled) = tokio::join!(accept(&listener, front), dial);
    (accepted, dialled.unwrap())
}

async fn bytes_cross(mut front: Stream, mut agent: Stream) {
    let sent = vec![7; 100_000];
    agent.write_all(&sent).await.unwrap();
    agent.flush().await.unwrap();
    let mut bytes = vec![0; sent.len()];
    front.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes, sent);
}

#[tokio::test]
async fn without_tls_an_agent_proves_the_secret_and_a_worker_nothing() {
    let good = secret("a", &Tls::Off);
    let (accepted, dialled) = meet(&good, &good).await;
    let (front, peer) = accepted.unwrap();
    assert_eq!(peer, Peer::Agent);
    bytes_cross(front, dialled.unwrap()).await;
    let (accepted, dialled) = meet(&good, &secret("b", &Tls::Off)).await;
    assert!(matches!(dialled, Err(ChannelError::OtherSecret)), "{dialled:?}");
    assert!(accepted.is_err());
    assert_eq!(Pin::of_front(&good).to_string(), "plain");
    let (accepted, dialled) = meet_worker(&good, Pin::of_front(&good)).await;
    let (mut front, peer) = accepted.unwrap();
    assert_eq!(peer, Peer::Unproven);
    let Dialled::Plain(mut worker) = dialled.unwrap() else { panic!("no TLS") };
    worker.write_all(b"x").unwrap();
    assert_eq!(front.read_u8().await.unwrap(), b'x');
}

/// A peer that has no secret sends the front's own proof back, or what an agent sent before.
#[tokio::test]
async fn a_proof_cannot_be_sent_back_or_again() {
    let ((listener, address), good) = (listen().await, secret("a", &Tls::Off));
    let reflect = async {
        let mut tcp = TcpStream::connect(&address.host_and_port).await.unwrap();
        tcp.write_all(b"jitney agent 1\n\n").await.unwrap();
        tcp.write_all(&[1; 32]).await.unwrap();
        let mut answer = [0; 64];
        tcp.read_exact(&mut answer).await.unwrap();
        tcp.write_all(&answer[32..]).await.unwrap();
        tcp
    };
    let (accepted, _stranger) = tokio::join!(accept(&listener, &good), reflect);
    assert!(matches!(accepted, Err(ChannelError::OtherSecret)), "{accepted:?}");
    // What an agent sends is recorded, and sent a second time.
    let (between, between_address) = listen().await;
    let record = async {
        let mut near = between.accept().await.unwrap().0;
        let mut far = TcpStream::connect(&address.host_and_port).await.unwrap();
        let (mut first, mut answer, mut proof) = ([0; 48], [0; 64], [0; 32]);
        near.read_exact(&mut first).await.unwrap();
        far.write_all(&first).await.unwrap();
        far.read_exact(&mut answer).await.unwrap();
        near.write_all(&answer).await.unwrap();
        near.read_exact(&mut proof).await.unwrap();
        far.write_all(&proof).await.unwrap();
        (first, proof, near, far)
    };
    let (accepted, dialled, (first, proof, ..)) =
        tokio::join!(accept(&listener, &good), dial_agent(&between_address, &good), record);
    assert!(accepted.is_ok() && dialled.is_ok());
    let again = async {
        let mut tcp = TcpStream::connect(&address.host_and_port).await.unwrap();
        tcp.write_all(&first).await.unwrap();
        tcp.read_exact(&mut [0; 64]).await.unwrap();
        tcp.write_all(&proof).await.unwrap();
        tcp
    };
    let (accepted, _stranger) = tokio::join!(accept(&listener, &good), again);
    assert!(matches!(accepted, Err(ChannelError::OtherSecret)), "{accepted:?}");
}

#[tokio::test]
async fn ends_with_different_settings_do_not_meet() {
    let (with, without) = (secret("a", &Tls::Auto), secret("a", &Tls::Off));
    let (accepted, dialled) = meet(&without, &with).await;
    assert!(accepted.unwrap_err().to_string().contains("it uses TLS") && dialled.is_err());
    let (accepted, dialled) = meet(&with, &without).await;
    assert!(accepted.is_err() && dialled.is_err());
}

fn openssl(folder: &Path, arguments: &str) {
    let ran = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// The files of an authority, and of a machine that it has signed.
fn authority(folder: &Path, name: &str) -> Tls {
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(folder, &format!("req -x509 {curve} -keyout {name}.ca.key -out {name}.ca -subj /CN={name} -days 2"));
    openssl(folder, &format!("req {curve} -keyout {name}.key -out {name}.csr -subj /CN=machine"));
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    let from = format!("-in {name}.csr -CA {name}.ca -CAkey {name}.ca.key -CAcreateserial");
    openssl(folder, &format!("x509 -req {from} -out {name}.cert -extfile names -days 2"));
    let path = |end: &str| folder.join(format!("{name}.{end}")).display().to_string();
    Tls::read(&format!("{},{},{}", path("cert"), path("key"), path("ca"))).unwrap()
}

#[tokio::test]
async fn certificates_of_an_authority_are_needed_at_both_ends_and_so_is_the_secret() {
    if Command::new("openssl").arg("version").output().is_err() {
        return; // Nothing here makes certificates.
    }
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (authority(folder.path(), "ours"), authority(folder.path(), "theirs"));
    let good = secret("a", &ours);
    let (accepted, dialled) = meet(&good, &good).await;
    let (front, peer) = accepted.unwrap();
    assert_eq!(peer, Peer::Agent);
    bytes_cross(front, dialled.unwrap()).await;
    let (accepted, dialled) = meet(&good, &secret("b", &ours)).await;
    assert!(accepted.is_err() && matches!(dialled, Err(ChannelError::OtherSecret)), "{dialled:?}");
    let (accepted, dialled) = meet(&good, &secret("a", &theirs)).await;
    assert!(accepted.is_err() && dialled.is_err());
    let (accepted, dialled) = meet_worker(&good, Pin::of_front(&good)).await;
    assert_eq!(accepted.unwrap().1, Peer::Unproven);
    assert!(matches!(dialled, Ok(Dialled::Tls(_))));
    let stranger = Pin::of_front(&secret("a", &theirs));
    let (accepted, dialled) = meet_worker(&good, stranger).await;
    assert!(accepted.is_err() && dialled.is_err());
    // Without an authority both ends have the same certificate.
    let Pin::Files(text) = Pin::of_front(&good) else { panic!("of files") };
    let pair = |text: &str| Tls::read(&text.split(',').take(2).collect::<Vec<_>>().join(",")).unwrap();
    let alone = secret("a", &pair(&text));
    let (accepted, dialled) = meet(&alone, &alone).await;
    assert!(accepted.is_ok() && dialled.is_ok());
    let Pin::Files(text) = Pin::of_front(&secret("a", &theirs)) else { panic!("of files") };
    let (accepted, dialled) = meet(&alone, &secret("a", &pair(&text))).await;
    assert!(accepted.is_err() && matches!(dialled, Err(ChannelError::OtherSecret)), "{dialled:?}");
}

#[test]
fn settings_that_are_none_are_errors() {
    for text in ["", "on", "auto,off", "a,b,c,d", "missing,missing", "Cargo.toml,Cargo.toml"] {
        let error = Tls::read(text).unwrap_err();
        assert!(matches!(error, ChannelError::Secret(_)), "{error}");
    }
}
