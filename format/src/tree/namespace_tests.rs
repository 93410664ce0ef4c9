//! Names, links and freeing on an empty filesystem in memory.

use std::sync::Arc;

use super::*;
use crate::create::{self, InodeCount, Plan};
use crate::store::MemoryStore;
use crate::tree::group;
use crate::txn::{Overlay, OverlayOptions};

fn filesystem() -> Overlay {
    let mut parameters = create::tests::ext4(20_000, 1024);
    parameters.inodes = InodeCount::AtLeast(2000);
    let plan = Plan::new(&parameters).unwrap();
    let store = Arc::new(MemoryStore::new(20_000 << 10));
    create::create_filesystem(store, &plan, &parameters, OverlayOptions::default()).unwrap()
}

fn new() -> NewInode {
    NewInode {
        permissions: 0o4755,
        uid: 70_000,
        gid: 4_012_300,
        time: Timestamp { seconds: 1_700_000_000, nanoseconds: 5 },
        generation: 9,
    }
}

#[test]
fn every_kind_is_created_and_found_again() {
    let mut txn = filesystem();
    let mut root = inode::read(&txn, InodeNumber::ROOT).unwrap();
    for (name, kind) in [
        ("file", NewKind::Regular),
        ("folder", NewKind::Directory),
        ("link", NewKind::Symlink(b"folder")),
        ("null", NewKind::CharacterDevice(1, 3)),
        ("disk", NewKind::BlockDevice(259, 70_000)),
        ("pipe", NewKind::Fifo),
        ("socket", NewKind::Socket),
    ] {
        let made = create(&mut txn, &mut root, name.as_bytes(), kind, new()).unwrap();
        let found = resolve(&txn, InodeNumber::ROOT, name.as_bytes()).unwrap();
        assert_eq!(made, found);
        assert_eq!(found.view().kind(), Some(kind.kind()));
        assert_eq!((found.view().uid(), found.view().gid()), (70_000, 4_012_300));
        assert_eq!(found.view().modification_time(), new().time);
        let again = create(&mut txn, &mut root, name.as_bytes(), kind, new());
        assert!(matches!(again, Err(Error::AlreadyExists(_))));
    }
    assert_eq!(root.view().links(), 4, "lost+found and folder");
    let disk = resolve(&txn, InodeNumber::ROOT, b"/disk").unwrap();
    assert_eq!(disk.view().device(), (259, 70_000));
}

#[test]
fn what_is_made_and_taken_away_leaves_nothing() {
    let mut txn = filesystem();
    let before = group::read_superblock(&txn).unwrap();
    let mut root = inode::read(&txn, InodeNumber::ROOT).unwrap();
    let mut folder = create(&mut txn, &mut root, b"folder", NewKind::Directory, new()).unwrap();
    let mut inner = create(&mut txn, &mut folder, b"inner", NewKind::Regular, new()).unwrap();
    file::write(&mut txn, &mut inner, 5000, &[1; 9000]).unwrap();
    inode::write(&mut txn, &inner).unwrap();
    link(&mut txn, &mut root, b"second", &mut inner, new().time).unwrap();
    create(&mut txn, &mut folder, b"far", NewKind::Symlink(&[b'x'; 200]), new()).unwrap();

    assert!(matches!(rmdir(&mut txn, &mut root, b"folder", new().time), Err(Error::NotEmpty(_))));
    assert!(matches!(unlink(&mut txn, &mut root, b"folder", new().time), Err(Error::IsADirectory(_))));
    assert!(matches!(rmdir(&mut txn, &mut root, b"second", new().time), Err(Error::NotADirectory(_))));
    unlink(&mut txn, &mut folder, b"inner", new().time).unwrap();
    assert_eq!(resolve(&txn, InodeNumber::ROOT, b"second").unwrap().view().links(), 1);
    unlink(&mut txn, &mut root, b"second", new().time).unwrap();
    unlink(&mut txn, &mut folder, b"far", new().time).unwrap();
    rmdir(&mut txn, &mut root, b"folder", new().time).unwrap();

    let after = group::read_superblock(&txn).unwrap();
    assert_eq!(after.free_blocks_count(), before.free_blocks_count());
    assert_eq!(after.s_free_inodes_count, before.s_free_inodes_count);
    assert_eq!(root.view().links(), 3);
    let deleted = inode::read(&txn, inner.number()).unwrap();
    assert_eq!((deleted.view().links(), deleted.view().deletion_time()), (0, 1_700_000_000));
}

#[test]
fn links_and_subdirectories_end_at_the_formats_limits() {
    let mut txn = filesystem();
    let mut root = inode::read(&txn, InodeNumber::ROOT).unwrap();
    let mut target = create(&mut txn, &mut root, b"file", NewKind::Regular, new()).unwrap();
    target.set_links(MAX_LINKS);
    let refused = link(&mut txn, &mut root, b"more", &mut target, new().time);
    assert!(matches!(refused, Err(Error::TooManyLinks(_))));
    root.set_links(64_999);
    add_subdirectory(&txn, &mut root).unwrap();
    assert_eq!(root.view().links(), 1, "too many to count");
    add_subdirectory(&txn, &mut root).unwrap();
    assert_eq!(root.view().links(), 1);
}
