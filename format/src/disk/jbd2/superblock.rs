//! The journal's superblock: where the log lies and where its live part begins.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::features::{CompatFeatures, IncompatFeatures};
use super::format::{ChecksumVersion, LogFormat};
use super::header::{BlockHeader, BlockType, MAGIC};
use crate::disk::crc::crc32c;
use crate::error::{Defect, Error, Place, Result};
use crate::ids::TransactionId;
use crate::num::index;

/// Bytes of the superblock; the rest of its block is unused.
pub const SIZE: usize = 1024;

/// Fewest blocks that a log may have, its fast-commit area not counted.
pub const LEAST_BLOCKS: u32 = 1024;

/// Blocks of the fast-commit area where `s_num_fc_blks` is 0.
pub const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

/// `s_checksum_type` of CRC-32C, the only one there is.
pub const CHECKSUM_CRC32C: u8 = 4;

/// The journal's superblock.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct JournalSuperblock {
    /// Magic and type; the sequence is unused.
    pub s_header: BlockHeader,
    /// Bytes of a block.
    pub s_blocksize: U32,
    /// Blocks of the journal, this one and the fast-commit area included.
    pub s_maxlen: U32,
    /// First block of the log.
    pub s_first: U32,
    /// Sequence number of the first transaction in the live part.
    pub s_sequence: U32,
    /// Where the live part begins; 0 if there is none.
    pub s_start: U32,
    /// A negative error number that aborted the journal, or 0.
    pub s_errno: U32,
    /// [`CompatFeatures`]; this field and all that follow mean nothing in version 1.
    pub s_feature_compat: U32,
    /// [`IncompatFeatures`].
    pub s_feature_incompat: U32,
    /// No bit is known.
    pub s_feature_ro_compat: U32,
    /// The journal's UUID: the filesystem's for an internal journal.
    pub s_uuid: [u8; 16],
    /// How many filesystems use an external journal.
    pub s_nr_users: U32,
    /// Unused.
    pub s_dynsuper: U32,
    /// Unused.
    pub s_max_transaction: U32,
    /// Unused.
    pub s_max_trans_data: U32,
    /// [`CHECKSUM_CRC32C`] with checksum version 2 or 3.
    pub s_checksum_type: u8,
    /// Zero.
    pub s_padding2: [u8; 3],
    /// Blocks of the fast-commit area; 0 stands for [`DEFAULT_FAST_COMMIT_BLOCKS`].
    pub s_num_fc_blks: U32,
    /// Where a recent kernel goes on writing; means something only while `s_start` is 0.
    pub s_head: U32,
    /// Zero.
    pub s_padding: [U32; 40],
    /// CRC-32C of the superblock with checksum version 2 or 3.
    pub s_checksum: U32,
    /// UUIDs of the filesystems that use an external journal.
    pub s_users: [[u8; 16]; 48],
}
const _: () = assert!(size_of::<JournalSuperblock>() == SIZE);
const _: () = assert!(offset_of!(JournalSuperblock, s_start) == 0x1c);
const _: () = assert!(offset_of!(JournalSuperblock, s_uuid) == 0x30);
const _: () = assert!(offset_of!(JournalSuperblock, s_checksum_type) == 0x50);
const _: () = assert!(offset_of!(JournalSuperblock, s_head) == 0x58);
const _: () = assert!(offset_of!(JournalSuperblock, s_checksum) == 0xfc);
const _: () = assert!(offset_of!(JournalSuperblock, s_users) == 0x100);

/// The blocks of a log, as the superblock lays them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogExtent {
    /// First block of the log.
    pub first: u32,
    /// Just past the last block of the log, where it wraps to `first`.
    pub last: u32,
    /// First block of the fast-commit area; equal to `end` if there is none. Block `last` itself stays unused then.
    pub fast_commit: u32,
    /// Just past the last block of the journal.
    pub end: u32,
}

