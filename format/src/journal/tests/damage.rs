//! Damaged logs: nothing panics, nothing from the damage on is replayed, and the reason is told.

use std::collections::{BTreeMap, BTreeSet};

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

use super::super::testing::*;
use super::super::*;
use crate::Error;
use crate::disk::fast_commit::Record;
use crate::disk::jbd2::commit::{self, CommitRecord};
use crate::disk::jbd2::tags::Tags;
use crate::disk::jbd2::{ChecksumVersion, IncompatFeatures};
use crate::ids::{InodeNumber, LogicalBlock, TransactionId};

/// Four transactions in log blocks 1 to 16: revoke, descriptor, copies, commit where there are any of each.
fn four_transactions(version: ChecksumVersion, wide: bool) -> LogBuilder {
    let mut log = LogBuilder::new(version, wide);
    log.transaction(&[(5, 1), (6, 1), (7, 1)], &[]) // 1: descriptor, 2 to 4, 5: commit
        .transaction(&[(5, 2)], &[6]) // 6: revoke, 7: descriptor, 8, 9: commit
        .transaction(&[(6, 3), (8, 3)], &[]) // 10: descriptor, 11, 12, 13: commit
        .transaction(&[(5, 4)], &[]); // 14: descriptor, 15, 16: commit
    log
}

/// What the first so many transactions leave.
fn prefix_states(log: &LogBuilder) -> Vec<BTreeMap<u64, u8>> {
    let (journal, scan) = log.scan();
    let mut states = vec![BTreeMap::new()];
    states.extend(scan.transactions().iter().map(|whole| replay(&journal, &scan, Some(whole.id))));
    states
}

/// Reads everything there is to read and checks what must hold of any log.
fn exercise(journal: &Journal) -> Result<Scan> {
    let scan = journal.scan(DEVICE)?;
    let blocks: usize = scan.transactions().iter().map(|whole| scan.blocks_of(whole).len() + 1).sum();
    assert!(blocks < 1024, "more than a lap was walked");
    let plan = ReplayPlan::new(&scan, None)?;
    let mut before = None;
    plan.apply(journal, |block, bytes| {
        assert!(block.0 < DEVICE && !journal.blocks().owns(block) && bytes.len() == BLOCK);
        assert!(before.replace(block) < Some(block), "blocks come in ascending order, each once");
        Ok(())
    })?;
    journal.check_copies(&scan)?;
    journal.fast_commits(scan.next())?;
    assert!(journal.emptied(&scan).is_empty());
    Ok(scan)
}

