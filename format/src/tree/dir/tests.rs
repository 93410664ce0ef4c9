//! Directories of every form against a plain map, on filesystems in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::GroupNumber;
use crate::create::{self, InodeCount, Plan};
use crate::disk::features::{Compat, Incompat, RoCompat};
use crate::store::MemoryStore;
use crate::txn::{Overlay, OverlayOptions};

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a feature bit")]
struct Form {
    indexed: bool,
    checksummed: bool,
    file_type: bool,
    large: bool,
}

const INDEXED: Form = Form { indexed: true, checksummed: true, file_type: true, large: false };

fn directory(form: Form) -> (Overlay, Inode) {
    let mut parameters = create::tests::ext4(60_000, 1024);
    parameters.inodes = InodeCount::AtLeast(64);
    parameters.features.compat.set(Compat::DIR_INDEX, form.indexed);
    parameters.features.incompat.set(Incompat::FILETYPE, form.file_type);
    parameters.features.incompat.set(Incompat::LARGE_DIR, form.large);
    parameters.features.ro_compat.set(RoCompat::METADATA_CSUM, form.checksummed);
    let plan = Plan::new(&parameters).unwrap();
    let store = Arc::new(MemoryStore::new(60_000 << 10));
    let mut txn = create::write_skeleton(store, &plan, &parameters, OverlayOptions::default()).unwrap();
    let number = txn.allocate_inode(GroupNumber(0), true).unwrap();
    let mut dir = Inode::fresh(number, 256, 32);
    dir.set_mode(0o40755);
    map::initialise(&mut dir, true).unwrap();
    create(&mut txn, &mut dir, InodeNumber::ROOT).unwrap();
    (txn, dir)
}

