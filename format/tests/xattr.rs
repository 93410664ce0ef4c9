//! Extended attributes against plain maps, and e2fsck's opinion of what was committed.

use std::collections::BTreeMap;

use ext4kit_format::InodeNumber;
use ext4kit_format::create::write_backups;
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::disk::xattr::header;
use ext4kit_format::error::Error;
use ext4kit_format::tree::namespace::{self, NewInode, NewKind};
use ext4kit_format::tree::xattr::{self, Change, Sharing};
use ext4kit_format::tree::{file, group, inode};
use ext4kit_format::txn::{BlockKind, Overlay, Transaction, commit_new};
use ext4kit_testkit::filesystem::{TIME, commit_clean, filesystem, fresh, parameters, put_in_root};
use ext4kit_testkit::tree::Content;
use ext4kit_testkit::{kernel, oracle};
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Set { file: usize, name: usize, value: Vec<u8> },
    Remove { file: usize, name: usize },
    Release { file: usize },
}

const FILES: usize = 4;
const NAMES: [&str; 8] = [
    "user.a",
    "user.b",
    "user.a-longer-name-that-takes-more-room",
    "trusted.x",
    "security.selinux",
    "user.\u{e9}",
    "system.other",
    "gnu.translator",
];

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..40),
        2 => (0u8..3, 0usize..900).prop_map(|(byte, length)| vec![byte; length]),
        2 => (0u8..2, 900usize..5000).prop_map(|(byte, length)| vec![byte; length]),
        1 => Just(vec![7; 1000]),
    ];
    let at = (0..FILES, 0..NAMES.len());
    prop_oneof![
        8 => (at.clone(), value).prop_map(|((file, name), value)| Step::Set { file, name, value }),
        3 => at.prop_map(|(file, name)| Step::Remove { file, name }),
        1 => (0..FILES).prop_map(|file| Step::Release { file }),
    ]
}

fn all(txn: &Overlay, file: &Inode) -> Model {
    let names = xattr::list(txn, file).unwrap();
    names.into_iter().map(|name| (name.clone(), xattr::get(txn, file, &name).unwrap().unwrap())).collect()
}

fn free_counts(txn: &Overlay) -> (u64, u32) {
    let superblock = group::read_superblock(txn).unwrap();
    (superblock.free_blocks_count(), superblock.s_free_inodes_count.get())
}

