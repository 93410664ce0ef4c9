//! The block by which hosts tell each other that they have the filesystem in use (multi-mount protection).
//!
//! Whoever uses the filesystem writes a new sequence number every few seconds. Who wants to take it over reads twice,
//! [`MmpBlock::wait_seconds`] apart, and keeps off if the block has changed.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::disk::crc::crc32c;
use crate::error::Defect;

/// First field of the block.
pub const MAGIC: u32 = 0x004d_4d50;
/// Sequence number of a filesystem that nobody uses.
pub const SEQUENCE_CLEAN: u32 = 0xff4d_4d50;
/// Sequence number while a checker works; only one that knows it was interrupted may clear it.
pub const SEQUENCE_FSCK: u32 = 0xe24d_4d50;
/// The largest sequence number that a mount writes.
pub const SEQUENCE_MAX: u32 = 0xe24d_4d4f;
/// Seconds between writes where the superblock names none.
pub const DEFAULT_INTERVAL: u16 = 5;
/// The most seconds between writes.
pub const MAX_INTERVAL: u16 = 300;

/// The first 1024 bytes of the block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MmpBlock {
    /// [`MAGIC`].
    pub mmp_magic: U32,
    /// Changes while the filesystem is in use; see [`MmpState`].
    pub mmp_seq: U32,
    /// When the block was last written, in seconds.
    pub mmp_time: U64,
    /// Which host wrote it, padded with zeroes.
    pub mmp_nodename: [u8; 64],
    /// Which device it has the filesystem on, padded with zeroes.
    pub mmp_bdevname: [u8; 32],
    /// Seconds between checks.
    pub mmp_check_interval: U16,
    /// Unused; kept as found.
    pub mmp_pad1: U16,
    /// Unused; kept as found.
    pub mmp_pad2: [U32; 226],
    /// CRC-32C over all before it, from the filesystem's seed.
    pub mmp_checksum: U32,
}

const _: () = assert!(size_of::<MmpBlock>() == 1024);
const _: () = assert!(offset_of!(MmpBlock, mmp_check_interval) == 0x70);
const _: () = assert!(offset_of!(MmpBlock, mmp_checksum) == CHECKSUM);

const CHECKSUM: usize = 0x3fc;
const CUT: Defect = Defect::Truncated { what: "multi-mount protection block" };

/// What the sequence number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmpState {
    /// Nobody uses the filesystem.
    Clean,
    /// A checker works on it, or was interrupted.
    Fsck,
    /// Mounted, or was when its host failed: it is in use if the number changes.
    Mounted(u32),
    /// A number that no version known here writes. Leave the filesystem alone.
    Unknown(u32),
}

impl MmpBlock {
    /// The block's fields, once its magic number is right. The checksum is not looked at.
    pub fn parse(block: &[u8]) -> Result<&Self, Defect> {
        let (mmp, _) = Self::ref_from_prefix(block).map_err(|_| CUT)?;
        mmp.check_magic()?;
        Ok(mmp)
    }

    /// The same, writable.
    pub fn parse_mut(block: &mut [u8]) -> Result<&mut Self, Defect> {
        let (mmp, _) = Self::mut_from_prefix(block).map_err(|_| CUT)?;
        mmp.check_magic()?;
        Ok(mmp)
    }

    /// Makes a block that says nobody uses the filesystem; its checksum stays 0 until [`refresh_checksum`].
    pub fn create(block: &mut [u8]) -> Result<&mut Self, Defect> {
        block.fill(0);
        let (mmp, _) = Self::mut_from_prefix(block).map_err(|_| CUT)?;
        mmp.mmp_magic = MAGIC.into();
        mmp.mmp_seq = SEQUENCE_CLEAN.into();
        Ok(mmp)
    }

    fn check_magic(&self) -> Result<(), Defect> {
        let found = self.mmp_magic.get();
        if found == MAGIC { Ok(()) } else { Err(Defect::Magic { found, wanted: MAGIC }) }
    }

