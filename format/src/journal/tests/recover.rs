//! Recovery in place: what it leaves, and that it may be interrupted anywhere.

use std::sync::Arc;

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

use super::super::testing::*;
use super::super::*;
use crate::Error;
use crate::disk::fast_commit::{NameChange, Record};
use crate::disk::features::{Compat, Incompat, RoCompat};
use crate::disk::jbd2::ChecksumVersion;
use crate::disk::superblock::{self, Superblock, state};
use crate::ids::{InodeNumber, TransactionId};
use crate::store::{MemoryStore, Operation, Recorder, Store};

/// A superblock whose free count tells versions of it apart.
fn superblock(free: u64, errors: u32, recover: bool) -> Superblock {
    let mut superblock = Superblock::zeroed();
    superblock.s_magic.set(superblock::MAGIC);
    superblock.s_rev_level.set(1);
    let mut features = superblock.features();
    features.compat.insert(Compat::HAS_JOURNAL);
    features.incompat.set(Incompat::RECOVER, recover);
    features.ro_compat.insert(RoCompat::METADATA_CSUM);
    superblock.set_features(features);
    superblock.s_state.set(state::VALID);
    superblock.set_free_blocks_count(free);
    superblock.s_error_count.set(errors);
    superblock.s_last_error.line.set(errors);
    superblock.refresh_checksum();
    superblock
}

/// Two transactions; the first of them logs a superblock.
fn log(on_disk: &Superblock, logged: &Superblock) -> LogBuilder {
    let mut log = LogBuilder::new(ChecksumVersion::V3, true);
    log.image[1024..2048].copy_from_slice(on_disk.as_bytes());
    let copy = |fill| vec![fill; BLOCK];
    log.transaction_of(&[(1, logged.as_bytes().to_vec()), (5, copy(1)), (6, copy(1))], &[]);
    log.transaction_of(&[(5, copy(2)), (7, copy(2))], &[6]);
    log
}

fn usual() -> LogBuilder {
    log(&superblock(9, 3, true), &superblock(5, 0, true))
}

fn run(store: &Arc<impl Store + 'static>, until: Option<TransactionId>) -> Result<Recovered> {
    let journal = journal_on(store.clone())?;
    recover(store.as_ref(), &journal, until)
}

/// Recovers and returns what was done to the store.
fn record_run(image: &[u8]) -> (Result<Recovered>, Vec<Operation>) {
    let recorder = Recorder::new(MemoryStore::from_bytes(image));
    let record = recorder.record();
    (run(&Arc::new(recorder), None), record.operations())
}

fn superblock_on(store: &MemoryStore) -> Superblock {
    let superblock = Superblock::parse(&store.to_vec()[1024..]).unwrap();
    assert_eq!(superblock.verify_checksum(), Ok(()));
    superblock
}

#[test]
fn recovery_leaves_an_empty_log_and_a_superblock_that_says_so() {
    let store = Arc::new(MemoryStore::from_bytes(&usual().image));
    let recovered = run(&store, None).unwrap();
    assert!(!recovered.is_damaged());
    assert_eq!((recovered.replayed.written, recovered.revoked), (3, 1));
    let superblock = superblock_on(&store);
    assert_eq!(superblock.as_bytes(), recovered.superblock.as_bytes());
    assert_eq!(superblock.free_blocks_count(), 5, "from the log");
    assert_eq!((superblock.s_error_count.get(), superblock.s_last_error.line.get()), (3, 3), "from the disk");
    assert!(!superblock.features().incompat.contains(Incompat::RECOVER));
    let bytes = store.to_vec();
    let fills: Vec<u8> = [5, 6, 7].iter().map(|block| bytes[block * BLOCK]).collect();
    assert_eq!(fills, [2, 0, 2]);
    let journal = journal_on(store).unwrap();
    assert!(journal.superblock().is_empty());
    assert_eq!(journal.superblock().sequence(), TransactionId(4));
}

#[test]
fn the_error_record_that_counts_more_is_kept() {
    for (on_disk, logged, kept) in [(3, 0, 3), (3, 3, 3), (3, 4, 4)] {
        let store = Arc::new(MemoryStore::from_bytes(
            &log(&superblock(9, on_disk, true), &superblock(5, logged, true)).image,
        ));
        run(&store, None).unwrap();
        let superblock = superblock_on(&store);
        assert_eq!((superblock.s_error_count.get(), superblock.s_last_error.line.get()), (kept, kept));
    }
}

#[test]
fn an_aborted_or_damaged_journal_leaves_its_mark() {
    let mut aborted = usual();
    aborted.superblock.s_errno = U32::new(0xffff_fffb);
    aborted.store_superblock();
    let store = Arc::new(MemoryStore::from_bytes(&aborted.image));
    run(&store, None).unwrap();
    assert_eq!(superblock_on(&store).s_state.get(), state::VALID | state::ERROR);
    assert_eq!(journal_on(store).unwrap().superblock().s_errno.get(), 0xffff_fffb);

    let mut damaged = usual();
    damaged.log_block(10)[0x11] ^= 1; // the second commit
    let store = Arc::new(MemoryStore::from_bytes(&damaged.image));
    let recovered = run(&store, None).unwrap();
    assert!(recovered.is_damaged(), "{}", recovered.scan.stop());
    assert_eq!(superblock_on(&store).s_state.get(), 0);
}

#[test]
fn a_second_run_writes_nothing() {
    for image in interrupted_images() {
        let store = Arc::new(MemoryStore::from_bytes(&image));
        run(&store, None).unwrap();
        let (again, operations) = record_run(&store.to_vec());
        assert!(again.is_ok() && operations.is_empty(), "{operations:?}");
    }
}

