//! One damage each, with every checksum put right, and the exact list of findings.

use std::ops::ControlFlow;
use std::sync::Arc;

use ext4kit_format::disk::group_desc::GroupFlags;
use ext4kit_format::disk::inode::InodeFlags;
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::{dir, group, inode, map};
use ext4kit_format::txn::BlockKind;
use ext4kit_format::{BlockNumber, GroupNumber, InodeNumber, LogicalBlock};
use ext4kit_fsck::{Options, Summary, check};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::fixture;

fn run(store: &MemoryStore) -> (Vec<u16>, Summary) {
    let mut codes = Vec::new();
    let options = Options::default();
    let summary = check(Arc::new(store.clone()), &options, &mut |finding| codes.push(finding.code()))
        .expect("it opens");
    (codes, summary)
}

fn codes(store: &MemoryStore) -> Vec<u16> {
    run(store).0
}

fn small() -> MemoryStore {
    fixture::load("images/small-ext4.img.zst")
}

/// The number that a path of one name stands for.
fn named(store: &MemoryStore, name: &[u8]) -> InodeNumber {
    let mut damage = Damage::to(store);
    let txn = damage.transaction();
    let root = inode::read(txn, InodeNumber::ROOT).unwrap();
    dir::lookup(txn, &root, name).unwrap().unwrap_or_else(|| panic!("no {name:?}")).inode
}

