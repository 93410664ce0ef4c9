//! Revoke blocks: blocks whose copies in this and earlier transactions must not be replayed.
//!
//! Such a block was freed as metadata. It may since hold file data that never goes through the log, and replaying
//! an old copy over it would destroy that data.

use std::mem::size_of;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::format::LogFormat;
use super::header::{BlockHeader, BlockType};
use crate::bytes;
use crate::error::Defect;
use crate::ids::TransactionId;
use crate::num::{index, wide};

/// Head of a revoke block; records follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RevokeHeader {
    /// Magic, type and sequence.
    pub header: BlockHeader,
    /// Bytes in use, this header included.
    pub r_count: U32,
}
const _: () = assert!(size_of::<RevokeHeader>() == 16);

/// The revoked block numbers of a revoke block. Its checksum is verified apart from this
/// ([`LogFormat::verify_tail`]).
pub fn records(format: &LogFormat, block: &[u8]) -> Result<impl Iterator<Item = u64>, Defect> {
    let (head, _) =
        RevokeHeader::read_from_prefix(block).map_err(|_| Defect::Truncated { what: "revoke block" })?;
    let most = block.len().saturating_sub(format.tail_size());
    let count = head.r_count.get();
    Defect::check_range("r_count", u64::from(count), wide(size_of::<RevokeHeader>()), wide(most))?;
    let listed = block.get(size_of::<RevokeHeader>()..index(count)).unwrap_or_default();
    let wide = format.wide;
    let numbers = listed.chunks_exact(format.revoke_size()).filter_map(move |record| {
        if wide { bytes::be64(record, 0) } else { bytes::be32(record, 0).map(u64::from) }
    });
    Ok(numbers)
}

/// Builds one revoke block.
#[derive(Clone, Debug)]
pub struct RevokeWriter {
    format: LogFormat,
    block: Vec<u8>,
    used: usize,
}

impl RevokeWriter {
    /// An empty revoke block of a transaction.
    pub fn new(format: LogFormat, sequence: TransactionId) -> Self {
        let mut block = vec![0; index(format.block_size)];
        let header = BlockHeader::new(BlockType::REVOKE, sequence);
        if let Some(head) = bytes::span_mut(&mut block, 0, size_of::<BlockHeader>()) {
            head.copy_from_slice(header.as_bytes());
        }
        Self { format, block, used: size_of::<RevokeHeader>() }
    }

    /// Adds a block number; `false` if the block is full or the number does not fit the log's records.
    #[must_use]
    pub fn push(&mut self, block: u64) -> bool {
        let Some(end) = self.used.checked_add(self.format.revoke_size()) else { return false };
        if end > self.block.len().saturating_sub(self.format.tail_size()) {
            return false;
        }
        let stored = if self.format.wide {
            bytes::put_be64(&mut self.block, self.used, block)
        } else {
            u32::try_from(block).ok().and_then(|number| bytes::put_be32(&mut self.block, self.used, number))
        };
        if stored.is_some() {
            self.used = end;
        }
        stored.is_some()
    }

    /// The finished block, with its count and checksum.
    pub fn finish(mut self) -> Vec<u8> {
        let count = u32::try_from(self.used).unwrap_or(u32::MAX);
        let _inside = bytes::put_be32(&mut self.block, size_of::<BlockHeader>(), count);
        self.format.seal_tail(&mut self.block);
        self.block
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::ChecksumVersion;
    use super::*;

    fn format(checksums: ChecksumVersion, wide: bool) -> LogFormat {
        LogFormat { block_size: 1024, checksums, wide, seed: 1 }
    }

    #[test]
    fn records_come_back_in_every_format() {
        for checksums in
            [ChecksumVersion::None, ChecksumVersion::V1, ChecksumVersion::V2, ChecksumVersion::V3]
        {
            for wide in [false, true] {
                let format = format(checksums, wide);
                let mut writer = RevokeWriter::new(format, TransactionId(3));
                let mut pushed = Vec::new();
                let mut number = if wide { 0x1_0000_0001 } else { 7 };
                while writer.push(number) {
                    pushed.push(number);
                    number += 3;
                }
                let room = 1024 - 16 - format.tail_size();
                assert_eq!(pushed.len(), room / format.revoke_size());
                let block = writer.finish();
                assert_eq!(format.verify_tail(&block), Ok(()));
                assert_eq!(records(&format, &block).unwrap().collect::<Vec<_>>(), pushed);
            }
        }
    }

    #[test]
    fn a_wide_number_does_not_fit_a_narrow_log() {
        let mut writer = RevokeWriter::new(format(ChecksumVersion::None, false), TransactionId(3));
        assert!(!writer.push(1 << 32));
        assert!(writer.push(5));
        let block = writer.finish();
        assert_eq!(block[12..16], [0, 0, 0, 20]);
    }

    #[test]
    fn the_count_must_lie_in_the_block() {
        let format = format(ChecksumVersion::V3, true);
        let mut block = RevokeWriter::new(format, TransactionId(3)).finish();
        assert_eq!(records(&format, &block).unwrap().count(), 0);
        for (count, fits) in [(0u32, false), (15, false), (16, true), (23, true), (1020, true), (1021, false)]
        {
            block[12..16].copy_from_slice(&count.to_be_bytes());
            assert_eq!(records(&format, &block).is_ok(), fits, "{count}");
        }
        block[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(records(&format, &block).is_err());
    }
}
