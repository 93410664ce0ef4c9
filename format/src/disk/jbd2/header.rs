//! The twelve bytes that begin every block of a log which is not a logged block.

use std::mem::size_of;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::TransactionId;

/// The magic number of journal blocks.
pub const MAGIC: u32 = 0xc03b_3998;

/// Head of a descriptor, commit, revoke or superblock of the journal.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BlockHeader {
    /// [`MAGIC`].
    pub h_magic: U32,
    /// A [`BlockType`].
    pub h_blocktype: U32,
    /// Sequence number of the transaction; 0 in a superblock.
    pub h_sequence: U32,
}
const _: () = assert!(size_of::<BlockHeader>() == 12);

/// What a block of the journal is. Values without a constant here are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockType(pub u32);

impl BlockType {
    /// Tags of the blocks that follow.
    pub const DESCRIPTOR: Self = Self(1);
    /// End of a transaction.
    pub const COMMIT: Self = Self(2);
    /// A superblock without features, as ext3 first wrote it.
    pub const SUPERBLOCK_V1: Self = Self(3);
    /// A superblock.
    pub const SUPERBLOCK_V2: Self = Self(4);
    /// Blocks whose earlier copies in the log must not be replayed.
    pub const REVOKE: Self = Self(5);
}

impl BlockHeader {
    /// A header with the magic number in place.
    pub fn new(kind: BlockType, sequence: TransactionId) -> Self {
        Self { h_magic: U32::new(MAGIC), h_blocktype: U32::new(kind.0), h_sequence: U32::new(sequence.0) }
    }

    /// The header at the start of a block; `None` if the block is too short or does not begin with [`MAGIC`].
    pub fn of(block: &[u8]) -> Option<Self> {
        let (header, _) = Self::read_from_prefix(block).ok()?;
        (header.h_magic.get() == MAGIC).then_some(header)
    }

    /// Which block this is.
    pub fn kind(&self) -> BlockType {
        BlockType(self.h_blocktype.get())
    }

    /// The transaction that the block belongs to.
    pub fn sequence(&self) -> TransactionId {
        TransactionId(self.h_sequence.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_big_endian_and_needs_its_magic() {
        let header = BlockHeader::new(BlockType::REVOKE, TransactionId(0x0102_0304));
        let bytes = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 5, 1, 2, 3, 4];
        assert_eq!(header.as_bytes(), bytes);
        assert_eq!(BlockHeader::of(&bytes), Some(header));
        assert_eq!(BlockHeader::of(&bytes[..11]), None);
        assert_eq!(BlockHeader::of(&[0; 12]), None);
    }
}
