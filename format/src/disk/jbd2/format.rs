//! What the features of a journal say about its blocks.

use super::header::MAGIC;
use crate::bytes;
use crate::disk::crc::crc32c;
use crate::error::Defect;
use crate::ids::TransactionId;
use crate::num::low16;

/// Which checksums a log carries. The three exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumVersion {
    /// None at all.
    None,
    /// A CRC-32 in the commit block over descriptors and logged blocks.
    V1,
    /// CRC-32C everywhere; 16 bits of it in each tag.
    V2,
    /// CRC-32C everywhere; all of it in each tag.
    V3,
}

/// How blocks of one log are laid out and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFormat {
    /// Bytes of a block; the filesystem's block size.
    pub block_size: u32,
    /// Which checksums there are.
    pub checksums: ChecksumVersion,
    /// Whether block numbers have 64 bits.
    pub wide: bool,
    /// Register after the journal's UUID, from which CRC-32C checksums start.
    pub seed: u32,
}

impl LogFormat {
    /// Bytes of one tag, without the UUID that may follow it.
    pub const fn tag_size(&self) -> usize {
        match (self.checksums, self.wide) {
            (ChecksumVersion::V3, _) => 16,
            (ChecksumVersion::V2, true) => 14,
            (ChecksumVersion::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// Bytes of one revoke record.
    pub const fn revoke_size(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Whether the log's own blocks carry CRC-32C.
    pub const fn has_block_checksums(&self) -> bool {
        matches!(self.checksums, ChecksumVersion::V2 | ChecksumVersion::V3)
    }

    /// Bytes at the end of descriptor and revoke blocks that hold their checksum.
    pub const fn tail_size(&self) -> usize {
        if self.has_block_checksums() { 4 } else { 0 }
    }

    /// Checks the checksum in the last four bytes of a descriptor or revoke block, where the log has one.
    pub fn verify_tail(&self, block: &[u8]) -> Result<(), Defect> {
        if !self.has_block_checksums() {
            return Ok(());
        }
        let (contents, stored) =
            block.split_last_chunk::<4>().ok_or(Defect::Truncated { what: "journal block" })?;
        let stored = u32::from_be_bytes(*stored);
        let computed = self.tail_of(contents);
        if stored == computed { Ok(()) } else { Err(Defect::Checksum { stored, computed }) }
    }

    /// Puts the checksum into the last four bytes of a descriptor or revoke block, where the log has one.
    pub fn seal_tail(&self, block: &mut [u8]) {
        if !self.has_block_checksums() {
            return;
        }
        if let Some((contents, tail)) = block.split_last_chunk_mut::<4>() {
            *tail = self.tail_of(contents).to_be_bytes();
        }
    }

    /// The checksum covers the whole block with its own four bytes taken as zero.
    fn tail_of(&self, contents: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, contents), &[0; 4])
    }

    /// The checksum of a logged block (as it lies in the log, escaped or not) that its tag holds; 0 where tags
    /// hold none.
    pub fn data_checksum(&self, sequence: TransactionId, block: &[u8]) -> u32 {
        let whole = || crc32c(crc32c(self.seed, &sequence.0.to_be_bytes()), block);
        match self.checksums {
            ChecksumVersion::None | ChecksumVersion::V1 => 0,
            ChecksumVersion::V2 => u32::from(low16(whole())),
            ChecksumVersion::V3 => whole(),
        }
    }
}

/// Makes a block fit to lie in a log: if it begins with the magic number its first four bytes become zero. Returns
/// whether it did, which its tag has to say.
pub fn escape(block: &mut [u8]) -> bool {
    let clash = bytes::be32(block, 0) == Some(MAGIC);
    if clash {
        let _inside = bytes::put_be32(block, 0, 0);
    }
    clash
}

/// Undoes [`escape`] for a block whose tag says that it was escaped.
pub fn unescape(block: &mut [u8]) {
    let _inside = bytes::put_be32(block, 0, MAGIC);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(checksums: ChecksumVersion, wide: bool) -> LogFormat {
        LogFormat { block_size: 1024, checksums, wide, seed: 0x1234_5678 }
    }

    #[test]
    fn tag_sizes_of_every_format() {
        use ChecksumVersion::{None, V1, V2, V3};
        let sizes = [(None, 8, 12), (V1, 8, 12), (V2, 10, 14), (V3, 16, 16)];
        for (version, narrow, wide) in sizes {
            assert_eq!(format(version, false).tag_size(), narrow, "{version:?}");
            assert_eq!(format(version, true).tag_size(), wide, "{version:?} 64-bit");
        }
    }

    #[test]
    fn a_tail_covers_every_byte_before_it() {
        let format = format(ChecksumVersion::V2, true);
        let mut block = vec![7u8; 1024];
        format.seal_tail(&mut block);
        assert_eq!(format.verify_tail(&block), Ok(()));
        for at in [0, 500, 1019, 1020, 1023] {
            block[at] ^= 1;
            assert!(matches!(format.verify_tail(&block), Err(Defect::Checksum { .. })), "byte {at}");
            block[at] ^= 1;
        }
    }

    #[test]
    fn logs_without_block_checksums_have_no_tail() {
        let format = format(ChecksumVersion::V1, false);
        let mut block = vec![7u8; 1024];
        format.seal_tail(&mut block);
        assert_eq!(block, [7u8; 1024]);
        assert_eq!(format.verify_tail(&block), Ok(()));
    }

    #[test]
    fn only_the_magic_number_is_escaped() {
        let mut block = [0xc0, 0x3b, 0x39, 0x98, 9];
        assert!(escape(&mut block));
        assert_eq!(block, [0, 0, 0, 0, 9]);
        assert!(!escape(&mut block));
        unescape(&mut block);
        assert_eq!(block, [0xc0, 0x3b, 0x39, 0x98, 9]);
        assert!(!escape(&mut [0xc0, 0x3b]));
    }
}