impl JournalSuperblock {
    /// An empty journal without features: `blocks` blocks of `block_size` bytes whose log begins at block `first`.
    pub fn new(block_size: u32, blocks: u32, first: u32) -> Self {
        let mut sb = Self::new_zeroed();
        sb.s_header.h_magic = U32::new(MAGIC);
        sb.s_header.h_blocktype = U32::new(BlockType::SUPERBLOCK_V2.0);
        sb.s_blocksize = U32::new(block_size);
        sb.s_maxlen = U32::new(blocks);
        sb.s_first = U32::new(first);
        sb.s_sequence = U32::new(1);
        sb
    }

    /// The superblock at the start of its block, if it begins with the magic number and says that it is one.
    pub fn read(block: &[u8]) -> Result<Self, Defect> {
        let (sb, _) =
            Self::read_from_prefix(block).map_err(|_| Defect::Truncated { what: "journal superblock" })?;
        let found = sb.s_header.h_magic.get();
        if found != MAGIC {
            return Err(Defect::Magic { found, wanted: MAGIC });
        }
        let kind = sb.s_header.h_blocktype.get();
        let (least, most) = (BlockType::SUPERBLOCK_V1.0, BlockType::SUPERBLOCK_V2.0);
        Defect::check_range("h_blocktype", u64::from(kind), u64::from(least), u64::from(most))?;
        Ok(sb)
    }

    /// Whether the fields from `s_feature_compat` on mean anything.
    pub fn has_features(&self) -> bool {
        self.s_header.kind() != BlockType::SUPERBLOCK_V1
    }

    /// The compatible features, none in version 1.
    pub fn compat(&self) -> CompatFeatures {
        CompatFeatures::from_bits_retain(if self.has_features() { self.s_feature_compat.get() } else { 0 })
    }

    /// The incompatible features, none in version 1.
    pub fn incompat(&self) -> IncompatFeatures {
        IncompatFeatures::from_bits_retain(if self.has_features() {
            self.s_feature_incompat.get()
        } else {
            0
        })
    }

    /// Sequence number of the first transaction in the live part.
    pub fn sequence(&self) -> TransactionId {
        TransactionId(self.s_sequence.get())
    }

    /// Whether nothing waits to be replayed.
    pub fn is_empty(&self) -> bool {
        self.s_start.get() == 0
    }

    /// UUIDs of the filesystems that use an external journal, at most as many as there is room for.
    pub fn users(&self) -> &[[u8; 16]] {
        let count = if self.has_features() { index(self.s_nr_users.get()) } else { 0 };
        self.s_users.get(..count).unwrap_or(&self.s_users)
    }

    /// Blocks at the end that are kept for fast commits.
    pub fn fast_commit_blocks(&self) -> u32 {
        match (self.incompat().contains(IncompatFeatures::FAST_COMMIT), self.s_num_fc_blks.get()) {
            (false, _) => 0,
            (true, 0) => DEFAULT_FAST_COMMIT_BLOCKS,
            (true, count) => count,
        }
    }

    /// Which checksums the log carries.
    pub fn checksums(&self) -> ChecksumVersion {
        if self.incompat().contains(IncompatFeatures::CHECKSUM_V3) {
            ChecksumVersion::V3
        } else if self.incompat().contains(IncompatFeatures::CHECKSUM_V2) {
            ChecksumVersion::V2
        } else if self.compat().contains(CompatFeatures::CHECKSUM) {
            ChecksumVersion::V1
        } else {
            ChecksumVersion::None
        }
    }

    /// How the log's blocks are laid out and checked.
    pub fn format(&self) -> LogFormat {
        LogFormat {
            block_size: self.s_blocksize.get(),
            checksums: self.checksums(),
            wide: self.incompat().contains(IncompatFeatures::WIDE),
            seed: crc32c(u32::MAX, &self.s_uuid),
        }
    }

    /// The checksum that the contents give.
    fn computed_checksum(&self) -> u32 {
        let mut copy = self.clone();
        copy.s_checksum = U32::ZERO;
        crc32c(u32::MAX, copy.as_bytes())
    }

    /// Puts the checksum right, where the journal has one.
    pub fn seal(&mut self) {
        if self.format().has_block_checksums() {
            self.s_checksum = U32::new(self.computed_checksum());
        }
    }

