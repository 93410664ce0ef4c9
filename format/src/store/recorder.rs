//! Every write and flush that reached a store, in order: what crash states are made from.
//!
//! Writes pass one at a time, so that the record's order is the order in which the store below saw them. A flush
//! does not hold writes up; it remembers how many operations it covers. Only what succeeded is recorded. To record
//! what a failing device did, put the recorder below the fault injector: it then sees the torn half of
//! a write and nothing of a lost one.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::{Store, sync};
use crate::num;

/// One thing that happened to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Bytes were written.
    Write {
        /// Where the first byte went.
        offset: u64,
        /// What was written.
        bytes: Arc<[u8]>,
    },
    /// A range was made to read as zero.
    ZeroRange {
        /// Its first byte.
        offset: u64,
        /// Its length in bytes.
        length: u64,
    },
    /// A flush returned.
    Flush {
        /// The first so many operations of the record had returned when it was called, and are durable from here.
        covers: usize,
    },
    /// The caller left a mark, such as "the third fsync was acknowledged".
    Mark(u64),
}

impl Operation {
    /// Whether this changes the store's bytes.
    pub fn changes_bytes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::ZeroRange { .. })
    }

    /// Does it again, to another store.
    pub fn apply(&self, store: &dyn Store) -> io::Result<()> {
        match self {
            Self::Write { offset, bytes } => store.write_at(*offset, bytes),
            Self::ZeroRange { offset, length } => store.zero_range(*offset, *length),
            Self::Flush { .. } => store.flush(),
            Self::Mark(_) => Ok(()),
        }
    }
}

/// What happened to a store so far. A clone is a handle on the same record.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Vec<Operation>>>);

impl Record {
    /// How many operations were recorded.
    pub fn len(&self) -> usize {
        sync::lock(&self.0).len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        sync::lock(&self.0).is_empty()
    }

    /// The operations so far. Cheap: the bytes are shared.
    pub fn operations(&self) -> Vec<Operation> {
        sync::lock(&self.0).clone()
    }

    /// Bytes changed by the operations so far, counted as often as they were changed.
    pub fn bytes_changed(&self) -> u64 {
        sync::lock(&self.0).iter().fold(0, |sum: u64, operation| match operation {
            Operation::Write { bytes, .. } => sum.saturating_add(num::wide(bytes.len())),
            Operation::ZeroRange { length, .. } => sum.saturating_add(*length),
            Operation::Flush { .. } | Operation::Mark(_) => sum,
        })
    }

    /// Adds a mark, which replays as nothing.
    pub fn mark(&self, mark: u64) {
        sync::lock(&self.0).push(Operation::Mark(mark));
    }

    /// Repeats the first `count` operations on a store that holds what the recorded one held at the start.
    /// A count beyond the end means all of them.
    pub fn replay_prefix(&self, count: usize, store: &dyn Store) -> io::Result<()> {
        self.operations().iter().take(count).try_for_each(|operation| operation.apply(store))
    }

    /// Of the first `count` operations, the indices of the changes that no flush among them covers: each of these may
    /// be missing after a power cut there, whatever became of the others.
    pub fn volatile_after(&self, count: usize) -> Vec<usize> {
        let operations = sync::lock(&self.0);
        let prefix = operations.get(..count).unwrap_or(&operations);
        let durable = prefix.iter().filter_map(|operation| match operation {
            Operation::Flush { covers } => Some(*covers),
            _ => None,
        });
        let durable = durable.max().unwrap_or(0);
        let late = prefix.iter().enumerate().skip(durable);
        late.filter(|(_, operation)| operation.changes_bytes()).map(|(index, _)| index).collect()
    }
}

/// A store whose changes are recorded.
#[derive(Debug)]
pub struct Recorder<S> {
    inner: S,
    record: Record,
}

impl<S: Store> Recorder<S> {
    /// Records what happens to a store from now on.
    pub fn new(inner: S) -> Self {
        Self { inner, record: Record::default() }
    }

