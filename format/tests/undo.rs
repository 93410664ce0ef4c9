//! Undo files: written, gone on with, undone here and by e2undo.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ext4kit_format::BlockNumber;
use ext4kit_format::error::Error;
use ext4kit_format::image::Image;
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::group;
use ext4kit_format::txn::{BlockKind, Overlay, OverlayOptions, Transaction, create};
use ext4kit_format::undo::{UndoFile, UndoOptions, undo};
use ext4kit_testkit::{filesystem, oracle};

fn made(block_size: u32) -> MemoryStore {
    filesystem::ext4(65536, block_size)
}

/// Changes a label and some blocks, and keeps an undo file of it.
fn change(store: &MemoryStore, file: UndoFile, label: u8, blocks: &[u64]) {
    let mut file = file;
    let mut overlay = changes(store, label, blocks);
    let changed = overlay.seal().unwrap();
    file.record_changes(&overlay, &changed).unwrap();
    file.sync(store).unwrap();
    for at in changed {
        let after = overlay.change(at).unwrap().unwrap().after;
        store.write_at(overlay.layout().geometry.byte_offset(at).unwrap(), &after).unwrap();
    }
    file.finish(store).unwrap();
}

fn changes(store: &MemoryStore, label: u8, blocks: &[u64]) -> Overlay {
    let mut overlay = Image::open(Arc::new(store.clone())).unwrap().overlay(OverlayOptions::default());
    group::update_superblock(&mut overlay, |superblock| superblock.s_volume_name = [label; 16]).unwrap();
    for at in blocks {
        create(&mut overlay, BlockNumber(*at), BlockKind::Plain, |bytes| bytes.fill(label)).unwrap();
    }
    overlay
}

fn begin(block_size: u32) -> (File, UndoFile) {
    let file = tempfile::tempfile().unwrap();
    (file.try_clone().unwrap(), UndoFile::create(file, block_size, 0).unwrap())
}

/// Whether e2undo puts a filesystem back; `None` without e2undo.
fn e2undo(file: &File, store: &MemoryStore) -> Option<MemoryStore> {
    let mut copy = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    copy.write_all(&bytes).unwrap();
    let mut image = tempfile::NamedTempFile::new().unwrap();
    image.write_all(&store.to_vec()).unwrap();
    let run = oracle::run("e2undo", &[copy.path(), image.path()])?;
    assert_eq!(run.code, 0, "{run:?}");
    let mut after = Vec::new();
    image.reopen().unwrap().read_to_end(&mut after).unwrap();
    let restored = MemoryStore::new(after.len() as u64);
    restored.write_at(0, &after).unwrap();
    Some(restored)
}

fn assert_undone(what: &str, file: &File, changed: &MemoryStore, before: &[u8]) {
    if let Some(restored) = e2undo(file, changed) {
        assert!(restored.to_vec() == before, "{what}: e2undo");
    }
    undo(file, changed, UndoOptions::default()).unwrap();
    assert!(changed.to_vec() == before, "{what}");
}

#[test]
fn what_was_changed_is_put_back() {
    for block_size in [1024u32, 4096] {
        let store = made(block_size);
        let before = store.to_vec();
        let (file, undo_file) = begin(block_size);
        // Runs, single blocks, and more keys than a block of them holds.
        let blocks: Vec<u64> = (20_000..20_020).chain((30_000..31_000).step_by(3)).collect();
        change(&store, undo_file, b'x', &blocks);
        assert!(store.to_vec() != before);
        assert_undone(&format!("blocks of {block_size}"), &file, &store, &before);
    }
}

#[test]
fn nothing_changed_is_a_file_without_keys() {
    let store = made(1024);
    let before = store.to_vec();
    let (file, undo_file) = begin(1024);
    undo_file.finish(&store).unwrap();
    assert_undone("no keys", &file, &store, &before);
}

