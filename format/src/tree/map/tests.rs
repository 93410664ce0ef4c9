//! Maps of both kinds against a plain table of blocks, on filesystems in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::create::{self, InodeCount, Plan};
use crate::disk::features::{Incompat, RoCompat};
use crate::store::MemoryStore;
use crate::tree::group;
use crate::txn::{Overlay, OverlayOptions};

fn filesystem(cluster_size: u32) -> Overlay {
    let mut parameters = create::tests::ext4(40_000, 1024);
    parameters.inodes = InodeCount::AtLeast(64);
    parameters.cluster_size = cluster_size;
    if cluster_size > 1024 {
        parameters.features.ro_compat |= RoCompat::BIGALLOC;
        parameters.features.compat.remove(crate::disk::features::Compat::RESIZE_INODE);
    }
    parameters.features.incompat |= Incompat::EXTENTS;
    let plan = Plan::new(&parameters).unwrap();
    let store = Arc::new(MemoryStore::new(40_000 << 10));
    create::write_skeleton(store, &plan, &parameters, OverlayOptions::default()).unwrap()
}

fn new_file(txn: &mut Overlay, extents: bool) -> Inode {
    let number = txn.allocate_inode(crate::GroupNumber(0), false).unwrap();
    let mut inode = Inode::fresh(number, 256, 32);
    initialise(&mut inode, extents).unwrap();
    inode
}

/// Every mapped block of the file: logical to physical and whether it is unwritten.
fn contents(txn: &Overlay, inode: &Inode) -> BTreeMap<u32, (u64, bool)> {
    let mut found = BTreeMap::new();
    for segment in segments(txn, inode, LogicalBlock(0)) {
        let segment = segment.unwrap();
        let run = segment.run().unwrap();
        for (logical, block) in (segment.logical.0..).zip(run.iter()) {
            found.insert(logical, (block.0, matches!(segment.state, State::Unwritten(_))));
        }
    }
    found
}

#[derive(Clone, Debug)]
enum Step {
    Insert { logical: u32, length: u64, goal: u64, unwritten: bool },
    Remove { from: u32, length: u64 },
    Write { from: u32, length: u64 },
}

fn step(space: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..space, 1u64..40, 2000u64..40_000, any::<bool>())
            .prop_map(|(logical, length, goal, unwritten)| Step::Insert { logical, length, goal, unwritten }),
        2 => (0..space, 1u64..120).prop_map(|(from, length)| Step::Remove { from, length }),
        1 => (0..space, 1u64..60).prop_map(|(from, length)| Step::Write { from, length }),
    ]
}

/// Maps as much of the wish as is free in the model, taking blocks one wish at a time.
fn apply(txn: &mut Overlay, inode: &mut Inode, model: &mut BTreeMap<u32, (u64, bool)>, step: &Step) {
    match *step {
        Step::Insert { logical, length, goal, unwritten } => {
            let unwritten = unwritten && uses_extents(inode);
            let taken = model.range(logical..).next().map_or(u32::MAX, |(next, _)| *next);
            let length = length.min(u64::from(taken - logical));
            if length == 0 {
                return;
            }
            let request = BlockRequest { goal: BlockNumber(goal), wanted: length, owner: inode.number() };
            let run = txn.allocate_blocks(request).unwrap();
            insert(txn, inode, LogicalBlock(logical), run, unwritten).unwrap();
            model.extend((logical..).zip(run.iter().map(|block| (block.0, unwritten))));
        }
        Step::Remove { from, length } => {
            remove(txn, inode, from.into(), u64::from(from) + length).unwrap();
            model.retain(|logical, _| *logical < from || u64::from(*logical) >= u64::from(from) + length);
        }
        Step::Write { from, length } => {
            mark_written(txn, inode, LogicalBlock(from), length).unwrap();
            for (_, (_, unwritten)) in model.range_mut(from..u32::try_from(u64::from(from) + length).unwrap())
            {
                *unwritten = false;
            }
        }
    }
}

