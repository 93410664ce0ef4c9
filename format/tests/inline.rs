//! Files and directories inside their inodes against plain models, and e2fsck's opinion of what was committed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use ext4kit_format::InodeNumber;
use ext4kit_format::create::Parameters;
use ext4kit_format::disk::dirent::{FileType, is_dot};
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::image::Image;
use ext4kit_format::tree::xattr::{self, Change};
use ext4kit_format::tree::{dir, file, inline, inode};
use ext4kit_format::txn::{Overlay, OverlayOptions};
use ext4kit_testkit::filesystem::{TIME, commit_clean, filesystem, fresh, parameters, put_in_root};
use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::oracle;
use proptest::prelude::*;

fn with_inline_data(inode_size: u32) -> Parameters {
    Parameters { inode_size, ..parameters(4000, 1024, "inline_data") }
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Truncate(usize),
    Attribute(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..150, prop::collection::vec(1u8.., 0..60)).prop_map(|(at, bytes)| Step::Write(at, bytes)),
        2 => (0usize..200).prop_map(Step::Truncate),
        1 => (1usize..60).prop_map(Step::Attribute),
        1 => (0usize..5000, prop::collection::vec(1u8.., 1..3000)).prop_map(|(at, bytes)| Step::Write(at, bytes)),
    ]
}

fn contents(txn: &Overlay, inode: &Inode) -> Vec<u8> {
    file::read_all(txn, inode, 1 << 20).unwrap()
}

fn check_file(steps: Vec<Step>, inode_size: u32) {
    let (store, mut txn) = filesystem(&with_inline_data(inode_size));
    let mut inode = fresh(&mut txn, 0o100_644);
    assert!(inline::initialise(&mut inode).unwrap());
    put_in_root(&mut txn, "file", &inode);
    let mut model: Vec<u8> = Vec::new();
    for step in steps {
        match step {
            Step::Write(at, bytes) => {
                file::write(&mut txn, &mut inode, at as u64, &bytes).unwrap();
                let end = at + bytes.len();
                if !bytes.is_empty() {
                    model.resize(model.len().max(end), 0);
                    model[at..end].copy_from_slice(&bytes);
                } else if end > model.len() {
                    model = contents(&txn, &inode);
                }
            }
            Step::Truncate(size) => {
                file::truncate(&mut txn, &mut inode, size as u64).unwrap();
                model.resize(size, 0);
            }
            Step::Attribute(length) => {
                let value = vec![5; length];
                let mut change = Change::at(TIME);
                xattr::set(&mut txn, &mut inode, b"user.other", &value, &mut change).unwrap();
                assert_eq!(xattr::get(&txn, &inode, b"user.other").unwrap(), Some(value));
                assert_eq!(xattr::list(&txn, &inode).unwrap(), [b"user.other".to_vec()]);
            }
        }
        assert_eq!(contents(&txn, &inode), model);
    }
    inode::write(&mut txn, &inode).unwrap();
    commit_clean(&store, &mut txn);
    assert_eq!(contents(&txn, &inode::read(&txn, inode.number()).unwrap()), model);
}