#[test]
fn a_second_run_goes_on_and_keeps_the_oldest_contents() {
    let store = made(1024);
    let before = store.to_vec();
    let (file, undo_file) = begin(1024);
    change(&store, undo_file, b'a', &[20_000, 20_001, 20_005]);
    for (label, blocks) in [(b'b', 20_000..20_100), (b'c', 20_050..20_200), (b'd', 40_000..40_001)] {
        let again = UndoFile::append(file.try_clone().unwrap(), &store, 1024, 0).unwrap();
        let blocks: Vec<u64> = blocks.step_by(2).collect();
        change(&store, again, label, &blocks);
    }
    assert_undone("four runs", &file, &store, &before);
}

#[test]
fn a_file_of_tune2fs_can_be_gone_on_with() {
    let Some(store) = oracle::mke2fs(64 << 20, &["-t", "ext4", "-b", "4096"]) else { return };
    let before = store.to_vec();
    let directory = tempfile::tempdir().unwrap();
    let (path, image) = (directory.path().join("undo"), directory.path().join("image"));
    std::fs::write(&image, &before).unwrap();
    let arguments: [&std::ffi::OsStr; 5] =
        ["-L".as_ref(), "label".as_ref(), "-z".as_ref(), path.as_ref(), image.as_ref()];
    let Some(run) = oracle::run("tune2fs", &arguments) else { return };
    assert_eq!(run.code, 0, "{run:?}");
    store.write_at(0, &std::fs::read(&image).unwrap()).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let again = UndoFile::append(file.try_clone().unwrap(), &store, 4096, 0).unwrap();
    change(&store, again, b'z', &[9000, 9001, 12_000]);
    assert_undone("after tune2fs", &file, &store, &before);
}

#[test]
fn a_file_that_does_not_belong_is_refused() {
    let store = made(1024);
    let (file, undo_file) = begin(1024);
    change(&store, undo_file, b'a', &[20_000]);
    let overlay = {
        let mut overlay = changes(&store, b'q', &[]);
        overlay.seal().unwrap();
        overlay
    };
    let at = overlay.layout().geometry.superblock_block();
    store.write_at(1024, &overlay.change(at).unwrap().unwrap().after).unwrap();
    let changed = store.to_vec();
    assert!(matches!(undo(&file, &store, UndoOptions::default()), Err(Error::Invalid(_))));
    assert!(UndoFile::append(file.try_clone().unwrap(), &store, 1024, 0).is_err());
    assert!(store.to_vec() == changed);
    undo(&file, &store, UndoOptions { force: true }).unwrap();
    assert!(store.to_vec() != changed);
}

#[test]
fn a_run_that_was_cut_short_is_told_apart_and_can_be_forced() {
    let store = made(1024);
    let before = store.to_vec();
    let (file, mut undo_file) = begin(1024);
    let mut overlay = changes(&store, b'a', &[20_000, 20_001]);
    let changed = overlay.seal().unwrap();
    undo_file.record_changes(&overlay, &changed).unwrap();
    undo_file.sync(&store).unwrap();
    drop(undo_file);
    store.write_at(20_000 * 1024, &[b'a'; 1024]).unwrap();
    assert!(undo(&file, &store, UndoOptions::default()).is_err());
    undo(&file, &store, UndoOptions { force: true }).unwrap();
    assert!(store.to_vec() == before);
}

#[test]
fn damage_is_found_before_anything_is_written() {
    let store = made(1024);
    let (file, undo_file) = begin(1024);
    change(&store, undo_file, b'a', &[20_000, 25_000, 30_000]);
    let changed = store.to_vec();
    let length = file.metadata().unwrap().len();
    for at in [0, 9, 600 + 1024 * 2, length - 1] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[!byte[0]], at).unwrap();
        let refused = undo(&file, &store, UndoOptions { force: true });
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "byte {at}: {refused:?}");
        file.write_all_at(&byte, at).unwrap();
    }
    file.set_len(length - 1).unwrap();
    assert!(undo(&file, &store, UndoOptions { force: true }).is_err());
    assert!(store.to_vec() == changed);
}