#[test]
fn a_log_that_was_cut_or_zeroed_ends_before_the_gap() {
    for (version, wide) in kinds() {
        let whole = four_transactions(version, wide);
        let states = prefix_states(&whole);
        for at in 1..17 {
            let mut cut = whole.clone();
            (at..17).for_each(|block| cut.log_block(block).fill(0));
            let complete = COMMITS.iter().filter(|commit| **commit < at).count();
            let (journal, scan) = cut.scan();
            assert_eq!(scan.transactions().len(), complete, "{version:?} {wide}, cut at block {at}");
            assert_eq!(replay(&journal, &scan, None), states[complete]);
            assert!(!scan.stop().is_damage());
            let mut hole = whole.clone();
            hole.log_block(at).fill(0);
            let (journal, scan) = hole.scan();
            if !COPIES.contains(&at) {
                assert_eq!(replay(&journal, &scan, None), states[complete], "hole in block {at}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_never_lets_anything_past_a_bad_commit() {
    for (version, wide) in kinds() {
        let whole = four_transactions(version, wide);
        let states = prefix_states(&whole);
        for block in 1..17u32 {
            for bit in (0..BLOCK * 8).step_by(97).chain((0..60 * 8).step_by(5)) {
                let mut log = whole.clone();
                log.log_block(block)[bit / 8] ^= 1 << (bit % 8);
                let (journal, scan) = log.scan();
                let name = format!("{version:?} {wide}, block {block}, bit {bit}");
                exercise(&journal).unwrap();
                let complete = scan.transactions().len();
                let before = COMMITS.iter().filter(|commit| **commit < block).count();
                assert!(complete >= before, "{name}: a good transaction was lost");
                let bad = journal.check_copies(&scan).unwrap().len();
                match effect(version, block, bit) {
                    Effect::Unknown => {}
                    Effect::None => assert_eq!((complete, bad), (4, 0), "{name}"),
                    Effect::CopySkipped => assert_eq!((complete, bad), (4, 1), "{name}"),
                    Effect::EndsBefore => {
                        assert_eq!(complete, before, "{name}");
                        assert_eq!(replay(&journal, &scan, None), states[before], "{name}");
                    }
                }
            }
        }
    }
}

/// Where the four transactions have their commits, and their copies.
const COMMITS: [u32; 4] = [5, 9, 13, 16];
const COPIES: [u32; 7] = [2, 3, 4, 8, 11, 12, 15];

/// What a flipped bit does to a replay.
enum Effect {
    /// Nothing vouches for the bit, so anything that is safe may come of it.
    Unknown,
    None,
    CopySkipped,
    EndsBefore,
}

fn effect(version: ChecksumVersion, block: u32, bit: usize) -> Effect {
    let commit = COMMITS.contains(&block);
    match version {
        ChecksumVersion::None => Effect::Unknown,
        // Revoke blocks are not covered; of a commit only what leads to its checksum, and that itself.
        ChecksumVersion::V1 if block == 6 => Effect::Unknown,
        ChecksumVersion::V1 if commit && (112..128).contains(&bit) => Effect::None,
        ChecksumVersion::V1 if commit && bit >= 160 => Effect::None,
        // The rest of the block is not part of the commit.
        ChecksumVersion::V2 | ChecksumVersion::V3 if commit && bit >= 60 * 8 => Effect::None,
        ChecksumVersion::V2 | ChecksumVersion::V3 if COPIES.contains(&block) => Effect::CopySkipped,
        _ => Effect::EndsBefore,
    }
}

#[test]
fn a_bad_copy_gives_way_to_the_next_older_one() {
    let mut log = four_transactions(ChecksumVersion::V3, true);
    log.log_block(15)[9] ^= 1; // the newest copy of block 5
    log.log_block(12)[9] ^= 1; // the only copy of block 8
    let (journal, scan) = log.scan();
    assert!(!scan.stop().is_damage());
    let mut written = BTreeMap::new();
    let plan = ReplayPlan::new(&scan, None).unwrap();
    let done = plan
        .apply(&journal, |block, bytes| {
            written.insert(block.0, bytes[0]);
            Ok(())
        })
        .unwrap();
    assert_eq!(written, BTreeMap::from([(5, 2), (6, 3), (7, 1)]));
    let bad: Vec<(u64, u32)> =
        done.bad_copies.iter().map(|bad| (bad.copy.target.0, bad.copy.log_block)).collect();
    assert_eq!(bad, [(5, 15), (8, 12)]);
}

#[test]
fn a_bad_commit_in_the_middle_is_damage_and_its_successors_numbers_are_not_used_again() {
    for version in [ChecksumVersion::V1, ChecksumVersion::V2, ChecksumVersion::V3] {
        let mut log = four_transactions(version, true);
        log.log_block(9)[0x11] ^= 1;
        let (_, scan) = log.scan();
        assert!(matches!(
            scan.stop(),
            Stop::Damaged { block: 9, transaction: TransactionId(2), defect: Defect::Checksum { .. } }
        ));
        assert_eq!((scan.head(), scan.next(), scan.restart()), (6, TransactionId(2), TransactionId(5)));
    }
}

#[test]
fn a_bad_descriptor_or_revoke_is_damage_only_if_its_transaction_was_committed() {
    for block in [6, 7] {
        let mut log = four_transactions(ChecksumVersion::V2, false);
        log.log_block(block)[700] ^= 1;
        let (_, scan) = log.scan();
        assert!(matches!(scan.stop(), Stop::Damaged { block: at, .. } if *at == block));
        assert_eq!(scan.transactions().len(), 1);
        // The same, but the transaction was never committed.
        (9..17).for_each(|block| log.log_block(block).fill(0));
        assert!(matches!(log.scan().1.stop(), Stop::Stale { block: at, .. } if *at == block));
        // The same, but the commit is older than the last good one: another life of the log.
        let mut log = four_transactions(ChecksumVersion::V2, false);
        log.log_block(block)[700] ^= 1;
        let format = log.superblock.format();
        let old = CommitRecord::new(TransactionId(2), 1_600_000_000, 0).to_block(&format, 0);
        log.log_block(9).copy_from_slice(&old);
        assert!(matches!(log.scan().1.stop(), Stop::Stale { block: at, .. } if *at == block));
    }
}

#[test]
fn a_commit_with_a_wrong_checksum_and_an_older_time_is_a_leftover() {
    let mut log = four_transactions(ChecksumVersion::V3, true);
    let mut old = CommitRecord::new(TransactionId(2), 1_600_000_000, 0).as_bytes().to_vec();
    old.resize(BLOCK, 0);
    log.log_block(9).copy_from_slice(&old);
    assert!(matches!(log.scan().1.stop(), Stop::Stale { block: 9, .. }));
}

#[test]
fn only_the_last_asynchronous_commit_may_be_torn() {
    for version in [ChecksumVersion::V1, ChecksumVersion::V3] {
        let whole = four_transactions(version, true).with_incompat(IncompatFeatures::ASYNC_COMMIT);
        let mut last = whole.clone();
        last.log_block(16)[0x12] ^= 1;
        let (_, scan) = last.scan();
        assert!(matches!(scan.stop(), Stop::Torn { block: 16, .. }), "{:?}", scan.stop());
        assert_eq!(scan.transactions().len(), 3);
        let mut middle = whole;
        middle.log_block(13)[0x12] ^= 1;
        assert!(matches!(middle.scan().1.stop(), Stop::Damaged { block: 13, .. }));
    }
}

#[test]
fn a_list_of_tags_without_an_end_needs_a_checksum_to_vouch_for_it() {
    for (version, believed) in [(ChecksumVersion::None, false), (ChecksumVersion::V3, true)] {
        let mut log = LogBuilder::new(version, false);
        // One tag and its UUID, then zeroes to the end of the block: all of them tags of block 0, each with a UUID.
        log.transaction(&[(5, 1)], &[]);
        let format = log.superblock.format();
        log.log_block(1)[19] &= !8;
        format.seal_tail(log.log_block(1));
        let tags = u32::try_from(Tags::new(format, log.log_block(1)).count()).unwrap();
        assert!(tags > 20);
        let (_, scan) = log.scan();
        assert!(scan.transactions().is_empty(), "the commit is not where the list of tags ends");
        // Now a commit at that place.
        let commit = CommitRecord::new(TransactionId(1), 1_700_000_000, 0).to_block(&format, 0);
        log.log_block(2 + tags).copy_from_slice(&commit);
        let (_, scan) = log.scan();
        assert_eq!(scan.transactions().len(), usize::from(believed), "{version:?}");
        assert_eq!(scan.stop().is_damage(), !believed);
    }
}

#[test]
fn tags_that_leave_the_device_or_hit_the_journal_are_damage() {
    for target in [DEVICE, u64::from(u32::MAX), 100, 655, 700, 1199] {
        let mut log = LogBuilder::new(ChecksumVersion::V3, false);
        log.transaction(&[(5, 1)], &[]).transaction(&[(6, 1), (target, 2)], &[]).transaction(&[(7, 1)], &[]);
        let (journal, scan) = log.scan();
        assert!(matches!(scan.stop(), Stop::Damaged { block: 4, .. }), "block {target}");
        assert_eq!(replay(&journal, &scan, None), BTreeMap::from([(5, 1)]));
        assert_eq!(scan.restart(), TransactionId(4));
    }
    for target in [0, 99, 656, 699, 1200, DEVICE - 1] {
        let mut log = LogBuilder::new(ChecksumVersion::V3, false);
        log.transaction(&[(target, 1)], &[]);
        assert_eq!(log.replayed(), BTreeMap::from([(target, 1)]));
    }
}

#[test]
fn a_wrong_count_of_revokes_is_damage() {
    let mut log = four_transactions(ChecksumVersion::V3, true);
    log.log_block(6)[12..16].copy_from_slice(&2000u32.to_be_bytes());
    let format = log.superblock.format();
    format.seal_tail(log.log_block(6));
    assert!(matches!(
        log.scan().1.stop(),
        Stop::Damaged { block: 6, defect: Defect::Range { field: "r_count", .. }, .. }
    ));
}

#[test]
fn a_log_that_is_full_of_one_transaction_ends_after_a_lap() {
    let mut log = LogBuilder::new(ChecksumVersion::None, false);
    // Descriptors whose tags never end, everywhere.
    let descriptor = {
        let mut one = LogBuilder::new(ChecksumVersion::None, false);
        one.transaction(&[(5, 1)], &[]);
        one.log_block(1)[19] &= !8;
        one.log_block(1).to_vec()
    };
    (1..1024).for_each(|block| log.log_block(block).copy_from_slice(&descriptor));
    let (journal, scan) = log.scan();
    assert_eq!(scan.stop(), &Stop::FullLap);
    assert!(scan.transactions().is_empty() && ReplayPlan::new(&scan, None).unwrap().is_empty());
    exercise(&journal).unwrap();
}

#[test]
fn superblocks_that_make_no_sense_are_refused() {
    type Edit = fn(&mut JournalSuperblock);
    let edits: [(Edit, bool); 7] = [
        (|sb| sb.s_maxlen = U32::new(1057), true),
        (|sb| sb.s_first = U32::ZERO, true),
        (|sb| sb.s_start = U32::new(1024), true),
        (|sb| sb.s_blocksize = U32::new(4096), true),
        (|sb| sb.s_feature_incompat |= U32::new(0x8), true),
        (|sb| sb.s_feature_incompat |= U32::new(0x40), false),
        (|sb| sb.s_feature_ro_compat = U32::new(1), false),
    ];
    for (at, (edit, corrupt)) in edits.into_iter().enumerate() {
        let mut log = four_transactions(ChecksumVersion::V3, true);
        edit(&mut log.superblock);
        log.store_superblock();
        let error = log.journal().map(drop).unwrap_err();
        assert_eq!(error.is_corruption(), corrupt, "{at}: {error}");
        assert!(corrupt || matches!(error, Error::Unsupported(_)));
    }
}

#[test]
fn numbers_behind_a_lost_commit_are_not_used_again() {
    // A writer that left a transaction without its commit and went on with the next.
    let mut log = LogBuilder::new(ChecksumVersion::V2, true);
    log.transaction(&[(5, 1)], &[]).transaction(&[(6, 1)], &[]);
    log.cursor = 6; // where the second commit lies
    log.transaction(&[(7, 1)], &[]);
    let (journal, scan) = log.scan();
    assert_eq!(scan.stop(), &Stop::OtherSequence { block: 6, found: TransactionId(3) });
    assert_eq!(replay(&journal, &scan, None), BTreeMap::from([(5, 1)]));
    assert_eq!((scan.next(), scan.restart()), (TransactionId(2), TransactionId(4)));
}

/// A small generator with a fixed seed: the same flips in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit
    }
}

#[test]
fn random_damage_never_panics_and_stays_bounded() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut stops = BTreeSet::new();
    let inode = InodeNumber::new(12).unwrap();
    let fast = [
        Record::Head { features: 0, transaction: TransactionId(5) },
        Record::Inode { inode, raw: &[1; 160] },
        Record::DeleteRange { inode, start: LogicalBlock(1), count: 1 },
        Record::Tail { transaction: TransactionId(5), checksum: 0 },
    ];
    for (version, wide) in kinds() {
        for features in [IncompatFeatures::empty(), IncompatFeatures::ASYNC_COMMIT] {
            let mut log = four_transactions(version, wide).with_incompat(features).with_fast_commits(&fast);
            let blocks: Vec<u32> = (0..18).chain([1025]).collect();
            let whole: Vec<Vec<u8>> = blocks.iter().map(|block| log.log_block(*block).to_vec()).collect();
            for _ in 0..650 {
                let reseal = random.below(2) == 0;
                for _ in 0..=random.below(4) {
                    let block = blocks[random.below(blocks.len())];
                    // Mostly where the structures are.
                    let at = if random.below(4) == 0 { random.below(BLOCK) } else { random.below(64) };
                    log.log_block(block)[at] = u8::try_from(random.below(256)).unwrap();
                    if reseal {
                        put_right(&mut log, block);
                    }
                }
                if let Ok(journal) = log.journal() {
                    let scan = exercise(&journal).unwrap();
                    stops.insert(format!("{:?}", scan.stop()).split(' ').next().unwrap().to_owned());
                }
                for (block, bytes) in blocks.iter().zip(&whole) {
                    log.log_block(*block).copy_from_slice(bytes);
                }
            }
        }
    }
    for reason in ["Damaged", "NoMagic", "OtherSequence", "Stale", "Torn", "OtherKind"] {
        assert!(stops.contains(reason), "no damage led to {reason}: {stops:?}");
    }
}

/// Puts the checksum of a block right, whatever it is, so that what lies behind the checks is tested too.
fn put_right(log: &mut LogBuilder, block: u32) {
    let format = log.superblock.format();
    match block {
        0 => {
            if let Ok(mut superblock) = JournalSuperblock::read(log.log_block(0)) {
                superblock.seal();
                log.log_block(0).copy_from_slice(superblock.as_bytes());
            }
        }
        5 | 9 | 13 | 16 => commit::seal(&format, log.log_block(block)),
        1 | 6 | 7 | 10 | 14 => format.seal_tail(log.log_block(block)),
        _ => {}
    }
}
