//! Group descriptors: 32 bytes, or `s_desc_size` with 64-bit block numbers.
//!
//! [`GroupDescriptor`] is a descriptor taken apart: each number that is stored in two halves is whole. Bytes beyond
//! the 64 that are known are left alone when it is written back with [`GroupDescriptor::store`].

use std::mem::offset_of;

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc::{crc16, crc32c};
use crate::error::Defect;
use crate::ids::{BlockNumber, GroupNumber};
use crate::num::{high32, join16, join32, low16, low32};

/// Size of the part that every descriptor has, in bytes.
pub const LOW_SIZE: usize = 32;
/// Size of a descriptor with all known fields, in bytes.
pub const FULL_SIZE: usize = 64;

bitflags! {
    /// `bg_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and table were never written; no inode is in use.
        const INODE_UNINIT = 0x1;
        /// The block bitmap was never written; only the group's own metadata is in use.
        const BLOCK_UNINIT = 0x2;
        /// The inode table is zeroed.
        const INODE_ZEROED = 0x4;
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Low {
    bg_block_bitmap_lo: U32,
    bg_inode_bitmap_lo: U32,
    bg_inode_table_lo: U32,
    bg_free_blocks_count_lo: U16,
    bg_free_inodes_count_lo: U16,
    bg_used_dirs_count_lo: U16,
    bg_flags: U16,
    bg_exclude_bitmap_lo: U32,
    bg_block_bitmap_csum_lo: U16,
    bg_inode_bitmap_csum_lo: U16,
    bg_itable_unused_lo: U16,
    bg_checksum: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct High {
    bg_block_bitmap_hi: U32,
    bg_inode_bitmap_hi: U32,
    bg_inode_table_hi: U32,
    bg_free_blocks_count_hi: U16,
    bg_free_inodes_count_hi: U16,
    bg_used_dirs_count_hi: U16,
    bg_itable_unused_hi: U16,
    bg_exclude_bitmap_hi: U32,
    bg_block_bitmap_csum_hi: U16,
    bg_inode_bitmap_csum_hi: U16,
    bg_reserved: U32,
}

const _: () = {
    assert!(size_of::<Low>() == LOW_SIZE);
    assert!(size_of::<High>() == FULL_SIZE - LOW_SIZE);
    assert!(offset_of!(Low, bg_checksum) == CHECKSUM_OFFSET);
    assert!(offset_of!(High, bg_inode_bitmap_csum_hi) == 0x3a - LOW_SIZE);
};

const CHECKSUM_OFFSET: usize = 0x1e;

/// A group descriptor with its numbers whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupDescriptor {
    /// Where the block bitmap lies.
    pub block_bitmap: BlockNumber,
    /// Where the inode bitmap lies.
    pub inode_bitmap: BlockNumber,
    /// Where the inode table begins.
    pub inode_table: BlockNumber,
    /// Free clusters of the group (blocks, without bigalloc).
    pub free_clusters: u32,
    /// Free inodes of the group.
    pub free_inodes: u32,
    /// Directories among the group's inodes.
    pub used_directories: u32,
    /// What of the group was never written.
    pub flags: GroupFlags,
    /// `bg_exclude_bitmap`, of snapshots out of tree.
    pub exclude_bitmap: BlockNumber,
    /// Checksum of the block bitmap; 16 bits of it where descriptors are short.
    pub block_bitmap_checksum: u32,
    /// Checksum of the inode bitmap; 16 bits of it where descriptors are short.
    pub inode_bitmap_checksum: u32,
    /// Inodes at the end of the table that were never used.
    pub unused_inodes: u32,
    /// `bg_checksum` as stored.
    pub checksum: u16,
}

/// How descriptors are checksummed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorChecksum {
    /// Not at all.
    None,
    /// CRC-16 over UUID, group and descriptor (`uninit_bg`).
    Crc16([u8; 16]),
    /// Low half of CRC-32C from this seed (`metadata_csum`).
    Crc32c(u32),
}

impl DescriptorChecksum {
    /// The checksum that a descriptor's bytes call for; `None` where there is none.
    pub fn compute(self, group: GroupNumber, descriptor: &[u8]) -> Option<u16> {
        let (before, rest) = descriptor.split_at_checked(CHECKSUM_OFFSET)?;
        let (_, after) = rest.split_at_checked(2)?;
        match self {
            Self::None => None,
            Self::Crc16(uuid) => {
                let register = crc16(crc16(0xffff, &uuid), &group.0.to_le_bytes());
                Some(crc16(crc16(register, before), after))
            }
            Self::Crc32c(seed) => {
                let register = crc32c(crc32c(seed, &group.0.to_le_bytes()), before);
                Some(low16(crc32c(crc32c(register, &[0, 0]), after)))
            }
        }
    }

