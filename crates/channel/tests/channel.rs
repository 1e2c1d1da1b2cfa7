//! Both ends over real sockets: who gets in, who does not, and what crosses.

#![allow(clippy::unwrap_used, reason = "a test")]

use jitney_channel::{
    Acceptor, Address, BlockingStream, ChannelError, Dialled, Peer, Pin, Secret, Stream, dial_agent, dial_worker,
};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

fn secret(letter: &str) -> Secret {
    Secret::new(&letter.repeat(32)).unwrap()
}

async fn listen() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
    (listener, address)
}

async fn accept(listener: &TcpListener, letter: &str) -> Result<(Stream, Peer), ChannelError> {
    Acceptor::new(&secret(letter)).unwrap().accept(listener.accept().await.unwrap().0).await
}

async fn dial_blocking(address: &Address, front: Pin) -> Result<BlockingStream, ChannelError> {
    let address = address.host_and_port.clone();
    match tokio::task::spawn_blocking(move || dial_worker(&address, &front)).await.unwrap()? {
        Dialled::Tls(stream) => Ok(stream),
        Dialled::Plain(_) => panic!("it uses TLS"),
    }
}

#[tokio::test]
async fn an_agent_with_the_secret_is_known_and_bytes_cross() {
    let (listener, address) = listen().await;
    let key = secret("a");
    let (accepted, dialled) = tokio::join!(accept(&listener, "a"), dial_agent(&address, &key));
    let ((mut front, peer), mut agent) = (accepted.unwrap(), dialled.unwrap());
    assert_eq!(peer, Peer::Agent);
    agent.write_all(b"join").await.unwrap();
    agent.flush().await.unwrap();
    let mut bytes = [0; 4];
    front.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"join");
    front.shutdown().await.unwrap();
    assert_eq!(agent.read(&mut bytes).await.unwrap(), 0, "an end that is said");
    drop(agent);
    assert!(front.read(&mut bytes).await.is_err(), "an end that is not said is an error");
}

#[tokio::test]
async fn another_secret_is_refused_at_both_ends() {
    let (listener, address) = listen().await;
    let key = secret("b");
    let (accepted, dialled) = tokio::join!(accept(&listener, "a"), dial_agent(&address, &key));
    assert!(matches!(dialled, Err(ChannelError::OtherSecret)), "{dialled:?}");
    let error = accepted.unwrap_err();
    assert!(matches!(error, ChannelError::OtherSecret) && !error.is_passing(), "{error:?}");
    assert!(error.to_string().contains("copy of the same secret file"));
    let (accepted, dialled) = tokio::join!(accept(&listener, "a"), dial_blocking(&address, Pin::of_front(&key)));
    assert!(matches!(dialled, Err(ChannelError::OtherSecret)), "{dialled:?}");
    assert!(matches!(accepted, Err(ChannelError::OtherSecret)), "{accepted:?}");
}

#[tokio::test]
async fn a_worker_has_proven_nothing() {
    let (listener, address) = listen().await;
    let pin = Pin::of_front(&secret("a"));
    let (accepted, dialled) = tokio::join!(accept(&listener, "a"), dial_blocking(&address, pin));
    assert_eq!(accepted.unwrap().1, Peer::Unproven);
    dialled.unwrap();
}

/// Somebody between the ends: to each he is the other one, with the keys that he can make.
#[tokio::test]
async fn a_relay_with_its_own_key_is_refused_by_who_dials() {
    let ((between, address), key) = (listen().await, secret("a"));
    let (relayed, dialled) = tokio::join!(accept(&between, "e"), dial_agent(&address, &key));
    assert!(relayed.is_err() && matches!(dialled, Err(ChannelError::OtherSecret)));
    let pin = Pin::of_front(&key);
    let (relayed, dialled) = tokio::join!(accept(&between, "e"), dial_blocking(&address, pin));
    assert!(relayed.is_err() && matches!(dialled, Err(ChannelError::OtherSecret)));
}

