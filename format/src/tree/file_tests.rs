//! File contents against a plain vector of bytes.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::GroupNumber;
use crate::create::{self, InodeCount, Plan};
use crate::disk::features::{Compat, RoCompat};
use crate::store::MemoryStore;
use crate::tree::group;
use crate::txn::{DataPolicy, Overlay, OverlayOptions};

const SIZE: usize = 200_000;

fn filesystem(cluster_size: u32, data: DataPolicy) -> Overlay {
    let mut parameters = create::tests::ext4(20_000, 1024);
    parameters.inodes = InodeCount::AtLeast(64);
    parameters.cluster_size = cluster_size;
    if cluster_size > 1024 {
        parameters.features.ro_compat |= RoCompat::BIGALLOC;
        parameters.features.compat.remove(Compat::RESIZE_INODE);
    }
    let plan = Plan::new(&parameters).unwrap();
    let store = Arc::new(MemoryStore::new(20_000 << 10));
    // Blocks of a used device hold anything.
    for offset in (0..20_000u64 << 10).step_by(1 << 20) {
        let end = ((20_000 << 10) - offset).min(1 << 20);
        crate::store::Store::write_at(store.as_ref(), offset, &vec![0xa5; usize::try_from(end).unwrap()])
            .unwrap();
    }
    parameters.target_is_zero = false;
    create::write_skeleton(store, &plan, &parameters, OverlayOptions { data, ..OverlayOptions::default() })
        .unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Truncate(usize),
    Preallocate(u32, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..SIZE, prop::collection::vec(any::<u8>(), 1..6000)).prop_map(|(at, bytes)| Step::Write(at, bytes)),
        1 => (0..SIZE).prop_map(Step::Truncate),
        1 => (0u32..150, 1u64..20).prop_map(|(at, length)| Step::Preallocate(at, length)),
    ]
}

fn check(
    steps: &[Step],
    extents: bool,
    cluster_size: u32,
    data: DataPolicy,
) -> std::result::Result<(), TestCaseError> {
    let mut txn = filesystem(cluster_size, data);
    let number = txn.allocate_inode(GroupNumber(0), false).unwrap();
    let mut inode = Inode::fresh(number, 256, 32);
    map::initialise(&mut inode, extents).unwrap();
    let free = group::read_superblock(&txn).unwrap().free_blocks_count();
    let mut model: Vec<u8> = Vec::new();
    for step in steps {
        match step {
            Step::Write(at, bytes) => {
                write(&mut txn, &mut inode, wide(*at), bytes).unwrap();
                let end = at + bytes.len();
                model.resize(model.len().max(end), 0);
                model[*at..end].copy_from_slice(bytes);
            }
            Step::Truncate(size) => {
                truncate(&mut txn, &mut inode, wide(*size)).unwrap();
                model.resize(*size, 0);
            }
            Step::Preallocate(at, length) => {
                let segment = map::lookup(&txn, &inode, LogicalBlock(*at)).unwrap();
                if extents && segment.state == State::Hole {
                    let run = take_blocks(&mut txn, &inode, LogicalBlock(*at), segment.length.min(*length))
                        .unwrap();
                    map::insert(&mut txn, &mut inode, LogicalBlock(*at), run, true).unwrap();
                }
            }
        }
        prop_assert_eq!(
            read_all(&txn, &inode, 1 << 20).unwrap() == model,
            true,
            "contents differ after {:?}",
            step
        );
        let used = free - group::read_superblock(&txn).unwrap().free_blocks_count();
        prop_assert_eq!(inode::sectors(&txn, inode.view()), used * 2);
    }
    map::remove(&mut txn, &mut inode, 0, u64::MAX).unwrap();
    prop_assert_eq!(group::read_superblock(&txn).unwrap().free_blocks_count(), free);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn contents_follow_the_model(steps in prop::collection::vec(step(), 1..40), extents: bool, through: bool) {
        let data = if through { DataPolicy::WriteThrough } else { DataPolicy::Keep };
        check(&steps, extents, 1024, data)?;
    }

    #[test]
    fn contents_in_clusters_follow_the_model(steps in prop::collection::vec(step(), 1..30)) {
        check(&steps, true, 8192, DataPolicy::Keep)?;
    }
}

#[test]
fn symlinks_of_every_length_come_back() {
    let mut txn = filesystem(1024, DataPolicy::Keep);
    for length in [1, 59, 60, 61, 1023] {
        let number = txn.allocate_inode(GroupNumber(0), false).unwrap();
        let mut inode = Inode::fresh(number, 256, 32);
        inode.set_mode(0o120_777);
        let target = vec![b't'; length];
        write_symlink(&mut txn, &mut inode, &target, true).unwrap();
        assert_eq!(read_symlink(&txn, &inode).unwrap(), target);
        assert_eq!(inode::sectors(&txn, inode.view()) > 0, length >= 60);
    }
    let mut inode = Inode::fresh(InodeNumber::new(12).unwrap(), 256, 32);
    assert!(write_symlink(&mut txn, &mut inode, &[b't'; 1024], true).is_err());
    assert!(write_symlink(&mut txn, &mut inode, b"", true).is_err());
}
