//! What a replay of a sound log leaves.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use zerocopy::byteorder::big_endian::U32;

use super::super::testing::*;
use super::super::*;
use crate::disk::jbd2::{ChecksumVersion, IncompatFeatures};
use crate::ids::{BlockNumber, TransactionId};

fn map<const N: usize>(pairs: [(u64, u8); N]) -> BTreeMap<u64, u8> {
    BTreeMap::from(pairs)
}

#[test]
fn every_kind_of_log_replays() {
    for (version, wide) in kinds() {
        let mut log = LogBuilder::new(version, wide);
        log.transaction(&[(5, 1), (6, 1)], &[]).transaction(&[(6, 2), (7, 2)], &[]);
        let (journal, scan) = log.scan();
        assert_eq!(scan.transactions().len(), 2, "{version:?} {wide}");
        assert_eq!(scan.stop(), &Stop::NoMagic { block: 9 });
        assert_eq!((scan.head(), scan.next(), scan.restart()), (9, TransactionId(3), TransactionId(4)));
        assert_eq!(replay(&journal, &scan, None), map([(5, 1), (6, 2), (7, 2)]));
        assert_eq!(journal.check_copies(&scan).unwrap(), []);
    }
}

#[test]
fn the_feature_bit_of_revokes_is_not_asked() {
    for (version, wide) in kinds() {
        let mut log = LogBuilder::new(version, wide);
        log.transaction(&[(5, 1), (6, 1)], &[]).transaction(&[(7, 2)], &[5]);
        assert!(!log.superblock.incompat().contains(IncompatFeatures::REVOKE));
        assert_eq!(log.replayed(), map([(6, 1), (7, 2)]), "{version:?} {wide}");
    }
}

#[test]
fn a_later_write_makes_a_revoked_block_live_again() {
    let mut log = LogBuilder::new(ChecksumVersion::V3, true);
    log.transaction(&[(5, 1)], &[]).transaction(&[(9, 2)], &[5]).transaction(&[(5, 3)], &[]);
    assert_eq!(log.replayed(), map([(5, 3), (9, 2)]));
    log.transaction(&[], &[5]);
    assert_eq!(log.replayed(), map([(9, 2)]));
}

#[test]
fn a_revoke_cancels_the_write_of_its_own_transaction() {
    let mut log = LogBuilder::new(ChecksumVersion::V3, true);
    log.transaction(&[(5, 1), (6, 1)], &[5]);
    let (journal, scan) = log.scan();
    assert_eq!(replay(&journal, &scan, None), map([(6, 1)]));
    assert_eq!(ReplayPlan::new(&scan, None).unwrap().revoked(), 1);
    let versions = scan.versions_of(BlockNumber(5));
    assert_eq!(versions.len(), 1);
    assert_eq!(versions[0].revoked_by, Some(TransactionId(1)));
}

