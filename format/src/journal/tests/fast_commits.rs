//! Reading the fast-commit area: what counts, and where reading ends.

use super::super::testing::*;
use super::super::*;
use crate::disk::fast_commit::{NameChange, Record};
use crate::disk::jbd2::{ChecksumVersion, IncompatFeatures};
use crate::ids::{InodeNumber, LogicalBlock, TransactionId};

const ROOT: InodeNumber = InodeNumber::ROOT;

/// The number that counts after one transaction in the log.
const RUNNING: TransactionId = TransactionId(2);

fn head(transaction: TransactionId) -> Record<'static> {
    Record::Head { features: 0, transaction }
}

fn tail() -> Record<'static> {
    Record::Tail { transaction: RUNNING, checksum: 0 }
}

fn create(name: &[u8]) -> Record<'_> {
    Record::Create(NameChange { parent: ROOT, inode: InodeNumber::new(12).unwrap(), name })
}

/// Three commits in journal blocks 1025 to 1027; the second fills a block before it ends in the next.
fn records(raw: &[u8]) -> Vec<Record<'_>> {
    let inode = InodeNumber::new(12).unwrap();
    let cut = Record::DeleteRange { inode, start: LogicalBlock(4), count: 2 };
    let whole = Record::Inode { inode, raw };
    vec![head(RUNNING), create(b"one"), tail(), whole.clone(), cut, tail(), create(b"three"), tail()]
}

fn log(records: &[Record<'_>]) -> LogBuilder {
    let mut log = LogBuilder::new(ChecksumVersion::V3, true).with_fast_commits(records);
    log.transaction(&[(5, 1)], &[]);
    log
}

fn read(log: &LogBuilder) -> FastCommits {
    let (journal, scan) = log.scan();
    assert_eq!(scan.transactions().len(), 1);
    assert_eq!(scan.next(), RUNNING);
    journal.fast_commits(scan.next()).unwrap()
}

fn place(block: u32, offset: usize) -> RecordPlace {
    RecordPlace { block, offset }
}

#[test]
fn commits_come_back_with_their_operations() {
    let raw = [7; 160];
    let found = read(&log(&records(&raw)));
    let counts: Vec<usize> = found.commits.iter().map(|commit| commit.operations.len()).collect();
    assert_eq!(counts, [1, 2, 1]);
    let name = DirectoryName { parent: ROOT, inode: InodeNumber::new(12).unwrap(), name: b"one".to_vec() };
    assert_eq!(found.commits[0].operations, [(place(1025, 12), Operation::Create(name))]);
    assert_eq!(found.commits[0].tail, place(1025, 27));
    let (_, Operation::Inode { raw: bytes, .. }) = &found.commits[1].operations[0] else {
        panic!("no inode")
    };
    assert_eq!(bytes, &raw);
    assert!(matches!(found.stop, FastStop::NotARecord { place: RecordPlace { block: 1028, offset: 0 }, .. }));
    assert_eq!(found.uncommitted, 0);
}

#[test]
fn a_commit_may_reach_over_blocks() {
    let raw = [7; 600];
    let inode = InodeNumber::new(12).unwrap();
    let large = Record::Inode { inode, raw: &raw };
    let found = read(&log(&[head(RUNNING), large.clone(), large.clone(), large, tail()]));
    assert_eq!(found.commits.len(), 1);
    let places: Vec<RecordPlace> = found.commits[0].operations.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, [place(1025, 12), place(1026, 0), place(1027, 0)]);
}

#[test]
fn a_log_without_an_area_has_no_fast_commits() {
    let mut plain = LogBuilder::new(ChecksumVersion::V3, true);
    plain.transaction(&[(5, 1)], &[]);
    assert_eq!(read(&plain).stop, FastStop::NoArea);
    let mut unused = log(&[]);
    assert_eq!(read(&unused).stop, FastStop::NoHead);
    // An area that begins with anything else than a head.
    unused.log_block(1025)[0] = 7;
    assert_eq!(read(&unused).stop, FastStop::NoHead);
}

#[test]
fn an_area_of_another_transaction_is_a_leftover() {
    for other in [1, 3] {
        let found = read(&log(&[head(TransactionId(other)), create(b"one"), tail()]));
        assert!(found.commits.is_empty());
        assert_eq!(
            found.stop,
            FastStop::OtherTransaction { place: place(1025, 0), found: TransactionId(other) }
        );
    }
    // The head is right, but the second tail is not: the log was cleared and written again up to there.
    let old = Record::Tail { transaction: TransactionId(1), checksum: 0 };
    let found = read(&log(&[head(RUNNING), create(b"one"), tail(), create(b"two"), old]));
    assert_eq!((found.commits.len(), found.uncommitted), (1, 1));
    assert!(matches!(found.stop, FastStop::OtherTransaction { found: TransactionId(1), .. }));
}

#[test]
fn unknown_features_are_told() {
    let found = read(&log(&[Record::Head { features: 4, transaction: RUNNING }, create(b"one"), tail()]));
    assert_eq!(found.stop, FastStop::UnknownFeatures(4));
    assert!(found.commits.is_empty());
}

#[test]
fn reading_ends_with_the_area() {
    let mut records = vec![head(RUNNING)];
    for _ in 0..31 {
        records.extend([create(b"name"), tail()]);
    }
    let found = read(&log(&records));
    assert_eq!((found.commits.len(), found.stop), (31, FastStop::EndOfArea));
}

#[test]
fn a_tail_one_byte_short_ends_its_block_too() {
    let mut log = log(&records(&[7; 160]));
    // The checksum covers the length.
    let tail_at = 27;
    let length = u16::from_le_bytes([log.log_block(1025)[tail_at + 2], log.log_block(1025)[tail_at + 3]]);
    log.log_block(1025)[tail_at + 2..tail_at + 4].copy_from_slice(&(length - 1).to_le_bytes());
    let covered = crate::disk::crc::crc32c(0, &log.log_block(1025)[..tail_at + 8]);
    log.log_block(1025)[tail_at + 8..tail_at + 12].copy_from_slice(&covered.to_le_bytes());
    assert_eq!(read(&log).commits.len(), 3);
}

#[test]
fn a_flipped_bit_ends_reading_before_its_commit() {
    let whole = log(&records(&[7; 160]));
    let ends = [39, 196, 29];
    for (index, end) in ends.into_iter().enumerate() {
        let block = 1025 + u32::try_from(index).unwrap();
        for bit in 0..end * 8 {
            let mut log = whole.clone();
            log.log_block(block)[bit / 8] ^= 1 << (bit % 8);
            let found = read(&log);
            assert!(found.commits.len() <= index, "block {block}, bit {bit}: {found:?}");
            assert!(found.stop != FastStop::EndOfArea);
        }
    }
}

#[test]
fn the_area_is_not_part_of_the_log() {
    // A log that wraps at the end of the area instead of before it would not find the rest of this transaction.
    let mut log = LogBuilder::new(ChecksumVersion::V3, true)
        .with_fast_commits(&records(&[7; 160]))
        .beginning(1023, TransactionId(1));
    log.transaction(&[(5, 1), (6, 1)], &[]);
    assert!(log.superblock.incompat().contains(IncompatFeatures::FAST_COMMIT));
    assert_eq!(log.replayed().len(), 2);
    assert_eq!(read(&log).commits.len(), 3);
}
