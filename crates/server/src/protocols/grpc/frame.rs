//! gRPC's frames: a byte that says whether the message is compressed, its length in four, then the message.

use crate::base::ledger::{Account, CountedBytes};
use crate::engine::server_state::ServerState;
use crate::protocols::connection::limits::COPY_BELOW;
use crate::protocols::request::compression;
use crate::protocols::request::compression::{Coding, Inflated};
use crate::protocols::request::headers::{quoted, single};
use crate::values::answer::Failure;
use crate::values::chunks::Chunks;
use crate::values::text::parser_message;
use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName};
use jitney_core::tables::outcome::Outcome;
use prost::Message;
use smallvec::SmallVec;

/// A message in the pieces that it is sent in.
pub(crate) type MessagePieces = SmallVec<[Bytes; 2]>;

/// Bytes before a message.
pub(crate) const PREFIX: usize = 5;

const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// How the compressed messages of a call are compressed.
pub(crate) fn coding(headers: &HeaderMap) -> Result<Option<Coding>, Failure> {
    let Some(value) = single(headers, &ENCODING)? else { return Ok(None) };
    if value == "identity" {
        return Ok(None);
    }
    Coding::parse(value.as_bytes()).map(Some).ok_or_else(|| {
        let detail = format!("grpc-encoding {} is not taken; use gzip, deflate or none", quoted(value.as_bytes()));
        Failure::new(Outcome::MethodNotAllowed, detail)
    })
}

/// What a prefix says: whether its message is compressed, and how long it is.
pub(crate) fn prefix(prefix: [u8; PREFIX]) -> Result<(bool, usize), Failure> {
    let [flag, length @ ..] = prefix;
    match flag {
        0 | 1 => Ok((flag == 1, u32::from_be_bytes(length) as usize)),
        _ => Err(malformed(&format!("its first byte is {flag}; gRPC allows 0 and 1"))),
    }
}

/// The number of `raw_input_contents`.
const RAW_INPUTS: u32 = 7;

/// Most fields of a request. A field of two bytes becomes a struct of a hundred when it is read.
const MOST_FIELDS: usize = 8192;
/// Most bytes of a request without its raw tensors.
const MOST_HEAD: usize = 16 << 20;

/// A message that can be decoded.
#[derive(Debug)]
pub(crate) struct PlainMessage {
    pub(crate) message: Chunks,
    /// Counts a message that was compressed. The caller keeps it until the message has been decoded.
    pub(crate) received: Option<CountedBytes>,
}

/// The one message of a body.
pub(crate) async fn only(
    mut body: Chunks,
    coding: Option<Coding>,
    most: u64,
    state: &ServerState,
    received: &Account,
) -> Result<PlainMessage, Failure> {
    let mut start = body.split_to(PREFIX);
    let Some(start) = start.contiguous().first_chunk().copied() else {
        return Err(malformed("it ends inside of its prefix"));
    };
    let (is_compressed, length) = prefix(start)?;
    if body.len() != length {
        return Err(malformed(&format!("its prefix says {length} bytes, {} follow", body.len())));
    }
    plain(body, is_compressed, coding, most, state, received).await
}

/// A message as it was before it was compressed, of `most` bytes at most.
pub(crate) async fn plain(
    message: Chunks,
    is_compressed: bool,
    coding: Option<Coding>,
    most: u64,
    state: &ServerState,
    received: &Account,
) -> Result<PlainMessage, Failure> {
    match (is_compressed, coding) {
        (false, _) => Ok(PlainMessage { message, received: None }),
        (true, Some(coding)) => {
            let Inflated { body, received } = compression::inflate(coding, message, most, state, received).await?;
            Ok(PlainMessage { message: body.into(), received: Some(received) })
        }
        (true, None) => Err(malformed("it is compressed, but the header grpc-encoding does not say how")),
    }
}

/// Reads a message; what stands in it as bytes stays where it is.
pub(crate) fn decode<M: Message + Default>(message: Bytes) -> Result<M, Failure> {
    M::decode(message).map_err(|error| malformed(&format!("its protobuf cannot be read: {}", parser_message(&error))))
}