/// Order and keys of every node, and that each is named once.
fn check_tree(txn: &Overlay, inode: &Inode) {
    use crate::disk::extent::Node;
    let mut level = vec![(inode.view().map().to_vec(), 0u64..EXTENT_LIMIT)];
    while let Some((bytes, range)) = level.pop() {
        let node = Node::parse(&bytes).unwrap();
        assert_eq!(node.check_order(range.clone()), [], "{node:?}");
        let children = node.indexes();
        for (at, child) in children.iter().enumerate() {
            let end = children.get(at + 1).map_or(range.end, |next| next.logical().0.into());
            let bytes =
                txn.read(child.child(), crate::txn::BlockKind::ExtentNode(inode.owner())).unwrap().to_vec();
            let child_node = Node::parse(&bytes).unwrap();
            let leaf_key = child_node.extents().next().map(|extent| extent.logical);
            let key = leaf_key
                .or_else(|| child_node.indexes().first().map(crate::disk::extent::ExtentIndex::logical));
            assert_eq!(key, Some(child.logical()), "a parent's key is its child's first block");
            level.push((bytes, child.logical().0.into()..end));
        }
    }
}

fn check(steps: &[Step], extents: bool) -> std::result::Result<(), TestCaseError> {
    let mut txn = filesystem(1024);
    let mut inode = new_file(&mut txn, extents);
    let before = group::read_superblock(&txn).unwrap().free_blocks_count();
    let mut model = BTreeMap::new();
    for step in steps {
        apply(&mut txn, &mut inode, &mut model, step);
        prop_assert_eq!(&contents(&txn, &inode), &model);
        let own = own_blocks(&txn, &inode).unwrap().len();
        let used = before - group::read_superblock(&txn).unwrap().free_blocks_count();
        prop_assert_eq!(used, (own + model.len()) as u64, "every block is accounted for");
        prop_assert_eq!(inode::sectors(&txn, inode.view()), used * 2);
        if extents {
            check_tree(&txn, &inode);
        }
    }
    remove(&mut txn, &mut inode, 0, u64::MAX).unwrap();
    prop_assert_eq!(group::read_superblock(&txn).unwrap().free_blocks_count(), before);
    prop_assert_eq!(own_blocks(&txn, &inode).unwrap(), []);
    prop_assert_eq!(inode::sectors(&txn, inode.view()), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn extents_follow_the_model(steps in prop::collection::vec(step(3000), 1..120)) {
        check(&steps, true)?;
    }

    #[test]
    fn block_maps_follow_the_model(steps in prop::collection::vec(step(70_000), 1..80)) {
        check(&steps, false)?;
    }
}

#[test]
fn scattered_blocks_make_a_deep_tree_and_leave_nothing() {
    // One extent a block, in an order that splits nodes in the middle; 83 slots a node make depth 2.
    let mut txn = filesystem(1024);
    let mut inode = new_file(&mut txn, true);
    let before = group::read_superblock(&txn).unwrap().free_blocks_count();
    for index in 0..8000u32 {
        let logical = (index * 4801) % 8000 * 2;
        let request = BlockRequest { goal: BlockNumber(3000), wanted: 1, owner: inode.number() };
        let run = txn.allocate_blocks(request).unwrap();
        insert(&mut txn, &mut inode, LogicalBlock(logical), run, false).unwrap();
    }
    check_tree(&txn, &inode);
    assert_eq!(contents(&txn, &inode).len(), 8000);
    let depth = crate::disk::extent::Node::parse(inode.view().map()).unwrap().depth();
    assert!(depth >= 2, "depth {depth}");
    for from in [4000, 0, 9000] {
        remove(&mut txn, &mut inode, from, from + 5000).unwrap();
        check_tree(&txn, &inode);
    }
    remove(&mut txn, &mut inode, 0, 1 << 32).unwrap();
    assert_eq!(group::read_superblock(&txn).unwrap().free_blocks_count(), before);
}

#[test]
fn growing_files_pack_their_leaves() {
    let mut txn = filesystem(1024);
    let mut inode = new_file(&mut txn, true);
    for index in 0..830u32 {
        let run = txn
            .allocate_blocks(BlockRequest { goal: BlockNumber(3000), wanted: 1, owner: inode.number() })
            .unwrap();
        insert(&mut txn, &mut inode, LogicalBlock(index * 2), run, false).unwrap();
    }
    let leaves = own_blocks(&txn, &inode).unwrap().len();
    assert!(leaves <= 14, "830 extents of 84 a leaf took {leaves} nodes");
}

#[test]
fn clusters_are_counted_and_given_back_once() {
    let mut txn = filesystem(4096);
    let mut inode = new_file(&mut txn, true);
    let before = group::read_superblock(&txn).unwrap().free_blocks_count();
    let request = BlockRequest { goal: BlockNumber(3000), wanted: 8, owner: inode.number() };
    let run = txn.allocate_blocks(request).unwrap();
    assert_eq!((run.length, run.start.0 % 4), (8, 0));
    // Blocks 1, 2 and 5 of two clusters, then the rest of the first.
    let part = |from: u64, length| BlockRun { start: BlockNumber(run.start.0 + from), length };
    insert(&mut txn, &mut inode, LogicalBlock(1), part(1, 2), false).unwrap();
    assert_eq!(inode::sectors(&txn, inode.view()), 8);
    insert(&mut txn, &mut inode, LogicalBlock(5), part(5, 1), false).unwrap();
    insert(&mut txn, &mut inode, LogicalBlock(3), part(3, 1), false).unwrap();
    assert_eq!(inode::sectors(&txn, inode.view()), 16);
    assert_eq!(block_in_cluster(&txn, &inode, 0).unwrap(), Some(run.start));
    remove(&mut txn, &mut inode, 2, 4).unwrap();
    assert_eq!(inode::sectors(&txn, inode.view()), 16, "block 1 still holds the first cluster");
    remove(&mut txn, &mut inode, 0, 2).unwrap();
    assert_eq!(inode::sectors(&txn, inode.view()), 8);
    remove(&mut txn, &mut inode, 0, 9).unwrap();
    assert_eq!(group::read_superblock(&txn).unwrap().free_blocks_count(), before);
}

#[test]
fn mapping_twice_is_refused() {
    for extents in [true, false] {
        let mut txn = filesystem(1024);
        let mut inode = new_file(&mut txn, extents);
        let run = BlockRun { start: BlockNumber(5000), length: 4 };
        insert(&mut txn, &mut inode, LogicalBlock(10), run, false).unwrap();
        for logical in [7, 10, 13] {
            let again = insert(&mut txn, &mut inode, LogicalBlock(logical), run, false);
            assert!(again.unwrap_err().is_corruption(), "extents {extents}, block {logical}");
        }
    }
}

#[test]
fn hostile_maps_end_in_errors() {
    let mut txn = filesystem(1024);
    let mut inode = new_file(&mut txn, false);
    crate::bytes::put_le32(inode.map_mut(), 48, 39_999_999).unwrap();
    assert!(lookup(&txn, &inode, LogicalBlock(12)).unwrap_err().is_corruption());
    assert!(remove(&mut txn, &mut inode, 0, 100).unwrap_err().is_corruption());
    // A tree whose only child is itself.
    let mut inode = new_file(&mut txn, true);
    let block = BlockNumber(6000);
    let index = crate::disk::extent::ExtentIndex::new(LogicalBlock(0), block).unwrap();
    NodeMut::create(inode.map_mut(), 2).unwrap().insert(0, &index).unwrap();
    crate::txn::create(&mut txn, block, crate::txn::BlockKind::ExtentNode(inode.owner()), |bytes| {
        NodeMut::create(bytes, 1).unwrap().insert(0, &index).unwrap();
    })
    .unwrap();
    assert!(lookup(&txn, &inode, LogicalBlock(0)).unwrap_err().is_corruption());
    assert!(own_blocks(&txn, &inode).unwrap_err().is_corruption());
}