    /// Checks the checksum that is stored in a descriptor.
    pub fn verify(self, group: GroupNumber, descriptor: &[u8]) -> Result<(), Defect> {
        let Some(computed) = self.compute(group, descriptor) else { return Ok(()) };
        let stored = crate::bytes::le16(descriptor, CHECKSUM_OFFSET).unwrap_or_default();
        if stored == computed {
            Ok(())
        } else {
            Err(Defect::Checksum { stored: stored.into(), computed: computed.into() })
        }
    }

    /// Puts right the checksum that is stored in a descriptor.
    pub fn refresh(self, group: GroupNumber, descriptor: &mut [u8]) {
        if let Some(computed) = self.compute(group, descriptor) {
            let _ = crate::bytes::put_le16(descriptor, CHECKSUM_OFFSET, computed);
        }
    }
}

impl GroupDescriptor {
    /// Reads a descriptor from its bytes, of which there are 32 or at least 64.
    pub fn parse(bytes: &[u8]) -> Result<Self, Defect> {
        let truncated = |_| Defect::Truncated { what: "group descriptor" };
        let (low, rest) = Low::read_from_prefix(bytes).map_err(truncated)?;
        let high = match High::read_from_prefix(rest) {
            Ok((high, _)) => high,
            Err(_) => zerocopy::FromZeros::new_zeroed(),
        };
        Ok(Self {
            block_bitmap: BlockNumber(join32(low.bg_block_bitmap_lo.get(), high.bg_block_bitmap_hi.get())),
            inode_bitmap: BlockNumber(join32(low.bg_inode_bitmap_lo.get(), high.bg_inode_bitmap_hi.get())),
            inode_table: BlockNumber(join32(low.bg_inode_table_lo.get(), high.bg_inode_table_hi.get())),
            free_clusters: join16(low.bg_free_blocks_count_lo.get(), high.bg_free_blocks_count_hi.get()),
            free_inodes: join16(low.bg_free_inodes_count_lo.get(), high.bg_free_inodes_count_hi.get()),
            used_directories: join16(low.bg_used_dirs_count_lo.get(), high.bg_used_dirs_count_hi.get()),
            flags: GroupFlags::from_bits_retain(low.bg_flags.get()),
            exclude_bitmap: BlockNumber(join32(
                low.bg_exclude_bitmap_lo.get(),
                high.bg_exclude_bitmap_hi.get(),
            )),
            block_bitmap_checksum: join16(
                low.bg_block_bitmap_csum_lo.get(),
                high.bg_block_bitmap_csum_hi.get(),
            ),
            inode_bitmap_checksum: join16(
                low.bg_inode_bitmap_csum_lo.get(),
                high.bg_inode_bitmap_csum_hi.get(),
            ),
            unused_inodes: join16(low.bg_itable_unused_lo.get(), high.bg_itable_unused_hi.get()),
            checksum: low.bg_checksum.get(),
        })
    }

    /// Writes all known fields over a descriptor's bytes and leaves the rest as it is. A number whose high half has
    /// no place in a short descriptor is an error, and nothing is written.
    pub fn store(&self, bytes: &mut [u8]) -> Result<(), Defect> {
        let has_high = bytes.len() >= FULL_SIZE;
        if !has_high {
            self.check_fits_low()?;
        }
        let low = Low {
            bg_block_bitmap_lo: low32(self.block_bitmap.0).into(),
            bg_inode_bitmap_lo: low32(self.inode_bitmap.0).into(),
            bg_inode_table_lo: low32(self.inode_table.0).into(),
            bg_free_blocks_count_lo: low16(self.free_clusters).into(),
            bg_free_inodes_count_lo: low16(self.free_inodes).into(),
            bg_used_dirs_count_lo: low16(self.used_directories).into(),
            bg_flags: self.flags.bits().into(),
            bg_exclude_bitmap_lo: low32(self.exclude_bitmap.0).into(),
            bg_block_bitmap_csum_lo: low16(self.block_bitmap_checksum).into(),
            bg_inode_bitmap_csum_lo: low16(self.inode_bitmap_checksum).into(),
            bg_itable_unused_lo: low16(self.unused_inodes).into(),
            bg_checksum: self.checksum.into(),
        };
        low.write_to_prefix(bytes).map_err(|_| Defect::Truncated { what: "group descriptor" })?;
        let Some(rest) = bytes.get_mut(LOW_SIZE..).filter(|_| has_high) else { return Ok(()) };
        let reserved = High::read_from_prefix(rest).map_or(U32::ZERO, |(high, _)| high.bg_reserved);
        let high = High {
            bg_block_bitmap_hi: high32(self.block_bitmap.0).into(),
            bg_inode_bitmap_hi: high32(self.inode_bitmap.0).into(),
            bg_inode_table_hi: high32(self.inode_table.0).into(),
            bg_free_blocks_count_hi: low16(self.free_clusters >> 16).into(),
            bg_free_inodes_count_hi: low16(self.free_inodes >> 16).into(),
            bg_used_dirs_count_hi: low16(self.used_directories >> 16).into(),
            bg_itable_unused_hi: low16(self.unused_inodes >> 16).into(),
            bg_exclude_bitmap_hi: high32(self.exclude_bitmap.0).into(),
            bg_block_bitmap_csum_hi: low16(self.block_bitmap_checksum >> 16).into(),
            bg_inode_bitmap_csum_hi: low16(self.inode_bitmap_checksum >> 16).into(),
            bg_reserved: reserved,
        };
        high.write_to_prefix(rest).map_err(|_| Defect::Truncated { what: "group descriptor" })
    }