fn listing(txn: &Overlay, dir: &Inode) -> BTreeMap<Vec<u8>, u32> {
    let mut found = BTreeMap::new();
    for_each(txn, dir, &mut |entry| {
        assert!(found.insert(entry.name.to_vec(), entry.found.inode.get()).is_none(), "listed twice");
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(found.remove(b".".as_slice()), Some(dir.number().get()));
    assert_eq!(found.remove(b"..".as_slice()), Some(2));
    found
}

fn inode(number: u32) -> InodeNumber {
    InodeNumber::new(number).unwrap()
}

/// Seals the overlay and reads everything back through its checksums.
fn reread(txn: &mut Overlay) {
    for at in txn.seal().unwrap() {
        let change = txn.change(at).unwrap().unwrap();
        let offset = txn.layout().geometry.byte_offset(at).unwrap();
        txn.store().write_at(offset, &change.after).unwrap();
    }
    txn.discard();
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>),
    Remove(prop::sample::Index),
    Replace(prop::sample::Index, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let name = prop_oneof![
        6 => "[a-z]{1,12}".prop_map(String::into_bytes),
        2 => "[a-z]{100,255}".prop_map(String::into_bytes),
        1 => prop::collection::vec(prop_oneof![1u8..=46, 48u8..=255], 1..30)
            .prop_filter("no dots", |name| !dirent::is_dot(name)),
    ];
    prop_oneof![
        5 => name.prop_map(Step::Insert),
        2 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => (any::<prop::sample::Index>(), 1u32..60).prop_map(|(at, target)| Step::Replace(at, target)),
    ]
}

fn check(form: Form, steps: Vec<Step>) -> std::result::Result<(), TestCaseError> {
    let (mut txn, mut dir) = directory(form);
    let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for (number, step) in (100u32..).zip(steps) {
        match step {
            Step::Insert(name) => {
                let result = insert(&mut txn, &mut dir, &name, inode(number), FileType::REGULAR);
                prop_assert_eq!(result.is_ok(), !model.contains_key(&name));
                model.entry(name).or_insert(number);
            }
            Step::Remove(at) if !model.is_empty() => {
                let name = at.get(&model.keys().cloned().collect::<Vec<_>>()).clone();
                let found = remove(&mut txn, &mut dir, &name).unwrap();
                prop_assert_eq!(Some(found.inode.get()), model.remove(&name));
                prop_assert!(remove(&mut txn, &mut dir, &name).is_err());
            }
            Step::Replace(at, target) if !model.is_empty() => {
                let name = at.get(&model.keys().cloned().collect::<Vec<_>>()).clone();
                set_target(&mut txn, &mut dir, &name, inode(target), FileType::FIFO).unwrap();
                model.insert(name, target);
            }
            _ => {}
        }
    }
    reread(&mut txn);
    prop_assert_eq!(&listing(&txn, &dir), &model);
    for (name, number) in &model {
        let found = lookup(&txn, &dir, name).unwrap();
        prop_assert_eq!(found.map(|found| found.inode.get()), Some(*number));
    }
    prop_assert_eq!(is_empty(&txn, &dir).unwrap(), model.is_empty());
    prop_assert_eq!(parent(&txn, &dir).unwrap(), InodeNumber::ROOT);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn indexed_directories_follow_the_model(steps in prop::collection::vec(step(), 1..300)) {
        check(INDEXED, steps)?;
    }

    #[test]
    fn linear_directories_follow_the_model(steps in prop::collection::vec(step(), 1..150), checksummed: bool, file_type: bool) {
        check(Form { indexed: false, checksummed, file_type, large: false }, steps)?;
    }

    #[test]
    fn indexes_without_checksums_follow_the_model(steps in prop::collection::vec(step(), 1..200)) {
        check(Form { checksummed: false, ..INDEXED }, steps)?;
    }
}

#[test]
fn indexes_grow_to_two_and_three_levels() {
    // Leaves of 1 KiB hold three names of 250 bytes; 123 children of the root with 126 leaves each are soon full.
    for (large, names, frames) in [(false, 3000u32, 2), (true, 40_000, 3)] {
        let (mut txn, mut dir) = directory(Form { large, ..INDEXED });
        let name = |number: u32| format!("{number:08}{}", "x".repeat(242));
        for number in 0..names {
            let target = inode(number % 60 + 1);
            insert(&mut txn, &mut dir, name(number).as_bytes(), target, FileType::REGULAR).unwrap();
        }
        reread(&mut txn);
        assert_eq!(listing(&txn, &dir).len(), names as usize);
        let shape = shape(&txn, &dir).unwrap();
        assert_eq!(index::probe(&txn, &dir, &shape, 0).unwrap().len(), frames);
        for number in (0..names).step_by(97) {
            assert!(lookup(&txn, &dir, name(number).as_bytes()).unwrap().is_some(), "{number}");
        }
    }
}

#[test]
fn bad_names_are_refused() {
    let (mut txn, mut dir) = directory(INDEXED);
    for name in [b"".as_slice(), b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
        let result = insert(&mut txn, &mut dir, name, inode(12), FileType::REGULAR);
        assert!(matches!(result, Err(Error::BadName(_))), "{name:?}");
    }
    assert!(listing(&txn, &dir).is_empty());
}

/// A mutant whose `i_size` said four terabytes kept a listing busy with holes for hours.
#[test]
fn a_size_that_is_wrong_does_not_make_a_walk_endless() {
    for form in [INDEXED, Form { indexed: false, ..INDEXED }] {
        let (mut txn, mut dir) = directory(form);
        insert(&mut txn, &mut dir, b"name", inode(12), FileType::REGULAR).unwrap();
        dir.set_size(1 << 42);
        assert_eq!(listing(&txn, &dir).len(), 1);
        assert!(lookup(&txn, &dir, b"other").unwrap().is_none());
        assert!(!is_empty(&txn, &dir).unwrap());
    }
}

#[test]
fn names_that_could_not_be_found_again_are_not_added() {
    let (mut txn, mut dir) = directory(INDEXED);
    let before = dir.clone();
    dir.set_flags(dir.view().flags() | InodeFlags::CASEFOLD);
    let result = insert(&mut txn, &mut dir, b"name", inode(12), FileType::REGULAR);
    assert!(matches!(result, Err(Error::Unsupported(_))));
    assert!(listing(&txn, &before).is_empty());
}
