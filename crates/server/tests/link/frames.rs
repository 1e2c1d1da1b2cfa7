//! The bytes of frames: round trips, cuts, damage.

use crate::support::{BATCH, Pieces, batch_bytes, block_on, bytes_part, call, calls, end, entries, results_bytes};
use bytes::Bytes;
use jitney_core::request::BatchId;
use jitney_core::scheduler::results::steps::Step;
use jitney_server::link::batch_end::{BatchEnd, Durations};
use jitney_server::link::frame::header::{FrameError, HEADER_LEN, Header, small_frame};
use jitney_server::link::frame::kind::Kind;
use jitney_server::link::frame::payload::Payload;
use jitney_server::link::frame::reader::FrameReader;
use jitney_server::link::results_frame::ItemOutcome;
use jitney_server::link::{batch_frame, results_frame, step_frame};
use jitney_server::values::call::{Call, Encoding};
use proptest::prelude::*;
use std::time::Duration;

/// Header, table and payload of one frame's bytes.
fn split(frame: &[u8]) -> (Header, Vec<u8>, Vec<u8>) {
    let header = Header::decode(frame[..HEADER_LEN].try_into().unwrap()).unwrap();
    let (table, payload) = frame[HEADER_LEN..].split_at(header.table);
    assert_eq!(payload.len(), header.payload);
    (header, table.to_vec(), payload.to_vec())
}

fn read(stream: Pieces) -> std::io::Result<Vec<Vec<u8>>> {
    block_on(async {
        let mut reader = FrameReader::new(stream);
        let mut frames = Vec::new();
        while let Some(frame) = reader.next().await? {
            let header = Header { kind: frame.kind, table: frame.table.len(), payload: frame.payload.len() };
            frames.push([&header.encode()[..], &frame.table, &frame.payload.to_bytes()].concat());
        }
        Ok(frames)
    })
}

/// Whatever comes: either it is refused, or everything in it can be looked at.
fn decode_batch(table: &[u8], payload: &[u8]) {
    if let Ok(batch) = batch_frame::decode(table, payload.to_vec()) {
        assert!(batch.items.len() * 16 <= table.len());
        for part in batch.items.iter().flat_map(|item| &item.parts) {
            let value = &batch.payload[part.offset..part.offset + part.len];
            assert!(part.tensor.as_ref().is_none_or(|tensor| tensor.byte_len() == Some(value.len() as u64)));
        }
    }
}

fn decode_results(table: &[u8], payload: &[u8]) {
    if let Ok(results) = results_frame::decode(table, &Bytes::copy_from_slice(payload).into()) {
        assert!(results.items.len() * 13 <= table.len());
        for item in results.items {
            if let ItemOutcome::Values(parts) | ItemOutcome::End(parts, _) | ItemOutcome::Part(parts) = item.outcome {
                for part in parts {
                    let len = part.data.len();
                    assert!(len <= payload.len());
                    assert!(part.tensor.is_none_or(|tensor| tensor.byte_len() == Some(len as u64)));
                }
            }
        }
    }
}

fn same_batch(calls: &[(Call, Duration)], frame: &[u8]) {
    let (header, table, payload) = split(frame);
    assert_eq!(header.kind, Kind::Batch);
    let batch = batch_frame::decode(&table, payload).unwrap();
    assert_eq!((batch.id, batch.items.len()), (BATCH, calls.len()));
    let mut ends = [None; 4];
    for ((call, remaining), item) in calls.iter().zip(&batch.items) {
        assert_eq!((call.id, *remaining, call.encoding), (item.id, item.remaining, item.encoding));
        assert_eq!((call.streams, call.key), (item.streams, item.key));
        assert_eq!(call.metadata, item.metadata);
        assert_eq!(call.parts.len(), item.parts.len());
        for (number, (sent, part)) in call.parts.iter().zip(&item.parts).enumerate() {
            assert_eq!((number, sent.tag, &sent.tensor), (usize::from(part.param), part.tag, &part.tensor));
            assert_eq!(sent.data.0.concat(), batch.payload[part.offset..part.offset + part.len]);
            // Back to back: what the same parameter of the item before it left off.
            assert!(ends[number].is_none_or(|end| end == part.offset));
            ends[number] = Some(part.offset + part.len);
        }
    }
}

