//! Damaged attributes and inline contents end in errors: nothing panics, and no walk is without an end.

use std::ops::ControlFlow;
use std::sync::Arc;

use ext4kit_format::disk::dirent::FileType;
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::xattr::{self, Change, Sharing};
use ext4kit_format::tree::{dir, file, inline, inode, namespace};
use ext4kit_format::txn::{Overlay, OverlayOptions, Transaction};
use ext4kit_format::{BlockNumber, InodeNumber};
use ext4kit_testkit::filesystem::{TIME, commit_clean, filesystem, fresh, parameters, put_in_root};
use ext4kit_testkit::seed::Random;

const ROUNDS: usize = 3000;

/// A filesystem with attributes in every place and contents in inodes; the bytes worth damaging.
fn sample() -> (Arc<MemoryStore>, Overlay, Vec<InodeNumber>, Vec<BlockNumber>) {
    let (store, mut txn) = filesystem(&parameters(4000, 1024, "ea_inode inline_data"));
    let mut change = Change::at(TIME);
    let mut numbers = Vec::new();
    let mut blocks = Vec::new();
    for number in 0..4u8 {
        let mut file = fresh(&mut txn, if number == 3 { 0o040_755 } else { 0o100_644 });
        match number {
            3 => assert!(dir::create_inline(&txn, &mut file, InodeNumber::ROOT).unwrap()),
            2 => assert!(inline::initialise(&mut file).unwrap()),
            _ => {}
        }
        match number {
            3 => {
                let name = b"a-name-that-is-not-short";
                for end in 0..4u8 {
                    let name = [name.as_slice(), &[b'a' + end]].concat();
                    dir::insert(&mut txn, &mut file, &name, InodeNumber::ROOT, FileType::DIRECTORY).unwrap();
                }
            }
            _ => file::write(&mut txn, &mut file, 0, &[number; 90]).unwrap(),
        }
        for length in [10, 200, 3000] {
            let name = format!("user.of-{length}");
            xattr::set(&mut txn, &mut file, name.as_bytes(), &vec![number; length], &mut change).unwrap();
        }
        blocks.push(file.view().attribute_block());
        numbers.push(file.number());
        inode::write_over(&mut txn, &file).unwrap();
    }
    numbers.extend((15..24).filter_map(InodeNumber::new));
    for number in &numbers {
        let (block, _) = inode::locate(&txn, *number).unwrap();
        blocks.push(block);
    }
    blocks.sort_unstable();
    blocks.dedup();
    txn.seal().unwrap();
    ext4kit_format::txn::commit_new(&mut txn).unwrap();
    (store, txn, numbers, blocks)
}

fn use_everything(txn: &mut Overlay, file: &mut Inode, random: &mut Random) {
    let mut sharing = Sharing::new();
    let mut change = Change { time: TIME, generation: 1, sharing: Some(&mut sharing) };
    if let Ok(names) = xattr::list(txn, file) {
        for name in names {
            let _ = xattr::get(txn, file, &name);
            let _ = xattr::remove(txn, file, &name, &mut change);
        }
    }
    let length = random.usize(..4000);
    let _ = xattr::set(txn, file, b"user.new", &vec![1; length], &mut change);
    let mut bytes = [0; 200];
    let _ = file::read(txn, file, random.u64(..100), &mut bytes);
    let _ = file::read_symlink(txn, file);
    let _ = file::write(txn, file, random.u64(..200), &bytes);
    let _ = file::truncate(txn, file, random.u64(..300));
    let _ = dir::for_each(txn, file, &mut |_| Ok(ControlFlow::Continue(())));
    let _ = dir::insert(txn, file, b"new-name", InodeNumber::ROOT, FileType::DIRECTORY);
    let _ = dir::remove(txn, file, b"a-name-that-is-not-shorta");
    let _ = dir::set_target(txn, file, b"..", InodeNumber::ROOT, FileType::DIRECTORY);
    let _ = xattr::release_all(txn, file, &mut change);
    let _ = namespace::free(txn, file.clone(), TIME);
}

#[test]
fn damage_ends_in_errors() {
    let (store, txn, numbers, blocks) = sample();
    let layout = txn.layout().clone();
    let mut random = Random::of("damage_ends_in_errors");
    for _ in 0..ROUNDS {
        let damaged = MemoryStore::copy_of(&*store).unwrap();
        for _ in 0..=random.u64(..4) {
            let block = blocks[random.usize(..blocks.len())];
            let at = layout.geometry.byte_offset(block).unwrap() + random.u64(..1024);
            let byte = match random.u64(..3) {
                0 => 0,
                1 => 0xff,
                _ => random.u8(..),
            };
            damaged.write_at(at, &[byte]).unwrap();
        }
        let options = OverlayOptions { verify: false, ..OverlayOptions::default() };
        let mut txn = Overlay::new(Arc::new(damaged), layout.clone(), options);
        for number in &numbers {
            if let Ok(mut file) = inode::read_unverified(&txn, *number) {
                use_everything(&mut txn, &mut file, &mut random);
            }
        }
    }
}

/// What is put together above is sound before it is damaged.
#[test]
fn the_sample_is_sound() {
    let (store, mut txn) = filesystem(&parameters(4000, 1024, "ea_inode inline_data"));
    let mut file = fresh(&mut txn, 0o100_644);
    assert!(inline::initialise(&mut file).unwrap());
    file::write(&mut txn, &mut file, 0, &[7; 90]).unwrap();
    for length in [10, 200, 3000] {
        let name = format!("user.of-{length}");
        xattr::set(&mut txn, &mut file, name.as_bytes(), &vec![1; length], &mut Change::at(TIME)).unwrap();
    }
    assert!(inline::is_inline(&file));
    put_in_root(&mut txn, "file", &file);
    commit_clean(&store, &mut txn);
}
