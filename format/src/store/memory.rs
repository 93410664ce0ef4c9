//! Sparse memory: the store of tests, and the scratch image of whoever tries something out.
//!
//! Bytes are kept in chunks, and a chunk that was never written, or was zeroed as a whole, takes no memory. A clone
//! shares its chunks with the original until one of the two changes them, so that a thousand crash states
//! of one image cost what differs between them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, RwLock};

use super::{Store, check_read, check_write, rest, sync};
use crate::{bytes, num};

/// Bytes in a chunk. Small enough that one changed block copies little, large enough that the map stays small.
const CHUNK: u64 = 16 << 10;

/// How much [`MemoryStore::copy_of`] reads at a time: a whole number of chunks.
const COPY_STEP: u64 = 64 * CHUNK;

/// Bytes in memory. Durable at once, and gone with the process.
#[derive(Default)]
pub struct MemoryStore {
    size: u64,
    chunks: RwLock<BTreeMap<u64, Arc<[u8]>>>,
}

/// The part of an access that lies in one chunk.
struct Piece {
    /// Which chunk.
    chunk: u64,
    /// Where in the chunk the piece begins.
    start: usize,
    /// Its length, at least 1.
    length: usize,
}

impl MemoryStore {
    /// A store of this many zero bytes. Nothing is allocated until it is written.
    pub fn new(size: u64) -> Self {
        Self { size, chunks: RwLock::default() }
    }

    /// A store that holds these bytes.
    pub fn from_bytes(contents: &[u8]) -> Self {
        let store = Self::new(num::wide(contents.len()));
        store.write_pieces(0, contents);
        store
    }

    /// A copy of another store, which is read once from end to end.
    pub fn copy_of(other: &dyn Store) -> io::Result<Self> {
        let copy = Self::new(other.size());
        let mut buffer = vec![0; num::index64(COPY_STEP)];
        let mut at = 0;
        while let Some(data) = other.next_data(at)? {
            at = data.start;
            while at < data.end {
                let count = data.end.saturating_sub(at).min(COPY_STEP);
                let Some(part) = buffer.get_mut(..num::index64(count)) else { break };
                other.read_at(at, part)?;
                copy.write_pieces(at, part);
                at = at.saturating_add(count);
            }
        }
        Ok(copy)
    }

    /// Writes what is not zero, chunk by chunk, to a range that lies inside the store and is still zero.
    fn write_pieces(&self, offset: u64, contents: &[u8]) {
        let mut chunks = sync::write(&self.chunks);
        let mut rest = contents;
        for piece in pieces(offset, contents.len()) {
            let Some((part, after)) = rest.split_at_checked(piece.length) else { break };
            if !bytes::all_zero(part)
                && let Some(target) = writable(&mut chunks, &piece)
            {
                target.copy_from_slice(part);
            }
            rest = after;
        }
    }

    /// All bytes in one piece. For stores that are known to be small.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut contents = vec![0; num::index64(self.size)];
        for (number, chunk) in &*sync::read(&self.chunks) {
            let start = num::index64(number.saturating_mul(CHUNK));
            let length = contents.len().saturating_sub(start).min(chunk.len());
            if let (Some(target), Some(source)) =
                (bytes::span_mut(&mut contents, start, length), chunk.get(..length))
            {
                target.copy_from_slice(source);
            }
        }
        contents
    }

    /// Bytes of memory that hold contents: what was written, rounded up to whole chunks.
    pub fn allocated(&self) -> u64 {
        num::wide(sync::read(&self.chunks).len()).saturating_mul(CHUNK)
    }
}

impl Clone for MemoryStore {
    /// The store as it is now. Chunks are shared until either side changes them.
    fn clone(&self) -> Self {
        Self { size: self.size, chunks: RwLock::new(sync::read(&self.chunks).clone()) }
    }
}

impl fmt::Debug for MemoryStore {
    /// Its sizes; an image's bytes would drown the message they are part of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allocated = self.allocated();
        f.debug_struct("MemoryStore")
            .field("size", &self.size)
            .field("allocated", &allocated)
            .finish_non_exhaustive()
    }
}

/// Cuts a range that is known to lie inside the store at the borders of chunks.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = Piece> {
    let mut at = offset;
    let mut left = length;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let start = at.checked_rem(CHUNK)?;
        let length = left.min(num::index64(CHUNK.saturating_sub(start)));
        let piece = Piece { chunk: at.checked_div(CHUNK)?, start: num::index64(start), length };
        at = at.saturating_add(num::wide(length));
        left = left.saturating_sub(length);
        Some(piece)
    })
}

/// The piece's bytes inside its chunk, copied first if a clone of the store still needs them.
fn writable<'a>(chunks: &'a mut BTreeMap<u64, Arc<[u8]>>, piece: &Piece) -> Option<&'a mut [u8]> {
    let chunk = chunks.entry(piece.chunk).or_insert_with(|| Arc::from(vec![0; num::index64(CHUNK)]));
    bytes::span_mut(Arc::make_mut(chunk), piece.start, piece.length)
}