    /// Whether everything that must be whole fits the 32-byte form. Checksums are kept by half there.
    fn check_fits_low(&self) -> Result<(), Defect> {
        let blocks = u64::from(u32::MAX);
        let counts = u64::from(u16::MAX);
        Defect::check_range("bg_block_bitmap", self.block_bitmap.0, 0, blocks)?;
        Defect::check_range("bg_inode_bitmap", self.inode_bitmap.0, 0, blocks)?;
        Defect::check_range("bg_inode_table", self.inode_table.0, 0, blocks)?;
        Defect::check_range("bg_free_blocks_count", self.free_clusters.into(), 0, counts)?;
        Defect::check_range("bg_free_inodes_count", self.free_inodes.into(), 0, counts)?;
        Defect::check_range("bg_used_dirs_count", self.used_directories.into(), 0, counts)?;
        Defect::check_range("bg_itable_unused", self.unused_inodes.into(), 0, counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn descriptor() -> impl Strategy<Value = GroupDescriptor> {
        (any::<[u64; 4]>(), any::<[u32; 6]>(), any::<[u16; 2]>()).prop_map(|(blocks, counts, words)| {
            GroupDescriptor {
                block_bitmap: BlockNumber(blocks[0]),
                inode_bitmap: BlockNumber(blocks[1]),
                inode_table: BlockNumber(blocks[2]),
                exclude_bitmap: BlockNumber(blocks[3]),
                free_clusters: counts[0],
                free_inodes: counts[1],
                used_directories: counts[2],
                block_bitmap_checksum: counts[3],
                inode_bitmap_checksum: counts[4],
                unused_inodes: counts[5],
                flags: GroupFlags::from_bits_retain(words[0]),
                checksum: words[1],
            }
        })
    }

    proptest! {
        #[test]
        fn long_form_keeps_everything(descriptor in descriptor(), rest: [u8; 68]) {
            let mut bytes = [0u8; 128];
            bytes[60..].copy_from_slice(&rest);
            descriptor.store(&mut bytes).unwrap();
            prop_assert_eq!(GroupDescriptor::parse(&bytes).unwrap(), descriptor);
            prop_assert_eq!(&bytes[60..], &rest[..], "reserved and unknown bytes stay");
        }

        #[test]
        fn short_form_keeps_what_fits_or_refuses(descriptor in descriptor()) {
            let mut bytes = [0u8; 32];
            if descriptor.store(&mut bytes).is_err() {
                prop_assert_eq!(bytes, [0u8; 32]);
            } else {
                prop_assert_eq!(GroupDescriptor::parse(&bytes).unwrap().inode_table, descriptor.inode_table);
            }
        }
    }

    #[test]
    fn checksum_ignores_its_own_field_only() {
        for kind in [DescriptorChecksum::Crc16([7; 16]), DescriptorChecksum::Crc32c(9)] {
            for length in [32, 64] {
                let mut bytes = vec![0x5a; length];
                kind.refresh(GroupNumber(3), &mut bytes);
                kind.verify(GroupNumber(3), &bytes).unwrap();
                assert!(kind.verify(GroupNumber(4), &bytes).is_err());
                for at in 0..length {
                    bytes[at] ^= 1;
                    assert!(kind.verify(GroupNumber(3), &bytes).is_err(), "byte {at} of {length}");
                    bytes[at] ^= 1;
                }
            }
        }
    }
}