    /// A handle on the record, good beyond the recorder's life.
    pub fn record(&self) -> Record {
        self.record.clone()
    }
}

impl<S: Store> Store for Recorder<S> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut record = sync::lock(&self.record.0);
        self.inner.write_at(offset, bytes)?;
        record.push(Operation::Write { offset, bytes: bytes.into() });
        Ok(())
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut record = sync::lock(&self.record.0);
        self.inner.zero_range(offset, length)?;
        record.push(Operation::ZeroRange { offset, length });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let covers = self.record.len();
        self.inner.flush()?;
        sync::lock(&self.record.0).push(Operation::Flush { covers });
        Ok(())
    }

    fn as_memory(&self) -> Option<&[u8]> {
        self.inner.as_memory()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.inner.next_data(offset)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Effect, Fault, FaultyOperation, MemoryStore, Rule, When, contract};
    use super::*;

    fn write(offset: u64, bytes: &[u8]) -> Operation {
        Operation::Write { offset, bytes: bytes.into() }
    }

    #[test]
    fn keeps_the_contract() {
        contract::check(&Recorder::new(MemoryStore::new(contract::SIZE)));
    }

    #[test]
    fn everything_is_kept_in_order_and_reads_are_not() {
        let store = Recorder::new(MemoryStore::new(100));
        let record = store.record();
        store.write_at(3, b"abc").unwrap();
        store.flush().unwrap();
        store.read_at(0, &mut [0]).unwrap();
        record.mark(7);
        store.zero_range(4, 1).unwrap();
        assert!(store.write_at(99, b"too long").is_err());
        drop(store);
        let expected = [
            write(3, b"abc"),
            Operation::Flush { covers: 1 },
            Operation::Mark(7),
            Operation::ZeroRange { offset: 4, length: 1 },
        ];
        assert_eq!(record.operations(), expected);
        assert_eq!(record.bytes_changed(), 4);
    }

    #[test]
    fn every_prefix_gives_the_state_of_that_moment() {
        let base = MemoryStore::from_bytes(b"..........");
        let store = Recorder::new(base.clone());
        let mut states = vec![base.to_vec()];
        for (offset, bytes) in [(0, b"aa"), (1, b"bb"), (8, b"cc"), (0, b"dd")] {
            store.write_at(offset, bytes).unwrap();
            states.push(store.inner.to_vec());
        }
        for (count, state) in states.iter().enumerate() {
            let crashed = base.clone();
            store.record().replay_prefix(count, &crashed).unwrap();
            assert_eq!(crashed.to_vec(), *state, "after {count} operations");
        }
        assert_eq!(base.to_vec(), b"..........");
    }

    #[test]
    fn what_no_flush_covers_is_volatile() {
        let record = Record::default();
        sync::lock(&record.0).extend([
            write(0, b"a"),
            write(1, b"b"),
            // Called before the second write returned, so that one is not durable yet.
            Operation::Flush { covers: 1 },
            Operation::ZeroRange { offset: 2, length: 1 },
            Operation::Flush { covers: 4 },
            write(3, b"c"),
        ]);
        assert_eq!(record.volatile_after(0), [] as [usize; 0]);
        assert_eq!(record.volatile_after(2), [0, 1]);
        assert_eq!(record.volatile_after(3), [1]);
        assert_eq!(record.volatile_after(4), [1, 3]);
        assert_eq!(record.volatile_after(5), [] as [usize; 0]);
        assert_eq!(record.volatile_after(99), [5]);
    }

    #[test]
    fn below_a_fault_injector_it_sees_the_torn_half() {
        let recorder = Recorder::new(MemoryStore::new(10));
        let record = recorder.record();
        let torn =
            Rule { operation: FaultyOperation::Write, when: When::Nth(1), effect: Effect::Torn { keep: 2 } };
        let store = Fault::new(recorder, [torn]);
        store.write_at(0, b"whole").unwrap();
        assert!(store.write_at(5, b"torn").is_err());
        assert_eq!(record.operations(), [write(0, b"whole"), write(5, b"to")]);
    }
}