#[test]
fn blocks_that_begin_with_the_magic_number_come_back_whole() {
    for (version, wide) in kinds() {
        let mut bytes = vec![3; BLOCK];
        bytes[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
        let mut log = LogBuilder::new(version, wide);
        log.transaction_of(&[(5, vec![1; BLOCK]), (6, bytes.clone())], &[]);
        assert_eq!(log.log_block(3)[..4], [0; 4], "escaped in the log");
        let (journal, scan) = log.scan();
        let mut found = Vec::new();
        let plan = ReplayPlan::new(&scan, None).unwrap();
        plan.apply(&journal, |_, bytes| {
            found.push(bytes.to_vec());
            Ok(())
        })
        .unwrap();
        assert_eq!(found, [vec![1; BLOCK], bytes.clone()]);
        assert_eq!(journal.read_copy(&scan.versions_of(BlockNumber(6))[0].copy).unwrap(), bytes);
    }
}

#[test]
fn a_log_wraps_wherever_it_begins() {
    for start in 1015..1024 {
        let mut log = LogBuilder::new(ChecksumVersion::V1, false).beginning(start, TransactionId(7));
        log.transaction(&[(5, 1), (6, 1), (8, 1)], &[9]).transaction(&[(5, 2), (7, 2)], &[6]);
        let (journal, scan) = log.scan();
        assert_eq!(scan.transactions().len(), 2, "from block {start}");
        assert_eq!(replay(&journal, &scan, None), map([(5, 2), (7, 2), (8, 1)]));
        assert_eq!(scan.head(), log.cursor);
    }
}

#[test]
fn sequence_numbers_wrap() {
    let mut log = LogBuilder::new(ChecksumVersion::V3, true).beginning(1, TransactionId(u32::MAX - 1));
    log.transaction(&[(5, 1), (6, 1)], &[]).transaction(&[(5, 2)], &[]).transaction(&[(7, 3)], &[6]);
    let (journal, scan) = log.scan();
    assert_eq!(scan.transactions().len(), 3);
    assert_eq!(scan.restart(), TransactionId(2));
    assert_eq!(replay(&journal, &scan, None), map([(5, 2), (7, 3)]));
    assert_eq!(replay(&journal, &scan, Some(TransactionId(u32::MAX))), map([(5, 2), (6, 1)]));
}

#[test]
fn replay_can_stop_at_a_transaction() {
    let mut log = LogBuilder::new(ChecksumVersion::V2, true);
    log.transaction(&[(5, 1), (6, 1)], &[]).transaction(&[(5, 2)], &[]).transaction(&[(5, 3)], &[6]);
    let (journal, scan) = log.scan();
    assert_eq!(replay(&journal, &scan, Some(TransactionId(1))), map([(5, 1), (6, 1)]));
    assert_eq!(replay(&journal, &scan, Some(TransactionId(2))), map([(5, 2), (6, 1)]));
    assert_eq!(replay(&journal, &scan, Some(TransactionId(3))), map([(5, 3)]));
    for outside in [0, 4, u32::MAX] {
        let error = ReplayPlan::new(&scan, Some(TransactionId(outside))).unwrap_err();
        let text = format!("transaction {outside} is not whole in the journal: it holds 1 to 3");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_transaction_may_fill_many_descriptors() {
    for (version, wide) in kinds() {
        // Every block that is not the journal's.
        let blocks: Vec<(u64, u8)> = (0..100).chain(656..700).chain(1200..DEVICE).map(|at| (at, 7)).collect();
        let mut log = LogBuilder::new(version, wide).beginning(800, TransactionId(3));
        log.transaction(&blocks, &[1, 2]);
        let wanted: BTreeMap<u64, u8> =
            blocks.iter().copied().filter(|(at, _)| !(1..=2).contains(at)).collect();
        assert_eq!(log.replayed(), wanted, "{version:?} {wide}");
    }
}

#[test]
fn an_empty_log_has_nothing_to_replay() {
    let mut log = LogBuilder::new(ChecksumVersion::V3, true);
    log.transaction(&[(5, 1)], &[]);
    log.superblock.s_start = U32::ZERO;
    log.superblock.s_sequence = U32::new(9);
    log.store_superblock();
    let (journal, scan) = log.scan();
    assert!(scan.is_empty());
    assert_eq!(scan.restart(), TransactionId(9));
    assert!(ReplayPlan::new(&scan, None).unwrap().is_empty());
    assert_eq!(journal.emptied(&scan), log.superblock);
}

#[test]
fn after_a_replay_the_log_is_empty_and_keeps_its_error() {
    for head in [0, 77] {
        let mut log = LogBuilder::new(ChecksumVersion::V3, true);
        log.transaction(&[(5, 1)], &[]).transaction(&[(6, 1)], &[]);
        log.superblock.s_errno = U32::new(0xffff_fffb);
        log.superblock.s_head = U32::new(head);
        log.store_superblock();
        let (journal, scan) = log.scan();
        let emptied = journal.emptied(&scan);
        journal.write_superblock(&emptied).unwrap();
        assert_eq!(emptied.s_errno.get(), 0xffff_fffb);
        assert_eq!(emptied.s_sequence.get(), 4);
        assert_eq!(emptied.s_head.get(), if head == 0 { 0 } else { 7 });
        let reread = journal.blocks().read(0, &mut Vec::new()).unwrap().to_vec();
        log.log_block(0).copy_from_slice(&reread);
        assert!(log.scan().1.is_empty(), "the checksum was put right too");
    }
}

#[test]
fn the_same_blocks_are_written_again_if_a_replay_is_interrupted() {
    let mut log = LogBuilder::new(ChecksumVersion::V3, true);
    log.transaction(&[(5, 1), (6, 1), (9, 1)], &[]).transaction(&[(6, 2)], &[9]);
    let (journal, scan) = log.scan();
    let plan = ReplayPlan::new(&scan, None).unwrap();
    for fail_at in 0..2 {
        let mut count = 0;
        let failed = plan.apply(&journal, |_, _| {
            count += 1;
            if count > fail_at { Err(crate::Error::ReadOnly) } else { Ok(()) }
        });
        assert!(failed.is_err());
        assert_eq!(replay(&journal, &journal.scan(DEVICE).unwrap(), None), map([(5, 1), (6, 2)]));
    }
}

#[test]
fn two_hundred_thousand_revokes_take_no_longer_than_they_must() {
    // Each of 800 blocks of the log revokes 252 blocks; quadratic work would be 2 * 10^10 steps.
    let revokes: Vec<u64> = (0..200_000).rev().collect();
    let mut log = LogBuilder::new(ChecksumVersion::None, false);
    log.transaction(&[(5, 1)], &[]).transaction(&[(6, 2)], &revokes).transaction(&[(5, 3)], &[]);
    let (journal, scan) = log.scan();
    assert_eq!(scan.revokes_of(&scan.transactions()[1]).len(), 200_000);
    assert_eq!(replay(&journal, &scan, None), map([(5, 3)]));
}

#[test]
fn an_external_journal_counts_from_the_start_of_its_device() {
    for (version, wide) in kinds() {
        // The device of a journal has a filesystem's superblock in block 1, so its own is in block 2.
        let mut log = LogBuilder::new(version, wide);
        log.superblock.s_first = U32::new(3);
        log.superblock.s_nr_users = U32::new(1);
        log.superblock.s_users[0] = [9; 16];
        log = log.beginning(1022, TransactionId(5)).on_a_device_of_its_own();
        log.transaction(&[(5, 1), (100, 1)], &[]).transaction(&[(5, 2)], &[100]);
        let journal = log.external_journal().unwrap();
        let scan = journal.scan(DEVICE).unwrap();
        assert_eq!(scan.transactions().len(), 2, "{version:?} {wide}");
        assert_eq!(replay(&journal, &scan, None), map([(5, 2)]));
        assert!(journal.serves(&[9; 16]) && !journal.serves(&[0; 16]));
        let emptied = journal.emptied(&scan);
        journal.write_superblock(&emptied).unwrap();
        assert_eq!(journal.blocks().locate(2), Some(BlockNumber(2)));
        let again = journal.blocks().read(2, &mut Vec::new()).unwrap().to_vec();
        assert_eq!(JournalSuperblock::read(&again).unwrap(), emptied);
        // A log that would begin in the superblock's own block.
        log.superblock.s_first = U32::new(2);
        log.store_superblock();
        assert!(log.external_journal().is_err_and(|error| error.is_corruption()));
    }
}

/// Blocks with what they are filled with, and revokes.
type Contents = (Vec<(u64, u8)>, Vec<u64>);

/// What a log should leave, done the slow way: transaction by transaction.
fn model(transactions: &[Contents]) -> BTreeMap<u64, u8> {
    let mut revoked: HashMap<u64, usize> = HashMap::new();
    for (at, (_, revokes)) in transactions.iter().enumerate() {
        revoked.extend(revokes.iter().map(|block| (*block, at)));
    }
    let mut state = BTreeMap::new();
    for (at, (blocks, _)) in transactions.iter().enumerate() {
        let live = |block: &u64| revoked.get(block).is_none_or(|revoke| at > *revoke);
        state.extend(blocks.iter().filter(|(block, _)| live(block)).copied());
    }
    state
}

proptest! {
    #[test]
    fn replay_is_what_a_walk_in_log_order_leaves(
        kind in 0usize..8,
        start in 1u32..1024,
        sequence: u32,
        transactions in prop::collection::vec(
            (prop::collection::vec((0u64..20, any::<u8>()), 0..6), prop::collection::vec(0u64..20, 0..4)),
            0..12,
        ),
    ) {
        let (version, wide) = kinds().nth(kind).unwrap();
        let mut log = LogBuilder::new(version, wide).beginning(start, TransactionId(sequence));
        for (blocks, revokes) in &transactions {
            log.transaction(blocks, revokes);
        }
        let (journal, scan) = log.scan();
        prop_assert_eq!(scan.transactions().len(), transactions.len());
        for count in 0..transactions.len() {
            let until = scan.transactions()[count].id;
            prop_assert_eq!(replay(&journal, &scan, Some(until)), model(&transactions[..=count]));
        }
        prop_assert_eq!(replay(&journal, &scan, None), model(&transactions));
    }
}
