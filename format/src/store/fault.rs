//! A device that fails as it is told: errors, torn writes, lost writes, a power cut.
//!
//! Operations are counted by kind from 0. A test lets the work run once over a store without rules, asks
//! [`Fault::counts`], and then runs it again with a fault at each of them.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::{Store, check_write};
use crate::num;

/// The kinds of operation that a rule can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`Store::read_at`].
    Read,
    /// [`Store::write_at`] and [`Store::zero_range`], which share one count.
    Write,
    /// [`Store::flush`].
    Flush,
}

/// Which operations of the kind a rule strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The n-th, counted from 0.
    Nth(u64),
    /// The n-th and all that follow.
    From(u64),
}

/// What happens to an operation that a rule strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does nothing and gives an error of this kind.
    Fail(io::ErrorKind),
    /// Of a write, only the first `keep` bytes arrive, and it gives an error. Reads and flushes fail.
    Torn {
        /// Bytes that arrive.
        keep: u64,
    },
    /// Of a write or flush nothing arrives, and it says that all went well. Reads fail, having nothing to give.
    Lost,
    /// The power goes. Of a write that is struck, the first `keep` bytes arrive; it and everything after it fails.
    PowerCut {
        /// Bytes that arrive.
        keep: u64,
    },
    /// The same, but nobody is told: this and all later writes and flushes say that all went well, and vanish. Reads
    /// go on and give what arrived.
    SilentPowerCut {
        /// Bytes that arrive.
        keep: u64,
    },
}

/// One fault: what it strikes and what it does. Of several rules that strike the same operation, the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The kind of operation.
    pub operation: Operation,
    /// Which of them.
    pub when: When,
    /// What happens.
    pub effect: Effect,
}

/// How many operations of each kind a store was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes and ranges of zeros.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
}

const POWERED: u8 = 0;
const DEAD: u8 = 1;
const SILENTLY_DEAD: u8 = 2;

/// A store that fails by rules.
#[derive(Debug)]
pub struct Fault<S> {
    inner: S,
    rules: Vec<Rule>,
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    power: AtomicU8,
}

/// What is left of an operation.
enum Outcome {
    /// It goes through.
    Whole,
    /// A write's first bytes arrive, and then there is this error or none.
    Part(u64, Result<(), io::Error>),
}

impl<S: Store> Fault<S> {
    /// A store that keeps these rules.
    pub fn new(inner: S, rules: impl IntoIterator<Item = Rule>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            inner,
            rules: rules.into_iter().collect(),
            reads: zero(),
            writes: zero(),
            flushes: zero(),
            power: AtomicU8::new(POWERED),
        }
    }

    /// What was asked for so far, whether it was struck or not.
    pub fn counts(&self) -> Counts {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Counts { reads: count(&self.reads), writes: count(&self.writes), flushes: count(&self.flushes) }
    }

    /// Whether a rule has cut the power.
    pub fn is_dead(&self) -> bool {
        self.power.load(Ordering::SeqCst) != POWERED
    }

    /// The store below, with what arrived.
    pub fn into_inner(self) -> S {
        self.inner
    }

    fn outcome(&self, operation: Operation) -> Outcome {
        let counter = match operation {
            Operation::Read => &self.reads,
            Operation::Write => &self.writes,
            Operation::Flush => &self.flushes,
        };
        let number = counter.fetch_add(1, Ordering::SeqCst);
        match self.power.load(Ordering::SeqCst) {
            DEAD => return Outcome::Part(0, Err(power_is_off())),
            SILENTLY_DEAD if operation == Operation::Read => return Outcome::Whole,
            SILENTLY_DEAD => return Outcome::Part(0, Ok(())),
            _ => {}
        }
        let strikes = |rule: &&Rule| {
            rule.operation == operation
                && match rule.when {
                    When::Nth(nth) => number == nth,
                    When::From(nth) => number >= nth,
                }
        };
        self.rules.iter().find(strikes).map_or(Outcome::Whole, |rule| self.strike(operation, rule.effect))
    }

    fn strike(&self, operation: Operation, effect: Effect) -> Outcome {
        match effect {
            Effect::Fail(kind) => Outcome::Part(0, Err(io::Error::new(kind, "injected fault"))),
            Effect::Torn { keep } => Outcome::Part(keep, Err(io::Error::other("injected torn write"))),
            Effect::Lost if operation == Operation::Read => {
                Outcome::Part(0, Err(io::Error::other("injected lost read")))
            }
            Effect::Lost => Outcome::Part(0, Ok(())),
            Effect::PowerCut { keep } => {
                self.power.store(DEAD, Ordering::SeqCst);
                Outcome::Part(keep, Err(power_is_off()))
            }
            Effect::SilentPowerCut { keep } => {
                self.power.store(SILENTLY_DEAD, Ordering::SeqCst);
                if operation == Operation::Read { Outcome::Whole } else { Outcome::Part(keep, Ok(())) }
            }
        }
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("injected power cut")
}