fn check(features: &str, steps: Vec<Step>, shared: bool) {
    let (store, mut txn) = filesystem(&parameters(4000, 1024, features));
    let mut files: Vec<(Inode, Model)> =
        (0..FILES).map(|_| (fresh(&mut txn, 0o100_644), Model::new())).collect();
    for (number, (file, _)) in files.iter().enumerate() {
        put_in_root(&mut txn, &format!("file{number}"), file);
    }
    let before = free_counts(&txn);
    let mut sharing = Sharing::new();
    let mut change = Change { time: TIME, generation: 5, sharing: shared.then_some(&mut sharing) };
    for step in steps {
        match step {
            Step::Set { file, name, value } => {
                let (inode, model) = &mut files[file];
                let name = NAMES[name].as_bytes();
                match xattr::set(&mut txn, inode, name, &value, &mut change) {
                    Ok(()) => drop(model.insert(name.to_vec(), value)),
                    // Neither place can be short of room before the block, of 1 KiB, is nearly full.
                    Err(Error::AttributeTooBig(_)) => {
                        let sizes = model.iter().map(|(name, value)| name.len() + value.len() + 24);
                        assert!(sizes.sum::<usize>() + name.len() + value.len() + 24 > 900);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Remove { file, name } => {
                let (inode, model) = &mut files[file];
                let name = NAMES[name].as_bytes();
                let removed = xattr::remove(&mut txn, inode, name, &mut change);
                assert_eq!(removed.is_ok(), model.remove(name).is_some());
            }
            Step::Release { file } => {
                let (inode, model) = &mut files[file];
                xattr::release_all(&mut txn, inode, &mut change).unwrap();
                model.clear();
            }
        }
    }
    for (inode, model) in &files {
        assert_eq!(&all(&txn, inode), model);
        inode::write(&mut txn, inode).unwrap();
    }
    commit_clean(&store, &mut txn);
    for (inode, model) in &mut files {
        assert_eq!(&all(&txn, inode), model, "read back from the store");
        xattr::release_all(&mut txn, inode, &mut change).unwrap();
        assert_eq!(inode.view().blocks_raw(), 0);
        inode::write(&mut txn, inode).unwrap();
    }
    assert_eq!(free_counts(&txn), before, "nothing is lost");
    commit_clean(&store, &mut txn);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn attributes_follow_the_model(steps in prop::collection::vec(step(), 1..60), shared: bool) {
        check("^ea_inode", steps, shared);
    }

    #[test]
    fn values_in_inodes_follow_the_model(steps in prop::collection::vec(step(), 1..60), shared: bool) {
        check("ea_inode", steps, shared);
    }

    #[test]
    fn value_hashes_need_no_checksums(steps in prop::collection::vec(step(), 1..30)) {
        check("ea_inode ^metadata_csum ^extent ^64bit ^ext_attr", steps, true);
    }

    #[test]
    fn clusters_are_charged_whole(steps in prop::collection::vec(step(), 1..30)) {
        check("ea_inode bigalloc ^resize_inode", steps, true);
    }
}

/// The kernel and e2fsck take at most 1024 owners of one block.
#[test]
fn the_1025th_owner_starts_a_new_block() {
    let mut parameters = parameters(20_000, 1024, "^has_journal");
    parameters.journal = None;
    let (store, mut txn) = filesystem(&parameters);
    let mut sharing = Sharing::new();
    let mut blocks: BTreeMap<u64, u32> = BTreeMap::new();
    for number in 0..1030 {
        let mut file = fresh(&mut txn, 0o100_644);
        let mut change = Change { time: TIME, generation: 0, sharing: Some(&mut sharing) };
        xattr::set(&mut txn, &mut file, b"user.large", &[3; 200], &mut change).unwrap();
        put_in_root(&mut txn, &format!("{number}"), &file);
        *blocks.entry(file.view().attribute_block().0).or_default() += 1;
    }
    assert_eq!(blocks.values().copied().collect::<Vec<_>>(), [1024, 6]);
    for (block, owners) in blocks {
        let bytes = txn.read(ext4kit_format::BlockNumber(block), BlockKind::Attributes).unwrap();
        assert_eq!(header(&bytes).unwrap().h_refcount.get(), owners);
    }
    commit_clean(&store, &mut txn);
}

#[test]
fn one_of_several_owners_gets_a_block_of_its_own() {
    let (store, mut txn) = filesystem(&parameters(4000, 1024, "ea_inode"));
    let mut sharing = Sharing::new();
    let mut change = Change { time: TIME, generation: 0, sharing: Some(&mut sharing) };
    let mut files = [fresh(&mut txn, 0o100_644), fresh(&mut txn, 0o100_644)];
    for file in &mut files {
        xattr::set(&mut txn, file, b"user.large", &[3; 300], &mut change).unwrap();
        xattr::set(&mut txn, file, b"user.huge", &[4; 3000], &mut change).unwrap();
    }
    let [one, other] = &mut files;
    assert_eq!(one.view().attribute_block(), other.view().attribute_block());
    xattr::set(&mut txn, other, b"user.large", &[5; 300], &mut change).unwrap();
    assert_ne!(one.view().attribute_block(), other.view().attribute_block());
    assert_eq!(xattr::get(&txn, one, b"user.large").unwrap().unwrap(), [3; 300]);
    assert_eq!(xattr::get(&txn, other, b"user.huge").unwrap().unwrap(), [4; 3000]);
    put_in_root(&mut txn, "one", one);
    put_in_root(&mut txn, "other", other);
    commit_clean(&store, &mut txn);
    let run = oracle::debugfs(&store, "ea_get /other user.large");
    assert!(run.is_none_or(|run| run.stdout.contains("05 05 05")));
}

#[test]
fn access_lists_change_their_form_on_the_way() {
    #[rustfmt::skip]
    let value = [
        2, 0, 0, 0,  1, 0, 6, 0, 255, 255, 255, 255,  2, 0, 7, 0, 0xe8, 3, 0, 0,
        4, 0, 4, 0, 255, 255, 255, 255,  16, 0, 7, 0, 255, 255, 255, 255,  32, 0, 0, 0, 255, 255, 255, 255,
    ];
    let (store, mut txn) = filesystem(&parameters(4000, 1024, ""));
    let mut file = fresh(&mut txn, 0o100_644);
    let mut change = Change::at(TIME);
    xattr::set(&mut txn, &mut file, b"system.posix_acl_access", &value, &mut change).unwrap();
    assert_eq!(xattr::get(&txn, &file, b"system.posix_acl_access").unwrap().unwrap(), value);
    assert_eq!(xattr::list(&txn, &file).unwrap(), [b"system.posix_acl_access".to_vec()]);
    let bad: [(&[u8], &[u8]); 5] = [
        (b"system.posix_acl_default", &value),
        (b"system.posix_acl_access", &value[..20]),
        (b"system.data", b"x"),
        (b"nonsense", b"x"),
        (b"user.", b"x"),
    ];
    for (name, value) in bad {
        assert!(xattr::set(&mut txn, &mut file, name, value, &mut change).is_err(), "{name:?}");
    }
    put_in_root(&mut txn, "file", &file);
    commit_clean(&store, &mut txn);
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let (_, mut txn) = filesystem(&parameters(4000, 1024, "^ea_inode"));
    let mut file = fresh(&mut txn, 0o100_644);
    let mut change = Change::at(TIME);
    xattr::set(&mut txn, &mut file, b"user.a", &[1; 600], &mut change).unwrap();
    let before = (file.clone(), free_counts(&txn));
    let result = xattr::set(&mut txn, &mut file, b"user.b", &[1; 600], &mut change);
    assert!(matches!(result, Err(Error::AttributeTooBig(_))));
    assert_eq!((file, free_counts(&txn)), before);
}

#[test]
fn attributes_go_with_the_last_name_of_their_file() {
    let (store, mut txn) = filesystem(&parameters(4000, 1024, "ea_inode"));
    let before = free_counts(&txn);
    let mut root = inode::read(&txn, InodeNumber::ROOT).unwrap();
    let new = NewInode { permissions: 0o644, time: TIME, ..NewInode::default() };
    for kind in [NewKind::Regular, NewKind::Symlink(b"target"), NewKind::Fifo, NewKind::Symlink(&[b't'; 100])]
    {
        let mut file = namespace::create(&mut txn, &mut root, b"name", kind, new).unwrap();
        let mut change = Change::at(TIME);
        xattr::set(&mut txn, &mut file, b"trusted.large", &[1; 500], &mut change).unwrap();
        xattr::set(&mut txn, &mut file, b"trusted.huge", &[1; 5000], &mut change).unwrap();
        inode::write(&mut txn, &file).unwrap();
        namespace::unlink(&mut txn, &mut root, b"name", TIME).unwrap();
        assert_eq!(free_counts(&txn), before, "{kind:?}");
    }
    commit_clean(&store, &mut txn);
}

/// Field case: a short link was taken for one with a block, since a value in an inode of its own counts in `i_blocks`.
#[test]
fn a_short_link_with_a_large_attribute_keeps_its_target() {
    let (store, mut txn) = filesystem(&parameters(4000, 1024, "ea_inode"));
    let mut root = inode::read(&txn, InodeNumber::ROOT).unwrap();
    let new = NewInode { permissions: 0o777, time: TIME, ..NewInode::default() };
    let mut link = namespace::create(&mut txn, &mut root, b"s", NewKind::Symlink(b"/target"), new).unwrap();
    xattr::set(&mut txn, &mut link, b"trusted.big", &[1; 3000], &mut Change::at(TIME)).unwrap();
    inode::write(&mut txn, &link).unwrap();
    assert_eq!(link.view().blocks_raw(), 6);
    assert_eq!(file::read_symlink(&txn, &link).unwrap(), b"/target");
    group::update_superblock(&mut txn, |_| ()).unwrap();
    write_backups(&mut txn).unwrap();
    commit_new(&mut txn).unwrap();
    // e2fsck before 1.47.1 takes such a link for damage; the kernel is asked instead.
    let Some(tree) = kernel::read_tree(&*store) else { return };
    let seen = &tree.unwrap().0[std::path::Path::new("s")];
    assert_eq!(seen.content, Content::Symlink(b"/target".to_vec()));
    assert_eq!(seen.attributes[b"trusted.big".as_slice()], [1; 3000]);
}
