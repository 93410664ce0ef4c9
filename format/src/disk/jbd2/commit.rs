//! The commit block, which ends a transaction.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::format::{ChecksumVersion, LogFormat};
use super::header::{BlockHeader, BlockType};
use crate::bytes;
use crate::disk::crc::crc32c;
use crate::error::Defect;
use crate::ids::TransactionId;

/// Head of a commit block; the rest of the block is zero.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CommitRecord {
    /// Magic, type and sequence.
    pub header: BlockHeader,
    /// Version 1 only: [`CommitRecord::CRC32`], or 0 for none.
    pub h_chksum_type: u8,
    /// Version 1 only: bytes of the checksum, 4.
    pub h_chksum_size: u8,
    /// Zero.
    pub h_padding: [u8; 2],
    /// The checksum is in the first word; the others are zero.
    pub h_chksum: [U32; 8],
    /// Seconds since 1970 when the commit was written. Some writers get it wrong: a hint, no more.
    pub h_commit_sec: U64,
    /// Nanoseconds of that time.
    pub h_commit_nsec: U32,
}
const _: () = assert!(size_of::<CommitRecord>() == 60);
const _: () = assert!(offset_of!(CommitRecord, h_chksum) == 0x10);
const _: () = assert!(offset_of!(CommitRecord, h_commit_sec) == 0x30);

/// Where the checksum lies.
const CHECKSUM_AT: usize = 0x10;

impl CommitRecord {
    /// `h_chksum_type` of a CRC-32 in version 1.
    pub const CRC32: u8 = 1;

    /// The record at the start of a block; `None` if it is not a commit block.
    pub fn of(block: &[u8]) -> Option<Self> {
        let (record, _) = Self::read_from_prefix(block).ok()?;
        (BlockHeader::of(block)?.kind() == BlockType::COMMIT).then_some(record)
    }

    /// A commit without a checksum, at a time in seconds and nanoseconds since 1970.
    pub fn new(sequence: TransactionId, seconds: u64, nanoseconds: u32) -> Self {
        Self {
            header: BlockHeader::new(BlockType::COMMIT, sequence),
            h_chksum_type: 0,
            h_chksum_size: 0,
            h_padding: [0; 2],
            h_chksum: [U32::ZERO; 8],
            h_commit_sec: U64::new(seconds),
            h_commit_nsec: U32::new(nanoseconds),
        }
    }

    /// The whole block of this commit, with its checksum put right. `covered` is the CRC-32 register over the
    /// transaction's descriptors and logged blocks in log order; only version 1 uses it.
    pub fn to_block(mut self, format: &LogFormat, covered: u32) -> Vec<u8> {
        if format.checksums == ChecksumVersion::V1 {
            self.h_chksum_type = Self::CRC32;
            self.h_chksum_size = 4;
            self.h_chksum = [U32::ZERO; 8];
            if let Some(first) = self.h_chksum.first_mut() {
                *first = U32::new(covered);
            }
        }
        let mut block = vec![0; crate::num::index(format.block_size)];
        if let Some(head) = bytes::span_mut(&mut block, 0, size_of::<Self>()) {
            head.copy_from_slice(self.as_bytes());
        }
        seal(format, &mut block);
        block
    }

    /// The stored checksum.
    fn stored(&self) -> u32 {
        self.h_chksum.first().map_or(0, |word| word.get())
    }

    /// Whether a version-1 commit says that it carries no checksum.
    fn carries_none(&self) -> bool {
        self.h_chksum_type == 0 && self.h_chksum_size == 0 && self.stored() == 0
    }
}

/// Puts the CRC-32C of a commit block in place, where the log has one.
pub fn seal(format: &LogFormat, block: &mut [u8]) {
    if format.has_block_checksums() {
        let _inside = bytes::put_be32(block, CHECKSUM_AT, 0);
        let checksum = crc32c(format.seed, block);
        let _inside = bytes::put_be32(block, CHECKSUM_AT, checksum);
    }
}