proptest! {
    #[test]
    fn a_batch_arrives_as_it_left_with_each_parameter_in_one_run(calls in calls()) {
        same_batch(&calls, &batch_bytes(&calls));
    }

    #[test]
    fn results_arrive_as_they_left(entries in entries()) {
        let (header, table, payload) = split(&results_bytes(BatchId(3), &entries));
        prop_assert_eq!(header.kind, Kind::Results);
        let results = results_frame::decode(&table, &Bytes::from(payload).into()).unwrap();
        prop_assert_eq!((results.batch, results.predict, results.items.len()), (BatchId(3), Duration::from_millis(2), entries.len()));
        // Neither an outcome nor a failure can be compared; their text says everything that they hold.
        prop_assert_eq!(format!("{:?}", results.items), format!("{entries:?}"));
    }

    #[test]
    fn a_step_arrives_as_it_left(entries in entries(), counts: (u32, u32), lengths: (u32, u32), is_out_of_memory: bool, cut in 0..17usize) {
        let us = |length| Duration::from_micros(u64::from(length));
        let (took, join_took) = (us(lengths.0), us(lengths.1));
        let step = Step { active: counts.0 as usize, joined: counts.1 as usize, took, join_took, is_out_of_memory };
        let (header, table, payload) = split(&step_frame::encode(&step, &results_bytes(BatchId(0), &entries)));
        prop_assert_eq!(header.kind, Kind::Parts);
        let (read, results) = step_frame::decode(&table, &Bytes::from(payload.clone()).into()).unwrap();
        prop_assert_eq!(read, step);
        prop_assert_eq!(format!("{:?}", results.items), format!("{entries:?}"));
        prop_assert!(step_frame::decode(&table[..cut], &Bytes::from(payload).into()).is_err());
    }

    #[test]
    fn the_end_of_a_batch_arrives_as_it_left(batch: u64, lengths: [u32; 3], how in 0..3u8, cut in 0..21usize, byte in 3..=u8::MAX) {
        let us = |length| Duration::from_micros(u64::from(length));
        let durations = Durations { decode: us(lengths[0]), predict: us(lengths[1]), encode: us(lengths[2]) };
        let sent = BatchEnd { batch: BatchId(batch), durations, is_clean: how == 1, is_out_of_memory: how == 2 };
        let (header, mut table, _) = split(&sent.encode());
        prop_assert_eq!(header.kind, Kind::BatchEnd);
        prop_assert_eq!(BatchEnd::decode(&table).unwrap(), sent);
        prop_assert!(BatchEnd::decode(&table[..cut]).is_err());
        prop_assert!(BatchEnd::decode(&[&table[..], &[0]].concat()).is_err());
        *table.last_mut().unwrap() = byte;
        prop_assert!(BatchEnd::decode(&table).is_err(), "no way to run has this number");
    }

    #[test]
    fn frames_survive_a_cut_at_any_place(calls in calls(), entries in entries(), cut in any::<prop::sample::Index>()) {
        let frames = vec![batch_bytes(&calls), small_frame(Kind::Ping, b"").concat(), results_bytes(BATCH, &entries), end(BATCH).encode()];
        let stream = frames.concat();
        prop_assert_eq!(read(Pieces::cut(&stream, cut.index(stream.len()))).unwrap(), frames);
    }

    #[test]
    fn a_stream_that_ends_inside_a_frame_is_an_error(entries in entries(), cut in any::<prop::sample::Index>()) {
        let frame = results_bytes(BATCH, &entries);
        let end = 1 + cut.index(frame.len() - 1);
        let error = read(Pieces::of(&frame[..end], 64)).unwrap_err();
        prop_assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_truncated_table_is_refused(calls in calls(), entries in entries(), cut in any::<prop::sample::Index>()) {
        let (_, table, payload) = split(&batch_bytes(&calls));
        prop_assert!(batch_frame::decode(&table[..cut.index(table.len())], payload).is_err());
        let (_, table, payload) = split(&results_bytes(BATCH, &entries));
        prop_assert!(results_frame::decode(&table[..cut.index(table.len())], &Bytes::from(payload).into()).is_err());
    }

    #[test]
    fn damaged_tables_are_refused_or_read_within_bounds(
        calls in calls(),
        entries in entries(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        kept in any::<prop::sample::Index>(),
    ) {
        for (mut table, payload, decode) in [
            { let (_, table, payload) = split(&batch_bytes(&calls)); (table, payload, decode_batch as fn(&[u8], &[u8])) },
            { let (_, table, payload) = split(&results_bytes(BATCH, &entries)); (table, payload, decode_results) },
        ] {
            for (place, byte) in &damage {
                let place = place.index(table.len());
                table[place] = *byte;
            }
            decode(&table, &payload);
            decode(&table, &payload[..kept.index(payload.len() + 1)]);
        }
    }

    #[test]
    fn garbage_is_never_indexed_out_of_bounds(garbage in prop::collection::vec(any::<u8>(), 0..400)) {
        decode_batch(&garbage, &garbage);
        decode_results(&garbage, &garbage);
        // With a plausible beginning, so that more than the first check is reached.
        let head = [&[0; 4][..], &7u64.to_le_bytes(), &2u32.to_le_bytes(), &garbage].concat();
        decode_batch(&head, &garbage);
        let head = [&7u64.to_le_bytes()[..], &[0; 4], &2u32.to_le_bytes(), &garbage].concat();
        decode_results(&head, &garbage);
        drop(read(Pieces::of(&garbage, 50)));
        drop(read(Pieces::of(&[b"JY\x03\x23", &garbage[..]].concat(), 50)));
    }
}

#[test]
fn one_byte_per_read_and_every_cut_of_one_frame() {
    let calls = [
        (call(1, vec![bytes_part("first"), bytes_part("other")], Encoding::Json), Duration::from_secs(1)),
        (call(2, vec![bytes_part("second")], Encoding::Msgpack), Duration::from_secs(2)),
    ];
    let frame = batch_bytes(&calls);
    let twice = [frame.clone(), frame.clone()];
    assert_eq!(read(Pieces::of(&twice.concat(), 1)).unwrap(), twice);
    for cut in 0..=frame.len() {
        assert_eq!(read(Pieces::cut(&frame, cut)).unwrap(), [&frame[..]], "cut at {cut}");
        let (_, table, payload) = split(&frame);
        if cut < table.len() {
            assert!(batch_frame::decode(&table[..cut], payload).is_err(), "table cut at {cut}");
        }
    }
}

#[test]
fn counts_and_lengths_beyond_what_came_are_refused() {
    let table = [&[0; 4][..], &7u64.to_le_bytes(), &u32::MAX.to_le_bytes(), &[0; 64]].concat();
    let text = "the table of a frame is damaged: it announces more entries than it holds";
    assert_eq!(batch_frame::decode(&table, vec![]).unwrap_err().to_string(), text);
    let table = [&7u64.to_le_bytes()[..], &[0; 4], &u32::MAX.to_le_bytes(), &[0; 64]].concat();
    assert_eq!(results_frame::decode(&table, &Payload::default()).unwrap_err().to_string(), text);
}

#[test]
fn headers_say_what_is_wrong_with_them() {
    let good = Header { kind: Kind::Batch, table: 5, payload: 6 }.encode();
    assert_eq!(Header::decode(&good), Ok(Header { kind: Kind::Batch, table: 5, payload: 6 }));
    let with = |place: usize, bytes: &[u8]| {
        let mut header = good;
        header[place..place + bytes.len()].copy_from_slice(bytes);
        Header::decode(&header).unwrap_err()
    };
    assert_eq!(with(0, b"GE").to_string(), "not a frame: it begins with 0x4547");
    let text = "the other end speaks frame version 2, this end 3; install one version of jitney on both";
    assert_eq!(with(2, &[2]).to_string(), text);
    assert_eq!(with(3, &[200]), FrameError::Kind(200));
    assert!(matches!(with(4, &u32::MAX.to_le_bytes()), FrameError::TooLarge { table: u32::MAX, payload: 6 }));
    assert!(matches!(with(8, &u64::MAX.to_le_bytes()), FrameError::TooLarge { table: 5, payload: u64::MAX }));
}

#[test]
fn a_header_that_announces_much_costs_only_what_comes() {
    // The most that a header may announce: were it taken at its word, a machine with less memory would end here.
    let header = Header { kind: Kind::Batch, table: 256 << 20, payload: 16 << 30 }.encode();
    let before = peak_address_space();
    let error = read(Pieces::of(&[&header[..], b"no more"].concat(), 100)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(peak_address_space() - before < 1 << 30, "a gigabyte for a header");
}

/// Most bytes of address space that this process ever had; 0 where the system does not say.
fn peak_address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}
