//! A transaction as the blocks that a log holds for it. Pure: where they go, and when to flush, is the caller's.

use crate::disk::crc::crc32_be;
use crate::disk::jbd2::commit::CommitRecord;
use crate::disk::jbd2::revoke::RevokeWriter;
use crate::disk::jbd2::tags::{DescriptorWriter, Tag, TagFlags};
use crate::disk::jbd2::{ChecksumVersion, LogFormat, escape};
use crate::error::{Error, Result};
use crate::ids::{BlockNumber, TransactionId};
use crate::num::index;

/// What a transaction holds.
#[derive(Clone, Copy, Debug)]
pub struct TransactionContents<'a> {
    /// Its sequence number.
    pub id: TransactionId,
    /// When it is committed, in seconds since 1970. Must not go back from one transaction to the next, or a reader
    /// may take the younger one's damage for leftovers.
    pub seconds: u64,
    /// The blocks, each with its contents.
    pub blocks: &'a [(BlockNumber, &'a [u8])],
    /// Blocks whose copies in this and earlier transactions no longer count.
    pub revokes: &'a [BlockNumber],
}

/// A transaction as log blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedTransaction {
    /// Revokes, descriptors and copies, in log order.
    pub body: Vec<Vec<u8>>,
    /// The commit. It follows the body in the log, and is written when the body is durable.
    pub commit: Vec<u8>,
}

/// Lays out a transaction. The UUID is the journal's.
pub fn encode_transaction(
    format: LogFormat,
    uuid: [u8; 16],
    contents: &TransactionContents<'_>,
) -> Result<EncodedTransaction> {
    let mut body = revoke_blocks(format, contents)?;
    // The checksum of version 1 does not cover revoke blocks.
    let revokes = body.len();
    let mut rest = contents.blocks;
    while !rest.is_empty() {
        let mut writer = DescriptorWriter::new(format, contents.id, uuid);
        let mut copies = Vec::new();
        while let Some(((block, bytes), tail)) = rest.split_first()
            && writer.has_room()
        {
            copies.push(push_copy(format, contents.id, (*block, bytes), &mut writer)?);
            rest = tail;
        }
        let no_room = || Error::Invalid("a journal block has no room for a tag".to_owned());
        body.push(writer.finish().ok_or_else(no_room)?);
        body.append(&mut copies);
    }
    let covered = match format.checksums {
        ChecksumVersion::V1 => {
            body.iter().skip(revokes).fold(u32::MAX, |register, block| crc32_be(register, block))
        }
        _ => 0,
    };
    let commit = CommitRecord::new(contents.id, contents.seconds, 0).to_block(&format, covered);
    Ok(EncodedTransaction { body, commit })
}

fn push_copy(
    format: LogFormat,
    id: TransactionId,
    (block, bytes): (BlockNumber, &[u8]),
    writer: &mut DescriptorWriter,
) -> Result<Vec<u8>> {
    if bytes.len() != index(format.block_size) {
        return Err(Error::Invalid(format!("block {block} is logged with {} bytes", bytes.len())));
    }
    let mut copy = bytes.to_vec();
    let mut flags = TagFlags::empty();
    flags.set(TagFlags::ESCAPE, escape(&mut copy));
    let tag = Tag { block: block.0, flags, checksum: format.data_checksum(id, &copy) };
    if !writer.push(tag) {
        return Err(Error::Invalid(format!("block {block} is beyond what the journal's tags can name")));
    }
    Ok(copy)
}

fn revoke_blocks(format: LogFormat, contents: &TransactionContents<'_>) -> Result<Vec<Vec<u8>>> {
    let mut blocks = Vec::new();
    let mut rest = contents.revokes;
    while !rest.is_empty() {
        let mut writer = RevokeWriter::new(format, contents.id);
        let full = rest.len();
        while let Some((block, tail)) = rest.split_first()
            && writer.push(block.0)
        {
            rest = tail;
        }
        if let Some(block) = rest.first().filter(|_| rest.len() == full) {
            let text = format!("block {block} is beyond what the journal's revoke records can name");
            return Err(Error::Invalid(text));
        }
        blocks.push(writer.finish());
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::super::testing::BLOCK;
    use super::*;

    const NARROW: LogFormat =
        LogFormat { block_size: 1024, checksums: ChecksumVersion::V2, wide: false, seed: 7 };

    fn encode(blocks: &[(BlockNumber, &[u8])], revokes: &[BlockNumber]) -> Result<EncodedTransaction> {
        let contents = TransactionContents { id: TransactionId(3), seconds: 1, blocks, revokes };
        encode_transaction(NARROW, [1; 16], &contents)
    }

    #[test]
    fn an_empty_transaction_is_a_commit_alone() {
        let encoded = encode(&[], &[]).unwrap();
        assert!(encoded.body.is_empty());
        assert_eq!(encoded.commit.len(), BLOCK);
    }

    #[test]
    fn revokes_come_first_and_fill_as_many_blocks_as_they_need() {
        let revokes: Vec<BlockNumber> = (0..252).map(BlockNumber).collect();
        let copy = [1; BLOCK];
        let encoded = encode(&[(BlockNumber(9), &copy)], &revokes).unwrap();
        let kinds: Vec<u8> = encoded.body.iter().map(|block| block[7]).collect();
        assert_eq!(kinds, [5, 5, 1, 1], "251 records fit a block; the last is the copy");
    }

    #[test]
    fn what_the_log_cannot_hold_is_refused() {
        let (copy, short) = ([1; BLOCK], [1; BLOCK - 1]);
        let beyond = BlockNumber(1 << 32);
        assert!(matches!(encode(&[(BlockNumber(9), &short)], &[]), Err(Error::Invalid(_))));
        assert!(matches!(encode(&[(beyond, &copy)], &[]), Err(Error::Invalid(_))));
        assert!(matches!(encode(&[], &[BlockNumber(8), beyond]), Err(Error::Invalid(_))));
    }
}