    /// Checks all that can be checked without the log: features, checksum, and that the numbers lie in range.
    /// `block_size` is the filesystem's, `available` the number of blocks that the journal really has.
    pub fn validate(&self, block_size: u32, available: u64, place: &Place) -> Result<LogExtent> {
        self.validate_features(place)?;
        let defect = |defect: Defect| defect.at(place.clone());
        if self.format().has_block_checksums() {
            let (stored, computed) = (self.s_checksum.get(), self.computed_checksum());
            if stored != computed {
                return Err(defect(Defect::Checksum { stored, computed }));
            }
        }
        let size = u64::from(block_size);
        Defect::check_range("s_blocksize", u64::from(self.s_blocksize.get()), size, size).map_err(defect)?;
        self.extent(available).map_err(defect)
    }

    /// Names each feature that is not known, then those that cannot go together.
    fn validate_features(&self, place: &Place) -> Result<()> {
        let incompat = self.incompat();
        let ro_compat = if self.has_features() { self.s_feature_ro_compat.get() } else { 0 };
        let unknown: Vec<String> = bit_names("I", incompat.difference(IncompatFeatures::KNOWN).bits())
            .chain(bit_names("R", ro_compat))
            .collect();
        if !unknown.is_empty() {
            return Err(Error::Unsupported(format!("{place}: journal feature {}", unknown.join(", "))));
        }
        let versions = [
            self.compat().contains(CompatFeatures::CHECKSUM),
            incompat.contains(IncompatFeatures::CHECKSUM_V2),
            incompat.contains(IncompatFeatures::CHECKSUM_V3),
        ];
        if versions.into_iter().filter(|set| *set).count() > 1 {
            let text = "more than one of the checksum versions 1, 2 and 3 is set".to_owned();
            return Err(Defect::Contradiction(text).at(place.clone()));
        }
        if self.format().has_block_checksums() && self.s_checksum_type != CHECKSUM_CRC32C {
            let kind = self.s_checksum_type;
            return Err(Error::Unsupported(format!("{place}: journal checksum type {kind}")));
        }
        Ok(())
    }

    /// The limits are the kernel's, which mounts no shorter log.
    fn extent(&self, available: u64) -> Result<LogExtent, Defect> {
        let end = self.s_maxlen.get();
        let kept = self.fast_commit_blocks();
        let least = u64::from(kept).saturating_add(u64::from(LEAST_BLOCKS));
        Defect::check_range("s_maxlen", u64::from(end), least, available)?;
        let last = end.saturating_sub(kept);
        let first = self.s_first.get();
        Defect::check_range("s_first", u64::from(first), 1, u64::from(last.saturating_sub(1)))?;
        if !self.is_empty() {
            let start = u64::from(self.s_start.get());
            Defect::check_range("s_start", start, u64::from(first), u64::from(last.saturating_sub(1)))?;
        }
        let fast_commit = if kept == 0 { end } else { last.saturating_add(1) };
        Ok(LogExtent { first, last, fast_commit, end })
    }
}

/// Names of feature bits without a meaning here, in the style of e2fsprogs: `FEATURE_I6`.
fn bit_names(word: &'static str, bits: u32) -> impl Iterator<Item = String> {
    (0..u32::BITS)
        .filter(move |bit| bits.wrapping_shr(*bit) & 1 == 1)
        .map(move |bit| format!("FEATURE_{word}{bit}"))
}

impl LogExtent {
    /// The block after this one, wrapping at the end of the log.
    pub fn after(&self, block: u32) -> u32 {
        let next = block.wrapping_add(1);
        if next < self.last { next } else { self.first }
    }

    /// How many blocks the log has, the most that its live part can use.
    pub fn length(&self) -> u32 {
        self.last.saturating_sub(self.first)
    }

