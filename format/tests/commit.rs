//! Changes committed through the journal or a redo log, cut at every write: the image holds the old state or the new
//! one.

use std::sync::Arc;

use ext4kit_format::commit::{Through, commit, finish_interrupted};
use ext4kit_format::disk::inode::Timestamp;
use ext4kit_format::image::Image;
use ext4kit_format::journal::{JournalCommit, commit_through_journal, open_internal, recover};
use ext4kit_format::store::{Effect, Fault, FaultyOperation, MemoryStore, Recorder, Rule, Store, When};
use ext4kit_format::tree::namespace::{NewInode, NewKind};
use ext4kit_format::tree::{file, inode, namespace};
use ext4kit_format::txn::{Overlay, OverlayOptions, commit_with_redo_log};
use ext4kit_format::{InodeNumber, Result};
use ext4kit_testkit::filesystem;
use ext4kit_testkit::oracle;
use ext4kit_testkit::seed::Random;

const BLOCKS: u64 = 8192;

fn filesystem(checksums: bool, wide: bool) -> MemoryStore {
    let checksums = if checksums { "metadata_csum" } else { "^metadata_csum" };
    let wide = if wide { "64bit" } else { "^64bit" };
    let parameters = filesystem::parameters(BLOCKS, 1024, &format!("{checksums} {wide}"));
    let (store, mut overlay) = filesystem::filesystem(&parameters);
    filesystem::commit_clean(&store, &mut overlay);
    MemoryStore::clone(&store)
}

/// Creates a folder of files and commits it through the journal.
fn change(store: Arc<dyn Store>) -> Result<JournalCommit> {
    let (image, mut overlay) = changed(store)?;
    commit_through_journal(&image, &mut overlay, 1_700_000_001)
}

/// An overlay with a folder of files that the image does not have.
fn changed(store: Arc<dyn Store>) -> Result<(Image, Overlay)> {
    let image = Image::open(store)?;
    let mut overlay = image.overlay(OverlayOptions::default());
    let new = NewInode {
        permissions: 0o755,
        time: Timestamp { seconds: 1_700_000_001, nanoseconds: 0 },
        ..NewInode::default()
    };
    let mut root = inode::read(&overlay, InodeNumber::ROOT)?;
    let mut folder = namespace::create(&mut overlay, &mut root, b"folder", NewKind::Directory, new)?;
    for number in 0..30u8 {
        let name = format!("a-file-with-a-name-of-some-length-{number}");
        let mut made = namespace::create(&mut overlay, &mut folder, name.as_bytes(), NewKind::Regular, new)?;
        file::write(&mut overlay, &mut made, 0, &vec![number; 1000])?;
        inode::write(&mut overlay, &made)?;
    }
    Ok((image, overlay))
}

/// How many names the folder holds, if it is there at all; every file's contents are looked at.
fn state(store: Arc<dyn Store>) -> Option<usize> {
    let image = Image::open(store).unwrap();
    let overlay = image.overlay(OverlayOptions::default());
    let folder = namespace::resolve(&overlay, InodeNumber::ROOT, b"folder").ok()?;
    for number in 0..30u8 {
        let name = format!("a-file-with-a-name-of-some-length-{number}");
        let found = namespace::resolve(&overlay, folder.number(), name.as_bytes()).unwrap();
        assert_eq!(file::read_all(&overlay, &found, 4096).unwrap(), vec![number; 1000]);
    }
    Some(30)
}

fn recovered(store: MemoryStore) -> MemoryStore {
    let store: Arc<dyn Store> = Arc::new(store);
    let image = Image::open(Arc::clone(&store)).unwrap();
    if image.needs_recovery() {
        let journal = open_internal(&image).unwrap().journal;
        recover(store.as_ref(), &journal, None).unwrap();
    }
    MemoryStore::copy_of(store.as_ref()).unwrap()
}

#[test]
fn every_interruption_leaves_the_old_state_or_the_new_one() {
    for (checksums, wide) in [(true, true), (true, false), (false, false)] {
        let before = filesystem(checksums, wide);
        let recorder = Recorder::new(before.clone());
        let record = recorder.record();
        let done = change(Arc::new(recorder)).unwrap();
        assert!(matches!(done, JournalCommit::Done { .. }), "{done:?}");
        let mut random = Random::of("journal commit");
        let (mut old, mut new) = (0, 0);
        for count in 0..=record.len() {
            // What was not flushed may have arrived or not, in any selection.
            for round in 0..3 {
                let store = before.clone();
                let volatile = record.volatile_after(count);
                for (index, operation) in record.operations().into_iter().enumerate().take(count) {
                    if round == 0 || !volatile.contains(&index) || random.bool() {
                        operation.apply(&store).unwrap();
                    }
                }
                let found = state(Arc::new(recovered(store)));
                assert!(
                    found.is_some() || new == 0 || round > 0,
                    "what was there at write {count} is gone again"
                );
                if found.is_some() { new += 1 } else { old += 1 }
            }
        }
        assert!(old > 0 && new > 0, "{old} old and {new} new states");
    }
}

