//! Dense sets and counters that many threads fill at once: a bit for each cluster, a byte for each inode.
//!
//! All of it is one word or byte at a time, read and changed atomically and in no order with anything else: what one
//! pass wrote, the next one reads after the threads of the first have ended.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use ext4kit_format::InodeNumber;
use ext4kit_format::geometry::Geometry;
use ext4kit_format::num::{index, index64, wide};
use rustc_hash::FxHashMap;
use zerocopy::FromZeros;

/// Zeros that take no memory until they are written.
fn zeros<T: FromZeros>(count: usize) -> Vec<T> {
    T::new_vec_zeroed(count).unwrap_or_else(|_| std::iter::repeat_with(T::new_zeroed).take(count).collect())
}

/// A dense set of bits.
#[derive(Debug)]
pub struct BitSet {
    words: Vec<AtomicU64>,
}

impl BitSet {
    /// An empty set of numbers below a limit.
    pub fn new(limit: u64) -> Self {
        Self { words: zeros(index64(limit.div_ceil(64))) }
    }

    /// Puts a number in; whether it was there.
    pub fn insert(&self, bit: u64) -> bool {
        self.insert_in_word(bit / 64, 1u64 << (bit % 64)) != 0
    }

    /// Puts in the numbers from one to another, both included. Tells of each word that held some of them before: its
    /// place, and which.
    pub fn insert_range(&self, first: u64, last: u64, mut again: impl FnMut(u64, u64)) {
        for (at, mask) in words_of(first, last) {
            let before = self.insert_in_word(at, mask);
            if before != 0 {
                again(at, before);
            }
        }
    }

    /// Puts the bits of a mask into a word; which of them were there.
    pub fn insert_in_word(&self, at: u64, mask: u64) -> u64 {
        let Some(word) = self.words.get(index64(at)) else { return 0 };
        let before = word.load(Relaxed);
        // A look is much cheaper than a change, and an image may name the same blocks again and again.
        if before & mask == mask { mask } else { word.fetch_or(mask, Relaxed) & mask }
    }

    /// Whether a number is there.
    pub fn contains(&self, bit: u64) -> bool {
        self.raw(bit / 64).is_some_and(|word| word & (1u64 << (bit % 64)) != 0)
    }

    /// The next number from one on, and before a limit, that is there. No word behind the limit is looked at.
    pub fn next(&self, range: Range<u64>) -> Option<u64> {
        self.search(range, |word| word)
    }

    /// The next number from one on, and before a limit, that is not there.
    pub fn next_absent(&self, range: Range<u64>) -> Option<u64> {
        self.search(range, |word| !word)
    }

    fn search(&self, range: Range<u64>, wanted: impl Fn(u64) -> u64) -> Option<u64> {
        let mut from = range.start;
        while from < range.end {
            let word = wanted(self.raw(from / 64)?) & (u64::MAX << (from % 64));
            let start = from & !63;
            if word != 0 {
                let found = start.saturating_add(word.trailing_zeros().into());
                return Some(found).filter(|found| *found < range.end);
            }
            from = start.saturating_add(64);
        }
        None
    }

    /// Whether the 64 numbers from any number on are there, the first in the lowest bit.
    pub fn word(&self, from: u64) -> u64 {
        let shift = u32::try_from(from % 64).unwrap_or(0);
        let low = self.raw(from / 64).unwrap_or(0);
        if shift == 0 {
            return low;
        }
        let high = self.raw((from / 64).saturating_add(1)).unwrap_or(0);
        low.wrapping_shr(shift) | high.wrapping_shl(64u32.saturating_sub(shift))
    }

    fn raw(&self, at: u64) -> Option<u64> {
        self.words.get(index64(at)).map(|word| word.load(Relaxed))
    }
}

/// The words that hold the numbers from one to another, both included, with a mask of these.
fn words_of(first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> {
    (first / 64..=last / 64).map(move |at| {
        let start = if at == first / 64 { first % 64 } else { 0 };
        let end = if at == last / 64 { last % 64 } else { 63 };
        (at, (u64::MAX << start) & (u64::MAX >> 63u64.saturating_sub(end)))
    })
}

/// A byte for each inode.
#[derive(Debug)]
pub struct InodeBytes {
    bytes: Vec<AtomicU8>,
}

impl InodeBytes {
    /// Zeros for so many inodes.
    pub fn new(inodes: u32) -> Self {
        Self { bytes: zeros(index(inodes)) }
    }

    /// An inode's byte; 0 for one that does not exist.
    pub fn get(&self, inode: InodeNumber) -> u8 {
        self.slot(inode).map_or(0, |slot| slot.load(Relaxed))
    }

    /// Sets an inode's byte.
    pub fn set(&self, inode: InodeNumber, value: u8) {
        if let Some(slot) = self.slot(inode) {
            slot.store(value, Relaxed);
        }
    }

    /// The bytes of `length` inodes whose numbers begin behind `before`; none if there are not so many.
    pub fn stretch(&self, before: usize, length: usize) -> &[AtomicU8] {
        self.bytes.get(before..before.saturating_add(length)).unwrap_or_default()
    }

    /// The bytes as they are.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes.into_iter().map(AtomicU8::into_inner).collect()
    }

    fn slot(&self, inode: InodeNumber) -> Option<&AtomicU8> {
        self.bytes.get(index(inode.get().saturating_sub(1)))
    }
}