/// Checks a commit block. `covered` is the CRC-32 register over the transaction's descriptors and logged blocks in
/// log order; only version 1 uses it.
pub fn verify(format: &LogFormat, block: &[u8], covered: u32) -> Result<(), Defect> {
    let record = CommitRecord::of(block).ok_or(Defect::Truncated { what: "commit block" })?;
    let stored = record.stored();
    let computed = match format.checksums {
        ChecksumVersion::None => return Ok(()),
        ChecksumVersion::V1 if record.carries_none() => return Ok(()),
        ChecksumVersion::V1 => {
            if record.h_chksum_type != CommitRecord::CRC32 || record.h_chksum_size != 4 {
                let (kind, size) = (record.h_chksum_type, record.h_chksum_size);
                return Err(Defect::Contradiction(format!("checksum has type {kind} and {size} bytes")));
            }
            covered
        }
        ChecksumVersion::V2 | ChecksumVersion::V3 => {
            let (head, rest) = block.split_at_checked(size_of::<CommitRecord>()).unwrap_or((block, &[]));
            let mut head = head.to_vec();
            let _inside = bytes::put_be32(&mut head, CHECKSUM_AT, 0);
            let register = crc32c(format.seed, &head);
            let whole = crc32c(register, rest);
            // All that a commit says lies in its first sector, and the rest was zero when it was sealed. A device
            // that wrote only that sector has written the commit.
            if whole != stored && crc32c(register, &vec![0; rest.len()]) == stored {
                return Ok(());
            }
            whole
        }
    };
    if stored == computed { Ok(()) } else { Err(Defect::Checksum { stored, computed }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(checksums: ChecksumVersion) -> LogFormat {
        LogFormat { block_size: 1024, checksums, wide: true, seed: 0x9999_1111 }
    }

    #[test]
    fn every_version_verifies_what_it_sealed() {
        use ChecksumVersion::{None, V1, V2, V3};
        for version in [None, V1, V2, V3] {
            let format = format(version);
            let block = CommitRecord::new(TransactionId(9), 1_700_000_000, 5).to_block(&format, 0xabcd);
            assert_eq!(verify(&format, &block, 0xabcd), Ok(()), "{version:?}");
            let record = CommitRecord::of(&block).unwrap();
            assert_eq!(record.h_commit_sec.get(), 1_700_000_000);
            assert_eq!(record.h_chksum_type, u8::from(version == V1));
        }
    }

    #[test]
    fn version_one_checks_what_the_transaction_holds() {
        let format = format(ChecksumVersion::V1);
        let block = CommitRecord::new(TransactionId(9), 0, 0).to_block(&format, 1);
        assert_eq!(verify(&format, &block, 2), Err(Defect::Checksum { stored: 1, computed: 2 }));
        let mut odd = block.clone();
        odd[0x0c] = 2;
        assert!(matches!(verify(&format, &odd, 1), Err(Defect::Contradiction(_))));
        let none = CommitRecord::new(TransactionId(9), 0, 0);
        let mut block = vec![0; 1024];
        block[..60].copy_from_slice(none.as_bytes());
        assert_eq!(verify(&format, &block, 77), Ok(()), "a commit may carry no checksum");
    }

    #[test]
    fn a_flipped_bit_in_the_record_is_found_but_a_stale_rest_is_not_damage() {
        let format = format(ChecksumVersion::V3);
        let mut block = CommitRecord::new(TransactionId(9), 0, 0).to_block(&format, 0);
        block[0x35] ^= 4;
        assert!(verify(&format, &block, 0).is_err());
        block[0x35] ^= 4;
        block[512..].fill(0xee);
        assert_eq!(verify(&format, &block, 0), Ok(()));
    }

    #[test]
    fn other_blocks_are_no_commits() {
        let header = BlockHeader::new(BlockType::REVOKE, TransactionId(9));
        let mut block = vec![0; 1024];
        block[..12].copy_from_slice(header.as_bytes());
        assert_eq!(CommitRecord::of(&block), None);
        assert!(verify(&format(ChecksumVersion::V2), &block, 0).is_err());
    }
}
