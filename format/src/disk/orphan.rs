//! Blocks of the orphan file: inode numbers of files that are open but deleted, or being truncated.
//!
//! A block is a list of slots, 0 where free, and a tail of magic number and checksum. The checksum covers the block's place
//! on the device, so a block is not the same after it has been moved.

use std::mem::size_of;

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::{le32, put_le32};
use crate::disk::crc::crc32c;
use crate::error::Defect;
use crate::ids::{BlockNumber, InodeNumber};
use crate::num::wide;

/// First field of the tail.
pub const MAGIC: u32 = 0x0b10_ca04;

const SLOT: usize = 4;

/// The last 8 bytes of a block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OrphanBlockTail {
    /// [`MAGIC`].
    pub ob_magic: U32,
    /// CRC-32C over the block's number and its slots, from the orphan file's inode seed.
    pub ob_checksum: U32,
}

const _: () = assert!(size_of::<OrphanBlockTail>() == 8);

const CUT: Defect = Defect::Truncated { what: "orphan file block" };

/// How many slots a block of this length has.
pub fn slot_count(block_length: usize) -> usize {
    block_length.saturating_sub(size_of::<OrphanBlockTail>()).checked_div(SLOT).unwrap_or(0)
}

/// Checks that a block ends in the tail of an orphan file's block. The checksum is not looked at.
pub fn check(block: &[u8]) -> Result<(), Defect> {
    let (_, tail) = OrphanBlockTail::ref_from_suffix(block).map_err(|_| CUT)?;
    let found = tail.ob_magic.get();
    if found == MAGIC { Ok(()) } else { Err(Defect::Magic { found, wanted: MAGIC }) }
}

/// Makes a block one of free slots; its checksum stays 0 until [`refresh_checksum`].
pub fn create(block: &mut [u8]) -> Result<(), Defect> {
    block.fill(0);
    let (_, tail) = OrphanBlockTail::mut_from_suffix(block).map_err(|_| CUT)?;
    tail.ob_magic = MAGIC.into();
    Ok(())
}

/// Each slot in use with its inode. Whether the number names an inode of the filesystem is for the caller.
pub fn orphans(block: &[u8]) -> impl Iterator<Item = (usize, InodeNumber)> + use<'_> {
    (0..slot_count(block.len())).filter_map(|slot| Some((slot, InodeNumber::new(read_slot(block, slot)?)?)))
}

/// The first free slot.
pub fn free_slot(block: &[u8]) -> Option<usize> {
    (0..slot_count(block.len())).find(|slot| read_slot(block, *slot) == Some(0))
}

/// Puts an inode into a slot, or frees it.
pub fn set_slot(block: &mut [u8], slot: usize, inode: Option<InodeNumber>) -> Result<(), Defect> {
    let last = wide(slot_count(block.len())).saturating_sub(1);
    Defect::check_range("orphan slot", wide(slot), 0, last)?;
    put_le32(block, slot.saturating_mul(SLOT), inode.map_or(0, InodeNumber::get)).ok_or(CUT)
}

fn read_slot(block: &[u8], slot: usize) -> Option<u32> {
    le32(block, slot.checked_mul(SLOT)?)
}

/// The checksum that a block's place and slots give, from the orphan file's inode seed.
pub fn checksum(block: &[u8], inode_seed: u32, at: BlockNumber) -> u32 {
    let slots = slot_count(block.len()).saturating_mul(SLOT);
    crc32c(crc32c(inode_seed, &at.0.to_le_bytes()), block.get(..slots).unwrap_or_default())
}

/// Compares a block's stored checksum with its contents.
pub fn verify_checksum(block: &[u8], inode_seed: u32, at: BlockNumber) -> Result<(), Defect> {
    let (_, tail) = OrphanBlockTail::ref_from_suffix(block).map_err(|_| CUT)?;
    let (stored, computed) = (tail.ob_checksum.get(), checksum(block, inode_seed, at));
    if stored == computed { Ok(()) } else { Err(Defect::Checksum { stored, computed }) }
}

/// Writes the checksum that a block's contents give.
pub fn refresh_checksum(block: &mut [u8], inode_seed: u32, at: BlockNumber) -> Result<(), Defect> {
    let computed = checksum(block, inode_seed, at);
    let (_, tail) = OrphanBlockTail::mut_from_suffix(block).map_err(|_| CUT)?;
    tail.ob_checksum = computed.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Copied while the filesystem was mounted, with 20 files open and deleted. See testdata/disk/README.md.
    const LIVE: &[u8] = include_bytes!("../../../testdata/disk/orphan_live.bin");
    const SEED: u32 = 0xad9a_e575;
    const AT: BlockNumber = BlockNumber(2065);

    #[test]
    fn live_block_reads_checks_and_is_rebuilt_to_the_byte() {
        assert_eq!(check(LIVE), Ok(()));
        assert_eq!(verify_checksum(LIVE, SEED, AT), Ok(()));
        assert!(verify_checksum(LIVE, SEED, BlockNumber(2066)).is_err(), "the place counts");
        let found: Vec<_> = orphans(LIVE).map(|(slot, inode)| (slot, inode.get())).collect();
        assert!(found.into_iter().eq((0..20).zip(13..33)));
        assert_eq!((free_slot(LIVE), slot_count(4096)), (Some(20), 1022));

        let mut block = vec![0xff; 4096];
        create(&mut block).unwrap();
        for (slot, inode) in orphans(LIVE) {
            assert_eq!(free_slot(&block), Some(slot));
            set_slot(&mut block, slot, Some(inode)).unwrap();
        }
        refresh_checksum(&mut block, SEED, AT).unwrap();
        assert_eq!(block, LIVE);
    }

    #[test]
    fn slots_end_before_the_tail() {
        let mut block = LIVE.to_vec();
        assert!(set_slot(&mut block, 1022, InodeNumber::new(5)).is_err());
        for slot in 0..1022 {
            set_slot(&mut block, slot, InodeNumber::new(7)).unwrap();
        }
        assert_eq!((free_slot(&block), check(&block)), (None, Ok(())));
        set_slot(&mut block, 1021, None).unwrap();
        assert_eq!(free_slot(&block), Some(1021));
        block[4092 - 4] ^= 1;
        assert_eq!(check(&block), Err(Defect::Magic { found: MAGIC ^ 1, wanted: MAGIC }));
        for length in 0..8 {
            assert_eq!((check(&LIVE[..length]), slot_count(length)), (Err(CUT), 0));
            assert_eq!(refresh_checksum(&mut block[..length], 0, AT), Err(CUT));
        }
    }
}