impl<S: Store> Store for Fault<S> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self.outcome(Operation::Read) {
            Outcome::Whole => self.inner.read_at(offset, buffer),
            Outcome::Part(_, end) => end,
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        check_write(self.size(), offset, num::wide(bytes.len()))?;
        match self.outcome(Operation::Write) {
            Outcome::Whole => self.inner.write_at(offset, bytes),
            Outcome::Part(keep, end) => {
                let kept = bytes.get(..num::index64(keep)).unwrap_or(bytes);
                if !kept.is_empty() {
                    self.inner.write_at(offset, kept)?;
                }
                end
            }
        }
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        check_write(self.size(), offset, length)?;
        match self.outcome(Operation::Write) {
            Outcome::Whole => self.inner.zero_range(offset, length),
            Outcome::Part(keep, end) => {
                if keep > 0 {
                    self.inner.zero_range(offset, length.min(keep))?;
                }
                end
            }
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self.outcome(Operation::Flush) {
            Outcome::Whole => self.inner.flush(),
            Outcome::Part(_, end) => end,
        }
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
    use super::super::{MemoryStore, contract};
    use super::*;

    fn faulty(operation: Operation, when: When, effect: Effect) -> Fault<MemoryStore> {
        Fault::new(MemoryStore::new(8), [Rule { operation, when, effect }])
    }

    fn write(store: &dyn Store, at: u64, byte: u8) -> io::Result<()> {
        store.write_at(at, &[byte; 2])
    }

    #[test]
    fn without_rules_it_keeps_the_contract() {
        contract::check(&Fault::new(MemoryStore::new(contract::SIZE), []));
    }

    #[test]
    fn operations_are_counted_by_kind() {
        let store = Fault::new(MemoryStore::new(8), []);
        write(&store, 0, 1).unwrap();
        store.zero_range(0, 8).unwrap();
        store.flush().unwrap();
        for _ in 0..3 {
            store.read_at(0, &mut [0]).unwrap();
        }
        assert_eq!(store.counts(), Counts { reads: 3, writes: 2, flushes: 1 });
    }

    #[test]
    fn the_nth_fails_and_only_the_nth() {
        let store = faulty(Operation::Write, When::Nth(1), Effect::Fail(io::ErrorKind::StorageFull));
        write(&store, 0, 1).unwrap();
        assert_eq!(write(&store, 2, 2).unwrap_err().kind(), io::ErrorKind::StorageFull);
        write(&store, 4, 3).unwrap();
        assert_eq!(store.into_inner().to_vec(), [1, 1, 0, 0, 3, 3, 0, 0]);
    }

    #[test]
    fn from_the_nth_on_all_fail() {
        let store = faulty(Operation::Read, When::From(1), Effect::Fail(io::ErrorKind::Other));
        let mut buffer = [0];
        store.read_at(0, &mut buffer).unwrap();
        assert!(store.read_at(0, &mut buffer).is_err());
        assert!(store.read_at(0, &mut buffer).is_err());
        write(&store, 0, 1).unwrap();
        store.flush().unwrap();
    }

    #[test]
    fn a_torn_write_leaves_its_first_bytes() {
        let store = faulty(Operation::Write, When::From(1), Effect::Torn { keep: 3 });
        store.write_at(0, &[9; 8]).unwrap();
        assert!(store.write_at(0, &[1; 5]).is_err());
        assert!(store.zero_range(4, 4).is_err());
        assert_eq!(store.into_inner().to_vec(), [1, 1, 1, 9, 0, 0, 0, 9]);
    }

    #[test]
    fn a_lost_write_claims_success() {
        let store = faulty(Operation::Write, When::Nth(0), Effect::Lost);
        write(&store, 0, 1).unwrap();
        write(&store, 2, 2).unwrap();
        assert_eq!(store.into_inner().to_vec(), [0, 0, 2, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn after_a_power_cut_everything_fails() {
        let store = faulty(Operation::Write, When::Nth(1), Effect::PowerCut { keep: 1 });
        write(&store, 0, 1).unwrap();
        assert!(!store.is_dead());
        assert!(write(&store, 2, 2).is_err());
        assert!(store.is_dead());
        assert!(write(&store, 4, 3).is_err() && store.flush().is_err() && store.zero_range(0, 8).is_err());
        assert!(store.read_at(0, &mut [0]).is_err());
        assert_eq!(store.into_inner().to_vec(), [1, 1, 2, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn after_a_silent_power_cut_everything_vanishes() {
        let store = faulty(Operation::Flush, When::Nth(0), Effect::SilentPowerCut { keep: 0 });
        write(&store, 0, 1).unwrap();
        store.flush().unwrap();
        write(&store, 2, 2).unwrap();
        store.zero_range(0, 8).unwrap();
        let mut buffer = [7; 4];
        store.read_at(0, &mut buffer).unwrap();
        assert_eq!(buffer, [1, 1, 0, 0]);
        assert_eq!(store.counts(), Counts { reads: 1, writes: 3, flushes: 1 });
        assert_eq!(store.into_inner().to_vec(), [1, 1, 0, 0, 0, 0, 0, 0]);
    }
}
