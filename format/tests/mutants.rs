//! Random damage: whatever an image says, opening, listing, reading and recovering it end, with an answer or an error.
//!
//! `cargo xtask fuzz` runs these with many more mutants than a usual test run.

use std::ops::ControlFlow;
use std::sync::Arc;

use ext4kit_format::image::{Image, OpenOptions};
use ext4kit_format::journal::{open_internal, recover};
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::namespace::{NewInode, NewKind};
use ext4kit_format::tree::{dir, file, inode, map, namespace, xattr};
use ext4kit_format::txn::{Overlay, OverlayOptions, Transaction};
use ext4kit_format::{InodeNumber, LogicalBlock, Result};
use ext4kit_testkit::filesystem;
use ext4kit_testkit::fixture;
use ext4kit_testkit::seed::{Random, mutants};

const BLOCKS: u64 = 1024;

/// A small filesystem with something of everything, without checksums that would hide the damage.
fn populated(changes: &str) -> MemoryStore {
    let parameters = filesystem::parameters(BLOCKS, 1024, changes);
    let (store, mut txn) = filesystem::filesystem(&parameters);
    let new = NewInode { permissions: 0o755, time: filesystem::TIME, ..NewInode::default() };
    let mut root = inode::read(&txn, InodeNumber::ROOT).unwrap();
    let mut folder = namespace::create(&mut txn, &mut root, b"folder", NewKind::Directory, new).unwrap();
    for number in 0..80u32 {
        let name = format!("a-file-with-a-rather-long-name-{number}");
        let mut made =
            namespace::create(&mut txn, &mut folder, name.as_bytes(), NewKind::Regular, new).unwrap();
        // Holes, so that the trees have some width.
        for block in 0..number % 8 {
            file::write(&mut txn, &mut made, u64::from(block) * 3000, b"contents").unwrap();
        }
        let mut change = xattr::Change { time: filesystem::TIME, generation: 0, sharing: None };
        xattr::set_all(&mut txn, &mut made, &[(b"user.note", &[b'v'; 30])], &mut change).unwrap();
        inode::write(&mut txn, &made).unwrap();
    }
    namespace::create(&mut txn, &mut root, b"far", NewKind::Symlink(&[b'x'; 200]), new).unwrap();
    filesystem::commit_clean(&store, &mut txn);
    MemoryStore::clone(&store)
}

/// Changes a few bytes, mostly where something is.
fn damage(store: &MemoryStore, random: &mut Random) {
    for _ in 0..random.u32(1..6) {
        let wanted = random.u64(..store.size());
        let at = match store.next_data(wanted).unwrap() {
            Some(data) => data.start.max(wanted),
            None => random.u64(1024..8192),
        };
        let at = if random.u8(..4) == 0 { random.u64(1024..2048) } else { at };
        let byte = match random.u8(..4) {
            0 => 0,
            1 => 0xff,
            _ => random.u8(..),
        };
        store.write_at(at, &[byte]).unwrap();
    }
}

/// Reads what can be read: every inode, and by its kind all that hangs from it.
fn look_at_everything(txn: &Overlay) -> usize {
    let mut seen = 0;
    for number in 1..=txn.layout().geometry.inodes_count().min(600) {
        let Some(number) = InodeNumber::new(number) else { continue };
        seen += usize::from(look_at(txn, number).is_ok());
    }
    seen
}

fn look_at(txn: &Overlay, number: InodeNumber) -> Result<()> {
    let found = inode::read(txn, number)?;
    let mut names = 0;
    if found.view().is_directory() {
        let _ = dir::lookup(txn, &found, b"a-file-with-a-rather-long-name-7");
        dir::for_each(txn, &found, &mut |_| {
            names += 1;
            Ok(if names > 10_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    let _ = map::own_blocks(txn, &found);
    let segments = map::segments(txn, &found, LogicalBlock(0)).take(5000).collect::<Result<Vec<_>>>();
    let mut bytes = vec![0; 4096];
    file::read(txn, &found, 0, &mut bytes)?;
    let _ = file::read_symlink(txn, &found);
    let _ = xattr::list(txn, &found);
    segments.map(|_| ())
}

#[test]
fn mutants_are_opened_and_read() {
    let bases = ["^metadata_csum", "^metadata_csum ^extent ^64bit", "^metadata_csum inline_data ea_inode"];
    let mut random = Random::of("mutants opened and read");
    let mut opened = 0;
    for changes in bases {
        let base = populated(changes);
        for _ in 0..mutants(10_000).div_ceil(3) {
            let store = base.clone();
            damage(&store, &mut random);
            let options = OpenOptions { verify: false, ..OpenOptions::default() };
            let Ok(image) = Image::open_with(Arc::new(store), options) else { continue };
            opened += 1;
            look_at_everything(&image.overlay(OverlayOptions { verify: false, ..OverlayOptions::default() }));
        }
    }
    assert!(opened > 100, "only {opened} mutants could be opened: the damage is too crude");
}

#[test]
fn mutants_are_recovered_or_refused() {
    let base = fixture::load("images/dirty-churn-4k.img.zst");
    let mut random = Random::of("mutants recovered");
    let mut recovered = 0;
    for _ in 0..mutants(10_000) {
        let store = base.clone();
        damage(&store, &mut random);
        let store: Arc<dyn Store> = Arc::new(store);
        let Ok(image) = Image::open(Arc::clone(&store)) else { continue };
        let Ok(found) = open_internal(&image) else { continue };
        if recover(store.as_ref(), &found.journal, None).is_ok() {
            recovered += 1;
            let Ok(image) = Image::open(store) else { continue };
            assert!(!image.needs_recovery());
        }
    }
    assert!(recovered > 100, "only {recovered} mutants were recovered: the damage is too crude");
}
