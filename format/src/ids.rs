//! Numbers that name things. Each is its own type, so that one cannot be taken for another.
//!
//! Only [`crate::geometry::Geometry`] converts between kinds. Arithmetic on them is checked: an overflow gives
//! `None`, since the numbers come from images.

use std::fmt;
use std::num::NonZeroU32;

/// A block's number from the start of the filesystem, never a byte offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNumber(pub u64);

/// A block group's number, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNumber(pub u32);

/// A block's place inside a file, in filesystem blocks from the file's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalBlock(pub u32);

/// An inode's number; numbers start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNumber(NonZeroU32);

/// A journal transaction's sequence number. It wraps, so it is ordered only by [`TransactionId::is_before`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransactionId(pub u32);

/// Consecutive blocks: `length` of them from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockRun {
    /// The first block.
    pub start: BlockNumber,
    /// How many blocks, at least 1.
    pub length: u64,
}

impl BlockNumber {
    /// The block `count` further on.
    pub const fn checked_add(self, count: u64) -> Option<Self> {
        match self.0.checked_add(count) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// How many blocks lie between an earlier block and this one; `None` if the other is later.
    pub const fn distance_from(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }
}

impl LogicalBlock {
    /// The block `count` further on in the file.
    pub const fn checked_add(self, count: u32) -> Option<Self> {
        match self.0.checked_add(count) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

impl InodeNumber {
    /// The list of bad blocks.
    pub const BAD_BLOCKS: Self = Self::reserved(1);
    /// The root directory.
    pub const ROOT: Self = Self::reserved(2);
    /// The hidden user quota file.
    pub const USER_QUOTA: Self = Self::reserved(3);
    /// The hidden group quota file.
    pub const GROUP_QUOTA: Self = Self::reserved(4);
    /// The boot loader's inode.
    pub const BOOT_LOADER: Self = Self::reserved(5);
    /// Once meant for undeletion; unused.
    pub const UNDELETE_DIR: Self = Self::reserved(6);
    /// The inode that holds reserved group descriptor blocks.
    pub const RESIZE: Self = Self::reserved(7);
    /// The usual place of the internal journal.
    pub const JOURNAL: Self = Self::reserved(8);
    /// Used by snapshots out of tree.
    pub const EXCLUDE: Self = Self::reserved(9);
    /// Used by replicas out of tree.
    pub const REPLICA: Self = Self::reserved(10);

    const fn reserved(number: u32) -> Self {
        match NonZeroU32::new(number) {
            Some(number) => Self(number),
            None => Self(NonZeroU32::MIN),
        }
    }

    /// An inode number as read from an image; `None` for 0, which names no inode.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number as stored on disk.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl TransactionId {
    /// The sequence number that follows, wrapping as the kernel's does.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether this transaction came before the other, in wrapping order.
    pub const fn is_before(self, other: Self) -> bool {
        let distance = other.0.wrapping_sub(self.0);
        distance != 0 && distance <= u32::MAX / 2
    }
}

impl BlockRun {
    /// A run of one block.
    pub const fn single(start: BlockNumber) -> Self {
        Self { start, length: 1 }
    }

    /// The block just past the run; `None` where the run would leave the number space.
    pub const fn end(self) -> Option<BlockNumber> {
        self.start.checked_add(self.length)
    }

    /// Whether the block lies in the run.
    pub const fn contains(self, block: BlockNumber) -> bool {
        match block.distance_from(self.start) {
            Some(distance) => distance < self.length,
            None => false,
        }
    }

    /// Each block of the run in order.
    pub fn iter(self) -> impl Iterator<Item = BlockNumber> {
        (self.start.0..self.start.0.saturating_add(self.length)).map(BlockNumber)
    }
}

macro_rules! display_number {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_number!(BlockNumber, GroupNumber, LogicalBlock, InodeNumber, TransactionId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_order_wraps() {
        assert!(TransactionId(5).is_before(TransactionId(6)));
        assert!(!TransactionId(6).is_before(TransactionId(6)));
        assert!(TransactionId(u32::MAX).is_before(TransactionId(0)));
        assert!(!TransactionId(0).is_before(TransactionId(u32::MAX)));
        assert_eq!(TransactionId(u32::MAX).next(), TransactionId(0));
    }

    #[test]
    fn runs_know_their_ends() {
        let run = BlockRun { start: BlockNumber(10), length: 3 };
        assert_eq!(run.end(), Some(BlockNumber(13)));
        assert!(
            run.contains(BlockNumber(12)) && !run.contains(BlockNumber(13)) && !run.contains(BlockNumber(9))
        );
        assert_eq!(run.iter().count(), 3);
        assert_eq!(BlockRun { start: BlockNumber(u64::MAX), length: 2 }.end(), None);
    }

    #[test]
    fn inode_zero_names_nothing() {
        assert_eq!(InodeNumber::new(0), None);
        assert_eq!(InodeNumber::JOURNAL.get(), 8);
    }
}
