//! A store that remembers which parts of it were read.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use ext4kit_format::num::wide;
use ext4kit_format::store::Store;

/// A store that only reads, and remembers what. It is not mapped, so that nothing is read past it.
pub struct Witness {
    store: Arc<dyn Store>,
    /// Start and end of what was read, in bytes; neither touching nor overlapping.
    seen: Mutex<BTreeMap<u64, u64>>,
}

impl Witness {
    /// A witness of what is read from a store from now on.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, seen: Mutex::default() }
    }

    /// The store below, for reads that do not count.
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The blocks of this size that were read, in ascending order.
    pub fn blocks(&self, block_size: u32) -> Vec<Range<u64>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let size = u64::from(block_size.max(1));
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (start, end) in seen.iter() {
            let first = start.checked_div(size).unwrap_or(0);
            let behind = end.div_ceil(size);
            match runs.last_mut() {
                Some(last) if last.end >= first => last.end = last.end.max(behind),
                _ => runs.push(first..behind),
            }
        }
        runs
    }

    fn note(&self, start: u64, end: u64) {
        if start == end {
            return;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut start, mut end) = (start, end);
        // Each piece that is swallowed was put in once, so that this is cheap in the long run.
        while let Some((first, last)) = seen.range(..=end).next_back().map(|(first, last)| (*first, *last)) {
            if last < start {
                break;
            }
            if first <= start && last >= end {
                return;
            }
            seen.remove(&first);
            start = start.min(first);
            end = end.max(last);
        }
        seen.insert(start, end);
    }
}

impl Store for Witness {
    fn size(&self) -> u64 {
        self.store.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.store.read_at(offset, buffer)?;
        self.note(offset, offset.saturating_add(wide(buffer.len())));
        Ok(())
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn zero_range(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use ext4kit_format::store::MemoryStore;

    use super::*;

    #[test]
    fn pieces_are_joined_and_rounded_to_blocks() {
        let witness = Witness::new(Arc::new(MemoryStore::new(1 << 16)));
        let read = |start: u64, length: usize| witness.read_at(start, &mut vec![0; length]).unwrap();
        for (start, length) in [(5000, 10), (1024, 1024), (2048, 100), (9000, 0), (5005, 1), (4990, 500)] {
            read(start, length);
        }
        assert_eq!(witness.blocks(1024), [1..3, 4..6]);
        read(0, 1 << 16);
        assert_eq!(witness.blocks(1024).first(), Some(&(0..64)));
    }
}