#[test]
fn others_find_nothing_wrong_with_what_was_committed() {
    for (checksums, wide) in [(true, true), (false, false)] {
        let store: Arc<dyn Store> = Arc::new(filesystem(checksums, wide));
        change(Arc::clone(&store)).unwrap();
        oracle::assert_clean(store.as_ref());
    }
}

#[test]
fn a_journal_that_is_too_small_is_not_taken() {
    let store: Arc<dyn Store> = Arc::new(filesystem(true, true));
    let image = Image::open(Arc::clone(&store)).unwrap();
    let mut overlay = image.overlay(OverlayOptions::default());
    let new = NewInode { permissions: 0o644, ..NewInode::default() };
    let mut root = inode::read(&overlay, InodeNumber::ROOT).unwrap();
    let mut made = namespace::create(&mut overlay, &mut root, b"large", NewKind::Regular, new).unwrap();
    // The overlay keeps file data among the changes, which then are more than the journal's 1024 blocks.
    file::write(&mut overlay, &mut made, 0, &vec![1; 1100 << 10]).unwrap();
    inode::write(&mut overlay, &made).unwrap();
    let before = MemoryStore::copy_of(store.as_ref()).unwrap().to_vec();
    let done = commit_through_journal(&image, &mut overlay, 0).unwrap();
    assert!(matches!(done, JournalCommit::Unfit(_)), "{done:?}");
    assert!(MemoryStore::copy_of(store.as_ref()).unwrap().to_vec() == before, "nothing was written");
}

#[test]
fn a_redo_log_is_finished_or_dropped() {
    let before = filesystem(true, true);
    let folder = tempfile::tempdir().unwrap();
    let (log, kept) = (folder.path().join("redo"), folder.path().join("kept"));
    // A store that dies at its first write leaves the log behind, whole.
    let dead = Fault::new(
        before.clone(),
        [Rule {
            operation: FaultyOperation::Write,
            when: When::Nth(1),
            effect: Effect::PowerCut { keep: 0 },
        }],
    );
    let (_, mut overlay) = changed(Arc::new(dead)).unwrap();
    assert!(commit_with_redo_log(&mut overlay, &log).is_err());
    std::fs::copy(&log, &kept).unwrap();
    let whole = std::fs::read(&kept).unwrap();

    // Cut at any length, it was never whole: the old state stays.
    let mut random = Random::of("redo log");
    for _ in 0..40 {
        std::fs::write(&log, &whole[..random.usize(..whole.len())]).unwrap();
        let store = before.clone();
        assert_eq!(finish_interrupted(&store, &log).unwrap(), 0);
        assert!(!log.exists() && store.to_vec() == before.to_vec());
    }
    // Whatever was written in place before the interruption, finishing gives the new state.
    let recorder = Recorder::new(before.clone());
    let record = recorder.record();
    let (_, mut overlay) = changed(Arc::new(recorder)).unwrap();
    let blocks = commit_with_redo_log(&mut overlay, &log).unwrap();
    assert!(blocks > 10 && !log.exists());
    for count in 0..=record.len() {
        let store = before.clone();
        record.replay_prefix(count, &store).unwrap();
        std::fs::copy(&kept, &log).unwrap();
        assert_eq!(finish_interrupted(&store, &log).unwrap(), blocks);
        assert_eq!(state(Arc::new(store)), Some(30));
    }
    // Another filesystem's log is not taken.
    std::fs::copy(&kept, &log).unwrap();
    let other = MemoryStore::new(BLOCKS << 9);
    assert!(finish_interrupted(&other, &log).is_err() && log.exists());
}

#[test]
fn a_commit_takes_the_journal_or_else_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("redo");
    let store: Arc<dyn Store> = Arc::new(filesystem(true, true));
    let (image, mut overlay) = changed(Arc::clone(&store)).unwrap();
    assert_eq!(commit(&image, &mut overlay, &log, 0).unwrap().through, Through::Journal);
    let image = Image::open(Arc::clone(&store)).unwrap();
    let mut overlay = image.overlay(OverlayOptions::default());
    let mut root = inode::read(&overlay, InodeNumber::ROOT).unwrap();
    let mut made =
        namespace::create(&mut overlay, &mut root, b"large", NewKind::Regular, NewInode::default()).unwrap();
    file::write(&mut overlay, &mut made, 0, &vec![1; 1100 << 10]).unwrap();
    inode::write(&mut overlay, &made).unwrap();
    let done = commit(&image, &mut overlay, &log, 0).unwrap();
    assert!(matches!(done.through, Through::RedoLog(_)) && !log.exists(), "{done:?}");
    oracle::assert_clean(store.as_ref());
}