/// One byte is changed on the way, after the handshake.
#[tokio::test]
async fn changed_bytes_end_the_connection() {
    let ((front, front_address), (between, address)) = (listen().await, listen().await);
    tokio::spawn(async move {
        let (mut near, _) = between.accept().await.unwrap();
        let mut far = TcpStream::connect(&front_address.host_and_port).await.unwrap();
        let (mut near_in, mut near_out) = near.split();
        let (mut far_in, mut far_out) = far.split();
        let back = tokio::io::copy(&mut far_in, &mut near_out);
        let there = async {
            let mut bytes = [0; 4096];
            loop {
                let count = near_in.read(&mut bytes).await.unwrap();
                // The record of the last write is the only one of this size.
                if (2000..3000).contains(&count) {
                    bytes[1000] ^= 1;
                }
                if count == 0 || far_out.write_all(&bytes[..count]).await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::join!(back, there);
    });
    let pin = Pin::of_front(&secret("a"));
    let (accepted, dialled) = tokio::join!(accept(&front, "a"), dial_blocking(&address, pin));
    let (mut front, mut worker) = (accepted.unwrap().0, dialled.unwrap());
    tokio::task::spawn_blocking(move || worker.write_all(&[7; 2000]).map(|()| worker)).await.unwrap().unwrap();
    assert!(front.read(&mut [0; 4096]).await.is_err());
}

#[tokio::test]
async fn what_crosses_a_relay_that_changes_nothing_arrives() {
    let ((front, front_address), (between, address)) = (listen().await, listen().await);
    tokio::spawn(async move {
        let mut near = between.accept().await.unwrap().0;
        let mut far = TcpStream::connect(&front_address.host_and_port).await.unwrap();
        let _ = copy_bidirectional(&mut near, &mut far).await;
    });
    let pin = Pin::of_front(&secret("a"));
    let (accepted, dialled) = tokio::join!(accept(&front, "a"), dial_blocking(&address, pin));
    assert!(accepted.is_ok() && dialled.is_ok());
}

/// Plain text, garbage, the beginning of TLS, TLS of somebody else: an error, at once.
#[tokio::test]
async fn strangers_get_an_error() {
    let (listener, address) = listen().await;
    let long = vec![0xff; 70_000];
    let hellos: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"JY\x03\x01\x10\0\0\0\0\0\0\0\0\0\0\0",
        &long,
        &[0; 300],
        b"\x16\x03\x01\x40\x00\x01\x00\xff\xff",
        b"",
    ];
    for hello in hellos {
        let stranger = async {
            let mut tcp = TcpStream::connect(&address.host_and_port).await.unwrap();
            // It may be refused before all of it is written.
            let _ = tcp.write_all(hello).await;
            let _ = tcp.shutdown().await;
            tcp.read(&mut [0; 64]).await
        };
        let (accepted, _) = tokio::join!(accept(&listener, "a"), stranger);
        let error = accepted.unwrap_err();
        assert!(!matches!(error, ChannelError::OtherSecret | ChannelError::Silent(_)), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_ends_within_the_limit_at_both_ends() {
    let (listener, address) = listen().await;
    let silent = TcpStream::connect(&address.host_and_port).await.unwrap();
    assert!(matches!(accept(&listener, "a").await, Err(ChannelError::Silent(10))));
    drop(silent);
    let error = dial_agent(&address, &secret("a")).await.unwrap_err();
    assert!(matches!(error, ChannelError::Silent(10)) && error.is_passing());
}

/// A front that stops in the middle of a connection.
#[tokio::test]
async fn a_blocking_end_gives_up_without_progress() {
    let (listener, address) = listen().await;
    let pin = Pin::of_front(&secret("a"));
    let (accepted, dialled) = tokio::join!(accept(&listener, "a"), dial_blocking(&address, pin));
    let (front, worker) = (accepted.unwrap(), dialled.unwrap());
    worker.limit_silence(Duration::from_millis(50)).unwrap();
    let ends = tokio::task::spawn_blocking(move || {
        let (mut reader, mut writer) = (worker.clone(), worker);
        let read = std::thread::spawn(move || reader.read(&mut [0; 10]).map_err(|error| error.kind()));
        let bytes = vec![0; 1 << 20];
        let written = loop {
            if let Err(error) = writer.write_all(&bytes) {
                break error.kind();
            }
        };
        (read.join().unwrap(), written)
    });
    let (read, written) = ends.await.unwrap();
    assert!(read.is_err());
    assert_eq!(written, std::io::ErrorKind::TimedOut);
    drop(front);
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|place| (place.wrapping_mul(31) ^ seed ^ (place >> 8)) as u8).collect()
}

/// Sends messages of these sizes from both ends at the same time; each end reads and writes at once.
fn cross(sizes: &[usize]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let expected: Vec<u8> = sizes.iter().enumerate().flat_map(|(seed, &len)| pattern(seed, len)).collect();
    runtime.block_on(async {
        let (listener, address) = listen().await;
        let pin = Pin::of_front(&secret("a"));
        let (accepted, dialled) = tokio::join!(accept(&listener, "a"), dial_blocking(&address, pin));
        let (front, mut worker) = (accepted.unwrap().0, dialled.unwrap());
        let (mut reader, mut writer) = tokio::io::split(front);
        let (all, messages) = (expected.len(), sizes.to_vec());
        let mut other = worker.clone();
        let blocking = tokio::task::spawn_blocking(move || {
            let receiving = std::thread::spawn(move || {
                let mut bytes = vec![0; all];
                other.read_exact(&mut bytes).unwrap();
                assert!(!other.has_buffered());
                bytes
            });
            for (seed, &len) in messages.iter().enumerate() {
                worker.write_all(&pattern(seed, len)).unwrap();
            }
            receiving.join().unwrap()
        });
        let messages = sizes.to_vec();
        let sending = tokio::spawn(async move {
            for (seed, &len) in messages.iter().enumerate() {
                writer.write_all(&pattern(seed, len)).await.unwrap();
                writer.flush().await.unwrap();
            }
            writer
        });
        let mut bytes = vec![0; all];
        reader.read_exact(&mut bytes).await.unwrap();
        assert!(bytes == expected, "to the front");
        assert!(blocking.await.unwrap() == expected, "to the worker");
        sending.await.unwrap();
    });
}

#[test]
fn large_messages_cross_in_both_directions_at_the_same_time() {
    cross(&[1, 0, 5, 16_384, 16_385, 3, 9_000_001, 65_536, 12]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn bytes_of_all_sizes_cross(sizes in prop::collection::vec(prop_oneof![0..40_usize, 0..300_000_usize], 1..12)) {
        cross(&sizes);
    }
}