/// The names in the root that stand for files of this kind.
fn first_of(store: &MemoryStore, kind: u8) -> InodeNumber {
    let mut damage = Damage::to(store);
    let txn = damage.transaction();
    let root = inode::read(txn, InodeNumber::ROOT).unwrap();
    let mut found = None;
    dir::for_each(txn, &root, &mut |listed| {
        if listed.found.file_type.0 == kind && !listed.name.starts_with(b".") && listed.name != b"lost+found"
        {
            found = found.or(Some(listed.found.inode));
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found.unwrap_or_else(|| panic!("no file of kind {kind}"))
}

/// Where the first block of a file lies.
fn first_block(store: &MemoryStore, number: InodeNumber) -> BlockNumber {
    let mut damage = Damage::to(store);
    let txn = damage.transaction();
    let file = inode::read(txn, number).unwrap();
    map::lookup(txn, &file, LogicalBlock(0)).unwrap().run().expect("it is mapped").start
}

#[test]
fn what_is_clean_gives_no_finding() {
    let (codes, summary) = run(&small());
    assert_eq!(codes, [0u16; 0]);
    assert_eq!(summary.errors, 0);
    assert!(summary.inodes_used > 11 && summary.files.directories >= 2);
}

#[test]
fn filesystems_made_here_are_clean() {
    for (blocks, size) in [(2048, 1024), (16384, 1024), (4096, 4096), (40000, 4096), (8192, 2048)] {
        assert_eq!(
            codes(&ext4kit_testkit::filesystem::ext4(blocks, size)),
            [0u16; 0],
            "{blocks} blocks of {size}"
        );
    }
}

#[test]
fn a_check_writes_nothing() {
    let damaged = Damage::to(&small()).inode(InodeNumber::ROOT, |inode| inode.set_links(77)).finish();
    let before = damaged.to_vec();
    assert_eq!(codes(&damaged), [802]);
    assert!(before == damaged.to_vec());
}

#[test]
fn counts_of_links_blocks_and_sizes() {
    let file = first_of(&small(), 1);
    let damage = || Damage::to(&small());
    let cases: [(&str, MemoryStore, &[u16]); 6] = [
        ("links", damage().inode(file, |inode| inode.set_links(3)).finish(), &[802]),
        ("blocks", damage().inode(file, |inode| inode.set_blocks_raw(9000).unwrap()).finish(), &[309]),
        (
            "deletion time",
            damage().inode(file, |inode| inode.set_deletion_time(1_700_000_000)).finish(),
            &[303],
        ),
        (
            "size of a directory",
            damage().inode(InodeNumber::ROOT, |inode| inode.set_size(17)).finish(),
            &[308],
        ),
        ("i_faddr", damage().inode(file, |inode| inode.head_mut().i_faddr.set(1)).finish(), &[315]),
        (
            "casefold on a file",
            damage()
                .inode(file, |inode| inode.set_flags(inode.view().flags() | InodeFlags::CASEFOLD))
                .finish(),
            &[317],
        ),
    ];
    for (what, image, wanted) in cases {
        assert_eq!(codes(&image), wanted, "{what}");
    }
}

/// Found by comparing with e2fsck on mutants: the largest size counts as too large, and `.` has a type as well.
#[test]
fn limits_that_e2fsck_knows() {
    let file = first_of(&small(), 1);
    let image = Damage::to(&small()).inode(file, |inode| inode.set_size(1 << 42)).finish();
    assert_eq!(codes(&image), [308], "2^32 blocks of 1 KiB");
    let image =
        Damage::to(&small()).inode(InodeNumber::RESIZE, |inode| inode.set_blocks_raw(8).unwrap()).finish();
    assert_eq!(codes(&image), [309]);
    let lost = named(&small(), b"lost+found");
    let block = first_block(&small(), lost);
    let owner = {
        let mut damage = Damage::to(&small());
        inode::read(damage.transaction(), lost).unwrap().owner()
    };
    let kind = BlockKind::DirectoryLeaf(owner, LogicalBlock(0));
    let image = Damage::to(&small()).block(block, kind, |bytes| bytes[7] = 1).finish();
    assert_eq!(codes(&image), [614]);
}

#[test]
fn summaries_and_bitmaps() {
    let damage = || Damage::to(&small());
    let zero = GroupNumber(0);
    let image = damage().descriptor(zero, |group| group.free_clusters += 1).finish();
    assert_eq!(codes(&image), [909]);
    let image = damage().descriptor(zero, |group| group.free_inodes += 1).finish();
    assert_eq!(codes(&image), [910]);
    let image = damage().descriptor(zero, |group| group.used_directories += 1).finish();
    assert_eq!(codes(&image), [911]);
    let image = damage().descriptor(zero, |group| group.flags |= GroupFlags::BLOCK_UNINIT).finish();
    assert_eq!(codes(&image), [207, 914]);
    let image = damage().superblock(|superblock| superblock.set_free_blocks_count(1)).finish();
    let (found, summary) = run(&image);
    assert_eq!((found.as_slice(), summary.errors), ([912].as_slice(), 0), "free totals are only notes");
    let mut start = damage();
    let bitmap = group::read_descriptor(start.transaction(), zero).unwrap().block_bitmap;
    let image = start.block(bitmap, BlockKind::BlockBitmap(zero), |bytes| bytes[3] ^= 0x10).finish();
    assert_eq!(codes(&image), [902]);
}

#[test]
fn directory_entries() {
    let image = small();
    let root = first_block(&image, InodeNumber::ROOT);
    let file = first_of(&image, 1);
    let owner = {
        let mut damage = Damage::to(&image);
        inode::read(damage.transaction(), InodeNumber::ROOT).unwrap().owner()
    };
    let kind = BlockKind::DirectoryLeaf(owner, LogicalBlock(0));
    let edit = |change: &dyn Fn(&mut [u8])| Damage::to(&image).block(root, kind, change).finish();
    assert_eq!(codes(&edit(&|bytes| bytes[0] = 12)), [606]);
    assert_eq!(codes(&edit(&|bytes| bytes[8] = b'x')).first(), Some(&604));
    assert_eq!(codes(&edit(&|bytes| bytes[21] = b'x')).first(), Some(&605));
    assert_eq!(codes(&edit(&|bytes| bytes[30] = 255)).first(), Some(&601));
    // The file goes, its name stays.
    let gone = Damage::to(&image).inode(file, |inode| {
        inode.set_links(0);
        inode.set_deletion_time(1_700_000_000);
    });
    let found = codes(&gone.finish());
    assert_eq!(found.first(), Some(&609), "{found:?}");
    assert!(found.contains(&901) && found.contains(&903), "{found:?}");
}

#[test]
fn what_nothing_names_is_told() {
    let image = small();
    let lost = named(&image, b"lost+found");
    let mut damage = Damage::to(&image);
    let mut root = inode::read(damage.transaction(), InodeNumber::ROOT).unwrap();
    dir::remove(damage.transaction(), &mut root, b"lost+found").unwrap();
    let found = codes(&damage.finish());
    assert_eq!(found, [702, 705], "directory {lost} is not named any more, and its `..` still counts");
}

#[test]
fn copies_of_the_superblock_are_tried() {
    let (blocks, size) = (40000u64, 1024u32);
    let store = ext4kit_testkit::filesystem::ext4(blocks, size);
    store.write_at(1024, &[0; 1024]).unwrap();
    assert_eq!(codes(&store).first(), Some(&101));
    let options = Options { backups: false, ..Options::default() };
    assert!(check(Arc::new(store), &options, &mut |_| {}).is_err());
}

#[test]
fn orphans_of_an_empty_journal_are_told() {
    let file = first_of(&small(), 1);
    let image =
        Damage::to(&small()).superblock(|superblock| superblock.s_last_orphan.set(file.get())).finish();
    assert_eq!(codes(&image), [1019]);
    let image = Damage::to(&small()).superblock(|superblock| superblock.s_last_orphan.set(3)).finish();
    assert_eq!(codes(&image), [1008]);
}

#[test]
fn wrong_checksums_alone_are_told() {
    let image = small();
    let store = image.clone();
    // The root's inode: the second slot of the table. Its checksum lies at 0x7c.
    let mut damage = Damage::to(&image);
    let (block, offset) = inode::locate(damage.transaction(), InodeNumber::ROOT).unwrap();
    let size =
        u64::from(ext4kit_format::txn::Transaction::layout(damage.transaction()).geometry.block_size());
    let at = block.0 * size + offset as u64 + 0x7c;
    let mut byte = [0];
    store.read_at(at, &mut byte).unwrap();
    store.write_at(at, &[byte[0] ^ 1]).unwrap();
    assert_eq!(codes(&store), [301]);
}