    /// Whether the block is one of the log's, as opposed to the superblock or the fast-commit area.
    pub fn contains(&self, block: u32) -> bool {
        (self.first..self.last).contains(&block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place::JournalBlock(0);

    fn with_features(incompat: u32) -> JournalSuperblock {
        let mut sb = JournalSuperblock::new(1024, 2048, 1);
        sb.s_feature_incompat = U32::new(incompat);
        sb.s_checksum_type = CHECKSUM_CRC32C;
        sb.seal();
        sb
    }

    fn check(sb: &JournalSuperblock) -> Result<LogExtent> {
        sb.validate(1024, 2048, &PLACE)
    }

    #[test]
    fn bytes_come_back_unchanged() {
        let mut bytes = vec![0u8; 1100];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(at % 251).unwrap();
        }
        bytes[..8].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4]);
        let sb = JournalSuperblock::read(&bytes).unwrap();
        assert_eq!(sb.as_bytes(), &bytes[..1024]);
        bytes[7] = 5;
        assert!(JournalSuperblock::read(&bytes).is_err());
        assert!(JournalSuperblock::read(&bytes[..1023]).is_err());
    }

    #[test]
    fn the_log_ends_before_the_fast_commit_area() {
        let plain = check(&with_features(0)).unwrap();
        assert_eq!(plain, LogExtent { first: 1, last: 2048, fast_commit: 2048, end: 2048 });
        let mut sb = with_features(0x20);
        let fast = check(&sb).unwrap();
        assert_eq!(fast, LogExtent { first: 1, last: 1792, fast_commit: 1793, end: 2048 });
        assert_eq!((fast.after(1790), fast.after(1791)), (1791, 1));
        sb.s_num_fc_blks = U32::new(1024);
        assert_eq!(check(&sb).unwrap().last, 1024);
        sb.s_num_fc_blks = U32::new(1025);
        assert!(check(&sb).is_err(), "too little is left for the log");
        sb.s_num_fc_blks = U32::new(u32::MAX);
        assert!(check(&sb).is_err());
    }

    #[test]
    fn unknown_features_are_refused_by_name() {
        let error = check(&with_features(0x8000_0052)).unwrap_err().to_string();
        assert_eq!(error, "unsupported: journal block 0: journal feature FEATURE_I6, FEATURE_I31");
        let mut sb = with_features(0);
        sb.s_feature_ro_compat = U32::new(1);
        assert!(check(&sb).unwrap_err().to_string().ends_with("FEATURE_R0"));
        sb.s_header.h_blocktype = U32::new(3);
        assert!(check(&sb).is_ok(), "version 1 has no features");
    }

    #[test]
    fn checksum_versions_exclude_each_other() {
        assert!(check(&with_features(0x18)).unwrap_err().is_corruption());
        let mut sb = with_features(0x8);
        sb.s_feature_compat = U32::new(1);
        sb.seal();
        assert!(check(&sb).unwrap_err().is_corruption());
        let mut sb = with_features(0x10);
        sb.s_checksum_type = 1;
        sb.seal();
        assert!(matches!(check(&sb), Err(Error::Unsupported(_))));
    }

    #[test]
    fn every_byte_is_under_the_checksum() {
        let sb = with_features(0x10);
        for at in (8..1024).step_by(7) {
            let mut bytes = sb.as_bytes().to_vec();
            bytes[at] ^= 0x40;
            let damaged = JournalSuperblock::read(&bytes).unwrap();
            assert!(check(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn numbers_must_lie_in_the_journal() {
        type Field = fn(&mut JournalSuperblock) -> &mut U32;
        let cases: [(Field, &[u32], &[u32]); 4] = [
            (|sb| &mut sb.s_maxlen, &[1024, 2048], &[0, 1023, 2049, u32::MAX]),
            (|sb| &mut sb.s_first, &[1, 2047], &[0, 2048, u32::MAX]),
            (|sb| &mut sb.s_start, &[0, 1, 2047], &[2048, u32::MAX]),
            (|sb| &mut sb.s_blocksize, &[1024], &[0, 512, 4096]),
        ];
        for (field, good, bad) in cases {
            for value in good.iter().chain(bad) {
                let mut sb = with_features(0);
                *field(&mut sb) = U32::new(*value);
                assert_eq!(check(&sb).is_ok(), good.contains(value), "{value}");
            }
        }
    }
}