impl Store for MemoryStore {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_read(self.size, offset, num::wide(buffer.len()))?;
        let chunks = sync::read(&self.chunks);
        let mut left = buffer;
        for piece in pieces(offset, left.len()) {
            let Some((part, after)) = left.split_at_mut_checked(piece.length) else { break };
            match chunks.get(&piece.chunk).and_then(|chunk| bytes::span(chunk, piece.start, piece.length)) {
                Some(source) => part.copy_from_slice(source),
                None => part.fill(0),
            }
            left = after;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        check_write(self.size, offset, num::wide(bytes.len()))?;
        let mut chunks = sync::write(&self.chunks);
        let mut rest = bytes;
        for piece in pieces(offset, rest.len()) {
            let Some((part, after)) = rest.split_at_checked(piece.length) else { break };
            if let Some(target) = writable(&mut chunks, &piece) {
                target.copy_from_slice(part);
            }
            rest = after;
        }
        Ok(())
    }

    /// Discarded bytes read as zero.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.zero_range(offset, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        check_write(self.size, offset, length)?;
        let end = offset.saturating_add(length);
        let mut chunks = sync::write(&self.chunks);
        // Only chunks that exist are visited, so that zeroing a huge empty store costs nothing.
        let first = offset.checked_div(CHUNK).unwrap_or(0);
        let touched: Vec<u64> = chunks.range(first..end.div_ceil(CHUNK)).map(|(number, _)| *number).collect();
        for number in touched {
            let chunk_start = number.saturating_mul(CHUNK);
            let from = offset.max(chunk_start).saturating_sub(chunk_start);
            let to = end.saturating_sub(chunk_start).min(CHUNK);
            if from == 0 && to == CHUNK {
                chunks.remove(&number);
                continue;
            }
            let start = num::index64(from);
            let length = num::index64(to.saturating_sub(from));
            if let Some(part) = writable(&mut chunks, &Piece { chunk: number, start, length }) {
                part.fill(0);
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let chunks = sync::read(&self.chunks);
        let first = offset.checked_div(CHUNK).unwrap_or(0);
        let mut numbers = chunks.range(first..).map(|(number, _)| *number);
        let Some(start) = numbers.next() else { return Ok(None) };
        let mut end = start.saturating_add(1);
        while numbers.next() == Some(end) {
            end = end.saturating_add(1);
        }
        let from = start.saturating_mul(CHUNK).max(offset);
        Ok(rest(from, end.saturating_mul(CHUNK).min(self.size)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::contract;
    use super::*;

    #[test]
    fn keeps_the_contract() {
        contract::check(&MemoryStore::new(contract::SIZE));
    }

    #[test]
    fn a_huge_store_takes_what_is_written() {
        let store = MemoryStore::new(1 << 50);
        store.write_at((1 << 49) - 3, b"across a border").unwrap();
        assert_eq!(store.allocated(), 2 * CHUNK);
        let data = store.next_data(5).unwrap();
        assert_eq!(data, Some((1 << 49) - CHUNK..(1 << 49) + CHUNK));
        assert_eq!(store.next_data((1 << 49) + CHUNK).unwrap(), None);
        assert_eq!(MemoryStore::copy_of(&store).unwrap().allocated(), 2 * CHUNK);
        store.zero_range(0, 1 << 50).unwrap();
        assert_eq!(store.allocated(), 0);
    }

    #[test]
    fn a_clone_is_a_snapshot() {
        let store = MemoryStore::from_bytes(b"old bytes");
        let snapshot = store.clone();
        store.write_at(0, b"new").unwrap();
        snapshot.write_at(4, b"stays").unwrap();
        assert_eq!(store.to_vec(), b"new bytes");
        assert_eq!(snapshot.to_vec(), b"old stays");
    }

    #[test]
    fn a_copy_has_the_same_bytes_and_keeps_the_holes() {
        let size = 3 * COPY_STEP + 77;
        let store = MemoryStore::new(size);
        store.write_at(size - 5, b"tail!").unwrap();
        store.write_at(COPY_STEP - 2, b"seam").unwrap();
        let copy = MemoryStore::copy_of(&store).unwrap();
        assert_eq!(copy.to_vec(), store.to_vec());
        assert_eq!(copy.allocated(), 3 * CHUNK);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, usize, u8),
        Zero(usize, usize),
        Read(usize, usize),
    }

    fn steps(size: usize) -> impl Strategy<Value = Vec<Step>> {
        let step = (0..3, 0..size, 0..size, 1..=255u8).prop_map(move |(kind, at, length, byte)| {
            let length = length.min(size - at);
            match kind {
                0 => Step::Write(at, length, byte),
                1 => Step::Zero(at, length),
                _ => Step::Read(at, length),
            }
        });
        proptest::collection::vec(step, 1..20)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn behaves_like_a_vector(steps in steps(50_000)) {
            let store = MemoryStore::new(50_000);
            let mut model = vec![0u8; 50_000];
            for step in steps {
                match step {
                    Step::Write(at, length, byte) => {
                        store.write_at(num::wide(at), &vec![byte; length]).unwrap();
                        model[at..at + length].fill(byte);
                    }
                    Step::Zero(at, length) => {
                        store.zero_range(num::wide(at), num::wide(length)).unwrap();
                        model[at..at + length].fill(0);
                    }
                    Step::Read(at, length) => {
                        let mut buffer = vec![1; length];
                        store.read_at(num::wide(at), &mut buffer).unwrap();
                        prop_assert_eq!(&buffer[..], &model[at..at + length]);
                    }
                }
            }
            prop_assert_eq!(store.to_vec(), model.clone());
            prop_assert_eq!(MemoryStore::from_bytes(&model).to_vec(), model);
        }
    }
}