    /// What the sequence number says.
    pub fn state(&self) -> MmpState {
        match self.mmp_seq.get() {
            SEQUENCE_CLEAN => MmpState::Clean,
            SEQUENCE_FSCK => MmpState::Fsck,
            number if number <= SEQUENCE_MAX => MmpState::Mounted(number),
            number => MmpState::Unknown(number),
        }
    }

    /// How long to wait between the two looks before a take-over, in seconds: twice the longer of the two intervals, and
    /// one more. The superblock's is 0 where it names none.
    pub fn wait_seconds(&self, superblock_interval: u16) -> u64 {
        let named = if superblock_interval == 0 { DEFAULT_INTERVAL } else { superblock_interval };
        let interval = u64::from(named.max(self.mmp_check_interval.get()));
        interval.saturating_mul(2).saturating_add(1)
    }
}

/// The checksum that a block's contents give, from the filesystem's seed.
pub fn checksum(block: &[u8], fs_seed: u32) -> Result<u32, Defect> {
    Ok(crc32c(fs_seed, block.get(..CHECKSUM).ok_or(CUT)?))
}

/// Compares a block's stored checksum with its contents.
pub fn verify_checksum(block: &[u8], fs_seed: u32) -> Result<(), Defect> {
    let stored = MmpBlock::parse(block)?.mmp_checksum.get();
    let computed = checksum(block, fs_seed)?;
    if stored == computed { Ok(()) } else { Err(Defect::Checksum { stored, computed }) }
}

/// Writes the checksum that a block's contents give.
pub fn refresh_checksum(block: &mut [u8], fs_seed: u32) -> Result<(), Defect> {
    let computed = checksum(block, fs_seed)?;
    MmpBlock::parse_mut(block)?.mmp_checksum = computed.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Written by a 6.18 kernel at unmount. See testdata/disk/README.md.
    const CLEAN: &[u8] = include_bytes!("../../../testdata/disk/mmp.bin");
    const SEED: u32 = 0x8cfa_74fc;

    #[test]
    fn kernel_written_block_reads_and_checks() {
        let mmp = MmpBlock::parse(CLEAN).unwrap();
        assert_eq!(mmp.state(), MmpState::Clean);
        assert!(mmp.mmp_nodename.starts_with(b"vm\0") && mmp.mmp_bdevname.starts_with(b"loop0\0"));
        assert_eq!((mmp.mmp_check_interval.get(), mmp.wait_seconds(0)), (5, 11));
        assert_eq!((mmp.wait_seconds(4), mmp.wait_seconds(300)), (11, 601));
        assert_eq!(verify_checksum(CLEAN, SEED), Ok(()));
    }

    #[test]
    fn changes_need_a_new_checksum() {
        let mut block = CLEAN.to_vec();
        for (number, state) in [
            (SEQUENCE_FSCK, MmpState::Fsck),
            (SEQUENCE_MAX, MmpState::Mounted(SEQUENCE_MAX)),
            (SEQUENCE_FSCK + 1, MmpState::Unknown(SEQUENCE_FSCK + 1)),
        ] {
            MmpBlock::parse_mut(&mut block).unwrap().mmp_seq = number.into();
            assert_eq!(MmpBlock::parse(&block).unwrap().state(), state);
            assert!(verify_checksum(&block, SEED).is_err());
            refresh_checksum(&mut block, SEED).unwrap();
            assert_eq!(verify_checksum(&block, SEED), Ok(()));
        }
    }

    #[test]
    fn new_blocks_are_clean_and_foreign_ones_refused() {
        let mut block = vec![7; 4096];
        MmpBlock::create(&mut block).unwrap();
        refresh_checksum(&mut block, 1).unwrap();
        assert_eq!(
            (verify_checksum(&block, 1), MmpBlock::parse(&block).unwrap().state()),
            (Ok(()), MmpState::Clean)
        );
        block[0] = 0;
        assert!(matches!(MmpBlock::parse(&block), Err(Defect::Magic { .. })));
        assert!(MmpBlock::parse(&block[..1023]).is_err());
    }
}
