//! Everything that reads bytes of others, fed with damaged versions of what it should get.
//!
//! What a coverage-guided fuzzer would run, on the stable toolchain: each case takes files of `tests/corpus`, cuts, joins and
//! changes them, and gives the outcome to every reader. `make fuzz` runs many more cases. An input that broke something
//! is kept in the corpus, where each file is also given unchanged.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod targets;

use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::LazyLock;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

static CORPUS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    // The same order everywhere, so that a seed means the same.
    paths.sort();
    assert!(paths.len() > 10, "the corpus is not there");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
});

/// One change to some bytes; places are taken modulo the length.
#[derive(Clone, Debug)]
enum Change {
    Set(usize, u8),
    Flip(usize, u8),
    /// A number that lengths and counts go wrong at.
    Number(usize, u64, usize),
    Cut(usize),
    Remove(usize, usize),
    Repeat(usize, usize),
    Splice(usize, usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let place = || 0..4096usize;
    let number =
        prop::sample::select(vec![0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX]);
    prop_oneof![
        4 => (place(), any::<u8>()).prop_map(|(place, byte)| Change::Set(place, byte)),
        4 => (place(), 0..8u8).prop_map(|(place, bit)| Change::Flip(place, bit)),
        4 => (place(), number, 0..4usize).prop_map(|(place, number, width)| Change::Number(place, number, 1 << width)),
        1 => place().prop_map(Change::Cut),
        2 => (place(), 0..40usize).prop_map(|(place, length)| Change::Remove(place, length)),
        2 => (place(), 0..40usize).prop_map(|(place, length)| Change::Repeat(place, length)),
        2 => (place(), place(), place()).prop_map(|(place, other, from)| Change::Splice(place, other, from)),
    ]
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        let at = |place: usize| place % length.max(1);
        match *self {
            _ if length == 0 => {}
            Change::Set(place, byte) => bytes[at(place)] = byte,
            Change::Flip(place, bit) => bytes[at(place)] ^= 1 << bit,
            Change::Number(place, number, width) => {
                let start = at(place);
                let end = (start + width).min(length);
                bytes[start..end].copy_from_slice(&number.to_le_bytes()[..end - start]);
            }
            Change::Cut(place) => bytes.truncate(at(place)),
            Change::Remove(place, count) => drop(bytes.drain(at(place)..(at(place) + count).min(length))),
            Change::Repeat(place, count) => {
                let piece = bytes[at(place)..(at(place) + count).min(length)].to_vec();
                bytes.splice(at(place)..at(place), piece);
            }
            Change::Splice(place, other, from) => {
                let other = &CORPUS[other % CORPUS.len()];
                let tail = &other[from % other.len().max(1)..];
                bytes.splice(at(place).., tail.iter().copied());
            }
        }
    }
}

proptest! {
    #[test]
    fn damaged_bytes_are_refused_or_read(which in any::<prop::sample::Index>(), changes in prop::collection::vec(change(), 0..10)) {
        let mut bytes = CORPUS[which.index(CORPUS.len())].clone();
        changes.iter().for_each(|change| change.apply(&mut bytes));
        targets::all(&bytes);
    }
}

#[test]
fn the_corpus_itself_is_refused_or_read() {
    CORPUS.iter().for_each(|bytes| targets::all(bytes));
}

#[test]
fn the_corpus_reaches_what_it_is_for() {
    let read = |name: &str| std::fs::read(folder().join(name)).unwrap();
    assert!(targets::batch(&read("batch-tensors")));
    assert!(targets::batch(&read("batch-texts")));
    assert!(targets::batch(&read("batch-metadata")));
    assert!(targets::results(&read("results-mixed")));
    assert!(targets::results(&read("results-parts")));
    assert!(targets::step(&read("step")));
    assert!(targets::batch_end(&read("batch-end")));
    assert!(targets::stream(&read("stream-three-frames")));
    assert!(targets::array(&read("array.json")));
    assert!(targets::array(&read("array.msgpack")));
    assert!(targets::npy(&read("array-v1.npy")) && targets::npy(&read("array-v2.npy")));
    assert!(targets::list(&read("list.json")) && targets::list(&read("list.msgpack")));
    assert!(targets::rows(&read("rows.npy")));
    assert!(targets::fields(&read("object.json")) && targets::fields(&read("object.msgpack")));
}