/// Takes the raw tensors out of a message: they stay in the pieces that they came in. The rest of it is short.
pub(crate) fn tear(mut message: Chunks) -> Result<(Vec<u8>, Vec<Chunks>), Failure> {
    let (mut head, mut raw) = (Vec::new(), Vec::new());
    let mut fields = 0;
    while !message.is_empty() {
        let start = head.len();
        let key = varint(&mut message, &mut head)?;
        fields += 1;
        let length = match key & 7 {
            0 => {
                varint(&mut message, &mut head)?;
                0
            }
            1 => 8,
            2 => varint(&mut message, &mut head)?,
            5 => 4,
            other => return Err(malformed(&format!("a field has the wire type {other}"))),
        };
        let left = message.len();
        let length = usize::try_from(length).ok().filter(|&length| length <= left);
        let length = length.ok_or_else(|| malformed("a field is longer than the message"))?;
        let data = message.split_to(length);
        if key == u64::from(RAW_INPUTS) << 3 | 2 {
            head.truncate(start);
            raw.push(data);
        } else {
            data.0.iter().for_each(|chunk| head.extend_from_slice(chunk));
        }
        if fields > MOST_FIELDS || head.len() > MOST_HEAD {
            let detail = format!(
                "the message has more than {MOST_FIELDS} fields, or {MOST_HEAD} bytes beside its raw_input_contents; send \
                 tensors in these"
            );
            return Err(Failure::new(Outcome::TooLarge, detail));
        }
    }
    Ok((head, raw))
}

/// The number at the front, which is copied to `head` as it stands.
fn varint(message: &mut Chunks, head: &mut Vec<u8>) -> Result<u64, Failure> {
    let mut number = 0;
    for place in 0..10 {
        let byte = message.split_to(1).0.first().and_then(|chunk| chunk.first().copied());
        let byte = byte.ok_or_else(|| malformed("it ends inside of a field"))?;
        head.push(byte);
        number |= u64::from(byte & 0x7f) << (7 * place).min(63);
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(malformed("a number in it has more than ten bytes"))
}

pub(crate) fn malformed(what: &str) -> Failure {
    Failure::new(Outcome::MalformedBody, format!("the gRPC message cannot be read: {what}"))
}

fn too_long(length: usize) -> Failure {
    let detail = format!("the answer has {length} bytes; a gRPC message holds 4 GiB at most");
    Failure::new(Outcome::InvalidOutput, detail)
}

/// A message that ends with large pieces, ready to be sent. Large ones are not copied.
pub(crate) fn framed(mut message: Vec<u8>, large: &[Bytes]) -> Result<MessagePieces, Failure> {
    let length = message.len() + large.iter().map(Bytes::len).sum::<usize>();
    let length32 = u32::try_from(length).map_err(|_| too_long(length))?;
    let mut head = Vec::with_capacity(PREFIX + message.len());
    head.push(0);
    head.extend_from_slice(&length32.to_be_bytes());
    head.append(&mut message);
    let mut pieces = MessagePieces::new();
    for piece in large {
        // A separate frame for a short piece costs more than a copy of it.
        if piece.len() < COPY_BELOW {
            head.extend_from_slice(piece);
        } else {
            pieces.push(std::mem::take(&mut head).into());
            pieces.push(piece.clone());
        }
    }
    if !head.is_empty() {
        pieces.push(head.into());
    }
    Ok(pieces)
}

/// Appends a message, ready to be sent, to others.
pub(crate) fn append(out: &mut Vec<u8>, message: &impl Message) -> Result<(), Failure> {
    let length = message.encoded_len();
    let length32 = u32::try_from(length).map_err(|_| too_long(length))?;
    out.push(0);
    out.extend_from_slice(&length32.to_be_bytes());
    // A Vec takes every byte.
    let _ = message.encode(out);
    Ok(())
}

/// A message, ready to be sent.
pub(crate) fn message(message: &impl Message) -> Result<MessagePieces, Failure> {
    framed(message.encode_to_vec(), &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_make_one_message(
            message in prop::collection::vec(any::<u8>(), 0..20), lengths in prop::collection::vec(0usize..3, 0..5)
        ) {
            let large: Vec<Bytes> = lengths.iter().map(|&n| Bytes::from(vec![n as u8; [0, 10, COPY_BELOW][n]])).collect();
            let sent = framed(message.clone(), &large).unwrap().concat();
            prop_assert_eq!(prefix(*sent.first_chunk().unwrap()).unwrap(), (false, sent.len() - PREFIX));
            prop_assert_eq!(&sent[PREFIX..], &[message, large.concat()].concat()[..]);
        }
    }
}