#[test]
fn fast_commits_are_not_lost_silently() {
    let change = NameChange { parent: InodeNumber::ROOT, inode: InodeNumber::new(12).unwrap(), name: b"new" };
    let running = TransactionId(3);
    let records = [
        Record::Head { features: 0, transaction: running },
        Record::Create(change),
        Record::Tail { transaction: running, checksum: 0 },
    ];
    let image = usual().with_fast_commits(&records).image;
    let (refused, operations) = record_run(&image);
    let text = refused.unwrap_err().to_string();
    assert_eq!(text, "unsupported: replaying the fast commits in the journal, of which there are 1");
    assert!(operations.is_empty());
    let store = Arc::new(MemoryStore::from_bytes(&image));
    assert!(run(&store, Some(TransactionId(2))).is_ok());
    let journal = journal_on(store).unwrap();
    assert!(journal.fast_commits(journal.superblock().sequence()).unwrap().commits.is_empty());
}

#[test]
fn a_superblock_that_was_torn_is_taken_from_the_log() {
    let store = Arc::new(MemoryStore::from_bytes(&usual().image));
    run(&store, None).unwrap();
    let mut torn = usual();
    // The first sector of what a recovery writes, and the second of what was there.
    torn.image[1024..1536].copy_from_slice(&store.to_vec()[1024..1536]);
    assert!(Superblock::parse(&torn.image[1024..]).unwrap().verify_checksum().is_err());
    let recovered = record_run(&torn.image).0.unwrap();
    assert!(recovered.is_damaged() && recovered.superblock_from_log, "a full check is due");
    assert_eq!(recovered.superblock.free_blocks_count(), 5);
    assert_eq!((recovered.superblock.s_state.get(), recovered.superblock.verify_checksum()), (0, Ok(())));
}

#[test]
fn a_superblock_that_cannot_be_trusted_is_not_blessed() {
    // Neither the one on disk is good nor a copy in the log.
    let mut logged = superblock(5, 0, true);
    logged.s_mtime.set(1);
    let mut log = log(&superblock(9, 3, true), &logged);
    log.image[1024 + 0x50] ^= 1;
    let (refused, operations) = record_run(&log.image);
    assert!(refused.unwrap_err().is_corruption() && operations.is_empty());
    // Nor a copy in the log that is none.
    let mut log = LogBuilder::new(ChecksumVersion::None, true);
    log.image[1024..2048].copy_from_slice(superblock(9, 0, true).as_bytes());
    log.transaction(&[(1, 7), (5, 1)], &[]);
    let (refused, operations) = record_run(&log.image);
    assert!(matches!(refused, Err(Error::Corrupt { place: Place::Superblock, .. })));
    assert!(operations.is_empty());
}

/// Images whose recovery differs in which steps it takes.
fn interrupted_images() -> Vec<Vec<u8>> {
    let mut aborted = usual();
    aborted.superblock.s_errno = U32::new(0xffff_fffb);
    aborted.store_superblock();
    let mut damaged = usual();
    damaged.log_block(10)[0x11] ^= 1;
    let mut bad_copy = usual();
    bad_copy.log_block(4)[0] ^= 1;
    let unflagged = log(&superblock(9, 3, false), &superblock(5, 0, false));
    let mut without_superblock = LogBuilder::new(ChecksumVersion::V1, false);
    without_superblock.image[1024..2048].copy_from_slice(superblock(9, 3, false).as_bytes());
    without_superblock.transaction(&[(5, 1), (6, 2)], &[7]);
    [usual(), aborted, damaged, bad_copy, unflagged, without_superblock].map(|log| log.image).into()
}

#[test]
fn an_interrupted_recovery_ends_in_the_same_bytes() {
    for (case, image) in interrupted_images().into_iter().enumerate() {
        let start = MemoryStore::from_bytes(&image);
        let recorder = Recorder::new(start.clone());
        let record = recorder.record();
        run(&Arc::new(recorder), None).unwrap();
        let operations = record.operations();
        let wanted = start.clone();
        record.replay_prefix(operations.len(), &wanted).unwrap();
        for count in 0..=operations.len() {
            // Every subset of what was not flushed at that point may be missing.
            let volatile = record.volatile_after(count);
            assert!(volatile.len() < 8);
            for lost in 0..1u32 << volatile.len() {
                let store = start.clone();
                for (at, operation) in operations[..count].iter().enumerate() {
                    let bit = volatile.iter().position(|index| *index == at);
                    if bit.is_none_or(|bit| lost >> bit & 1 == 0) {
                        operation.apply(&store).unwrap();
                    }
                }
                let store = Arc::new(store);
                let changed = store.to_vec() != image;
                if changed && !journal_on(store.clone()).unwrap().superblock().is_empty() {
                    let features = superblock_on(&store).features();
                    assert!(
                        features.incompat.contains(Incompat::RECOVER),
                        "image {case}, cut after {count} operations: a kernel would wipe the log"
                    );
                }
                run(&store, None).unwrap();
                assert!(
                    store.to_vec() == wanted.to_vec(),
                    "image {case}, cut after {count} operations, lost {lost:b} of {volatile:?}"
                );
            }
        }
    }
}

#[test]
fn the_log_is_emptied_only_when_what_it_held_is_durable() {
    // The order of writes and flushes itself, so that a missing flush shows up by name.
    let (_, operations) = record_run(&usual().image);
    let steps: Vec<String> = operations
        .iter()
        .map(|operation| match operation {
            Operation::Write { offset, .. } => format!("write {}", offset / 1024),
            Operation::Flush { .. } => "flush".to_owned(),
            other => format!("{other:?}"),
        })
        .collect();
    let wanted = ["write 1", "write 5", "write 7", "flush", "write 700", "flush", "write 1", "flush"];
    assert_eq!(steps, wanted);
}