fn listing(txn: &Overlay, dir: &Inode) -> BTreeMap<Vec<u8>, u32> {
    let mut found = BTreeMap::new();
    dir::for_each(txn, dir, &mut |entry| {
        if !is_dot(entry.name) {
            assert!(found.insert(entry.name.to_vec(), entry.found.inode.get()).is_none());
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found
}

#[derive(Clone, Debug)]
enum DirStep {
    Insert(String),
    Remove(prop::sample::Index),
    Target(prop::sample::Index, bool),
}

fn dir_step() -> impl Strategy<Value = DirStep> {
    prop_oneof![
        4 => "[a-z]{1,14}".prop_map(DirStep::Insert),
        2 => any::<prop::sample::Index>().prop_map(DirStep::Remove),
        1 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(at, to)| DirStep::Target(at, to)),
    ]
}

fn check_directory(steps: Vec<DirStep>, inode_size: u32) {
    let (store, mut txn) = filesystem(&with_inline_data(inode_size));
    let mut targets = [fresh(&mut txn, 0o100_644), fresh(&mut txn, 0o100_644)];
    let numbers = targets.each_ref().map(Inode::number);
    let mut dir = fresh(&mut txn, 0o040_755);
    assert!(dir::create_inline(&txn, &mut dir, InodeNumber::ROOT).unwrap());
    let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for step in steps {
        match step {
            DirStep::Insert(name) => {
                let name = name.into_bytes();
                let result = dir::insert(&mut txn, &mut dir, &name, numbers[0], FileType::REGULAR);
                assert_eq!(result.is_ok(), !model.contains_key(&name), "{result:?}");
                model.entry(name).or_insert(numbers[0].get());
            }
            DirStep::Remove(at) if !model.is_empty() => {
                let name = at.get(&model.keys().cloned().collect::<Vec<_>>()).clone();
                let found = dir::remove(&mut txn, &mut dir, &name).unwrap();
                assert_eq!(Some(found.inode.get()), model.remove(&name));
            }
            DirStep::Target(at, to) if !model.is_empty() => {
                let name = at.get(&model.keys().cloned().collect::<Vec<_>>()).clone();
                let target = numbers[usize::from(to)];
                dir::set_target(&mut txn, &mut dir, &name, target, FileType::REGULAR).unwrap();
                model.insert(name, target.get());
            }
            _ => {}
        }
        assert_eq!(listing(&txn, &dir), model);
    }
    assert_eq!(dir::is_empty(&txn, &dir).unwrap(), model.is_empty());
    assert_eq!(dir::parent(&txn, &dir).unwrap(), InodeNumber::ROOT);
    for (number, target) in targets.iter_mut().enumerate() {
        let names = model.values().filter(|found| **found == target.number().get()).count();
        target.set_links(1 + u16::try_from(names).unwrap());
        put_in_root(&mut txn, &format!("target{number}"), target);
    }
    put_in_root(&mut txn, "dir", &dir);
    commit_clean(&store, &mut txn);
    for (name, number) in &model {
        let found = dir::lookup(&txn, &dir, name).unwrap();
        assert_eq!(found.map(|found| found.inode.get()), Some(*number));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn files_follow_the_model(steps in prop::collection::vec(step(), 1..20), large: bool) {
        check_file(steps, if large { 512 } else { 256 });
    }

    #[test]
    fn directories_follow_the_model(steps in prop::collection::vec(dir_step(), 1..40), large: bool) {
        check_directory(steps, if large { 512 } else { 256 });
    }
}

#[test]
fn a_directory_moves_to_another_parent() {
    let (store, mut txn) = filesystem(&with_inline_data(256));
    let mut outer = fresh(&mut txn, 0o040_755);
    let mut inner = fresh(&mut txn, 0o040_755);
    assert!(dir::create_inline(&txn, &mut outer, InodeNumber::ROOT).unwrap());
    assert!(dir::create_inline(&txn, &mut inner, InodeNumber::ROOT).unwrap());
    dir::insert(&mut txn, &mut outer, b"inner", inner.number(), FileType::DIRECTORY).unwrap();
    let before = dir::set_target(&mut txn, &mut inner, b"..", outer.number(), FileType::DIRECTORY).unwrap();
    assert_eq!(before.inode, InodeNumber::ROOT);
    outer.set_links(3);
    inode::write_over(&mut txn, &inner).unwrap();
    put_in_root(&mut txn, "outer", &outer);
    commit_clean(&store, &mut txn);
    let run = oracle::debugfs(&store, "ls -l /outer/inner");
    assert!(run.is_none_or(|run| run.stdout.contains("..") && run.stderr.lines().count() <= 1));
}

#[test]
fn what_debugfs_writes_is_read() {
    let Some(store) = oracle::mke2fs(4 << 20, &["-t", "ext4", "-O", "inline_data", "-b", "1024"]) else {
        return;
    };
    let temporary = TempImage::of(&store).unwrap();
    oracle::run_on("debugfs", &["-w", "-R", "mkdir aa"], &temporary.path()).unwrap();
    let image = Image::open(Arc::new(temporary.load().unwrap())).unwrap();
    let txn = image.overlay(OverlayOptions::default());
    let root = inode::read(&txn, InodeNumber::ROOT).unwrap();
    let number = listing(&txn, &root)[b"aa".as_slice()];
    let made = inode::read(&txn, InodeNumber::new(number).unwrap()).unwrap();
    assert!(inline::is_inline(&made));
    assert!(listing(&txn, &made).is_empty());
    assert_eq!(dir::parent(&txn, &made).unwrap(), InodeNumber::ROOT);
}