/// A count for each inode: a byte, and a map for the few that count further.
#[derive(Debug)]
pub struct NameCounts {
    low: InodeBytes,
    beyond: Mutex<FxHashMap<InodeNumber, u32>>,
}

impl NameCounts {
    /// The most that a byte counts; what comes on top is in the map.
    pub const MOST_LOW: u8 = u8::MAX;

    /// Zeros for so many inodes.
    pub fn new(inodes: u32) -> Self {
        Self { low: InodeBytes::new(inodes), beyond: Mutex::default() }
    }

    /// Adds one.
    pub fn add(&self, inode: InodeNumber) {
        let Some(slot) = self.low.slot(inode) else { return };
        let more = |low: u8| low.checked_add(1);
        if slot.fetch_update(Relaxed, Relaxed, more).is_err() {
            let mut beyond = self.beyond.lock().unwrap_or_else(PoisonError::into_inner);
            let count = beyond.entry(inode).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// The count.
    pub fn get(&self, inode: InodeNumber) -> u32 {
        let low = self.low.get(inode);
        if low < Self::MOST_LOW {
            return low.into();
        }
        let beyond = self.beyond.lock().unwrap_or_else(PoisonError::into_inner);
        beyond.get(&inode).copied().unwrap_or(0).saturating_add(low.into())
    }

    /// The bytes alone; [`NameCounts::MOST_LOW`] may stand for more.
    pub fn low(&self) -> &InodeBytes {
        &self.low
    }

    /// All counts in order of inode.
    pub fn into_vec(self) -> Vec<u32> {
        let beyond = self.beyond.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut counts: Vec<u32> = self.low.into_vec().into_iter().map(u32::from).collect();
        for (inode, more) in beyond {
            if let Some(count) = counts.get_mut(index(inode.get().saturating_sub(1))) {
                *count = count.saturating_add(more);
            }
        }
        counts
    }
}

/// How much work may be spent on what a sound filesystem has only once. An image that names the same blocks again and
/// again would otherwise cost the product of names and blocks; beyond the budget its damage is told less exactly.
#[derive(Debug)]
pub struct Budget(AtomicU64);

impl Budget {
    /// Enough for everything once, and for much of it again.
    pub fn new(geometry: &Geometry) -> Self {
        Self(AtomicU64::new(geometry.blocks_count().saturating_mul(4).saturating_add(1 << 20)))
    }

    /// Takes from the budget; whether there was enough.
    pub fn take(&self, cost: u64) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |rest| rest.checked_sub(cost)).is_ok()
    }
}

/// How many of these bytes satisfy a condition.
pub fn count(bytes: &[AtomicU8], condition: impl Fn(u8) -> bool) -> u32 {
    let found = bytes.iter().filter(|byte| condition(byte.load(Relaxed))).count();
    u32::try_from(wide(found)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_put_in_by_words_and_tell_what_was_there() {
        for (first, last) in [(0, 0), (0, 63), (63, 64), (5, 200), (64, 127), (130, 131)] {
            let set = BitSet::new(256);
            set.insert(70);
            let mut again = Vec::new();
            set.insert_range(first, last, |at, bits| again.push((at, bits)));
            for bit in 0..256 {
                assert_eq!(
                    set.contains(bit),
                    bit == 70 || (first..=last).contains(&bit),
                    "{first} {last} {bit}"
                );
            }
            let wanted: &[(u64, u64)] = if (first..=last).contains(&70) { &[(1, 1 << 6)] } else { &[] };
            assert_eq!(again, wanted);
        }
    }

    #[test]
    fn searches_and_words_agree_with_single_bits() {
        let set = BitSet::new(300);
        for bit in [0, 1, 63, 64, 130, 131, 299] {
            assert!(!set.insert(bit));
            assert!(set.insert(bit));
        }
        for from in 0..300 {
            for limit in [from, from + 1, from + 70, 320] {
                assert_eq!(set.next(from..limit), (from..limit).find(|bit| set.contains(*bit)));
                assert_eq!(set.next_absent(from..limit), (from..limit).find(|bit| !set.contains(*bit)));
            }
            let word = (0..64).fold(0, |word, bit| word | u64::from(set.contains(from + bit)) << bit);
            assert_eq!(set.word(from), word);
        }
    }

    #[test]
    fn names_are_counted_beyond_a_byte_by_many_threads() {
        let counts = NameCounts::new(2);
        let [few, many] = [1, 2].map(|number| InodeNumber::new(number).unwrap());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| counts.add(many)));
            }
        });
        counts.add(few);
        counts.add(InodeNumber::new(3).unwrap());
        assert_eq!((counts.get(few), counts.get(many)), (1, 4000));
        assert_eq!(counts.into_vec(), [1, 4000]);
    }
}
