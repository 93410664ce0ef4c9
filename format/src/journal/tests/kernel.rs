//! Journals that a kernel left, against what an independent parser made of them. See testdata/journal/README.md.

use std::io::Read;
use std::sync::Arc;

use super::super::*;
use crate::disk::crc::crc32c;
use crate::disk::jbd2::tags::TagFlags;
use crate::ids::{BlockNumber, BlockRun, TransactionId};
use crate::store::MemoryStore;

/// Opens a journal that lies behind all blocks of its filesystem.
fn open(compressed: &[u8], block_size: u32) -> Journal {
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(compressed).unwrap().read_to_end(&mut bytes).unwrap();
    let size = usize::try_from(block_size).unwrap();
    let start = BlockNumber(DEVICE);
    let length = u64::try_from(bytes.len() / size).unwrap();
    let mut image = vec![0; usize::try_from(DEVICE).unwrap() * size];
    image.append(&mut bytes);
    let store = Arc::new(MemoryStore::from_bytes(&image));
    Journal::open(LogBlocks::internal(store, block_size, &[BlockRun { start, length }]).unwrap()).unwrap()
}

const DEVICE: u64 = 24_576;

/// Transactions, copies, revokes, escaped copies, replayed blocks, and the digest over these.
type Facts = (usize, usize, usize, usize, u64, u32);

fn facts(journal: &Journal, scan: &Scan) -> Facts {
    let copies = || scan.transactions().iter().flat_map(|whole| scan.blocks_of(whole));
    let escaped = copies().filter(|copy| copy.flags.contains(TagFlags::ESCAPE)).count();
    let revokes = scan.transactions().iter().map(|whole| scan.revokes_of(whole).len()).sum();
    let mut digest = u32::MAX;
    let plan = ReplayPlan::new(scan, None).unwrap();
    let done = plan.apply(journal, |block, bytes| {
        digest = crc32c(crc32c(digest, &block.0.to_be_bytes()), bytes);
        Ok(())
    });
    let done = done.unwrap();
    assert_eq!(done.bad_copies, []);
    (scan.transactions().len(), copies().count(), revokes, escaped, done.written, digest)
}

#[test]
fn version_one_with_asynchronous_commits_that_wraps() {
    let journal = open(include_bytes!("../../../../testdata/journal/v1-async-wrap.jnl.zst"), 2048);
    let scan = journal.scan(DEVICE).unwrap();
    assert_eq!(scan.stop(), &Stop::NoMagic { block: 406 });
    assert_eq!(facts(&journal, &scan), (30, 634, 7, 0, 159, 0xe75d_8a1e));
    assert_eq!(scan.next(), TransactionId(63));
    assert!(scan.transactions()[0].start > scan.head());
}

#[test]
fn version_three_with_revokes_and_escaped_blocks() {
    let journal = open(include_bytes!("../../../../testdata/journal/v3-revoke-escape.jnl.zst"), 1024);
    let scan = journal.scan(DEVICE).unwrap();
    assert_eq!(scan.stop(), &Stop::NoMagic { block: 826 });
    assert_eq!(facts(&journal, &scan), (8, 720, 435, 12, 426, 0x3764_baa6));
    assert_eq!(journal.check_copies(&scan).unwrap(), []);
}

#[test]
fn version_three_with_fast_commits() {
    let journal = open(include_bytes!("../../../../testdata/journal/v3-fast-commits.jnl.zst"), 1024);
    let scan = journal.scan(DEVICE).unwrap();
    assert_eq!(scan.stop(), &Stop::NoMagic { block: 31 });
    assert_eq!(facts(&journal, &scan), (2, 26, 0, 0, 18, 0xe597_99d5));
    let fast = journal.fast_commits(scan.next()).unwrap();
    assert_eq!((fast.commits.len(), fast.uncommitted), (49, 0));
    assert_eq!(fast.stop.to_string(), "journal block 4146, byte 0: fc_tag is 0, which is outside 1..=9");
    let count = |wanted: fn(&Operation) -> bool| {
        let operations = fast.commits.iter().flat_map(|commit| &commit.operations);
        operations.filter(|(_, operation)| wanted(operation)).count()
    };
    assert_eq!(count(|operation| matches!(operation, Operation::Inode { .. })), 77);
    assert_eq!(count(|operation| matches!(operation, Operation::AddRange { .. })), 34);
    assert_eq!(count(|operation| matches!(operation, Operation::DeleteRange { .. })), 6);
    assert_eq!(count(|operation| matches!(operation, Operation::Create(_))), 28);
    assert_eq!(count(|operation| matches!(operation, Operation::Link(_))), 6);
    assert_eq!(count(|operation| matches!(operation, Operation::Unlink(_))), 6);
}
