//! What hurt people who check filesystems, each with its neighbours, as small images.

mod calls;

use std::sync::Arc;
use std::time::Instant;

use calls::fsck;
use ext4kit_format::disk::inode::{Inode, InodeFlags};
use ext4kit_format::image::Image;
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::{dir, file, inode, map};
use ext4kit_format::txn::{BlockKind, Overlay, Transaction};
use ext4kit_format::{BlockNumber, InodeNumber, LogicalBlock};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{filesystem, oracle};

/// A filesystem with what `fill` puts into it, clean by e2fsck's word.
fn made(changes: &str, fill: impl FnOnce(&mut Overlay)) -> MemoryStore {
    let (store, mut overlay) = filesystem::filesystem(&filesystem::parameters(40_960, 1024, changes));
    fill(&mut overlay);
    filesystem::commit_clean(&store, &mut overlay);
    MemoryStore::clone(&store)
}

fn first_block(store: &MemoryStore, number: InodeNumber) -> BlockNumber {
    let mut damage = Damage::to(store);
    let inode = inode::read(damage.transaction(), number).unwrap();
    map::lookup(damage.transaction(), &inode, LogicalBlock(0)).unwrap().run().unwrap().start
}

fn named(store: &MemoryStore, name: &str) -> InodeNumber {
    let mut damage = Damage::to(store);
    let root = inode::read(damage.transaction(), InodeNumber::ROOT).unwrap();
    dir::lookup(damage.transaction(), &root, name.as_bytes()).unwrap().unwrap().inode
}

/// A check tells errors and writes nothing; a repair leaves none; another one writes nothing. Gives what the repair said.
fn settles(what: &str, damaged: &MemoryStore) -> (TempImage, String) {
    let image = TempImage::of(damaged).unwrap();
    let before = std::fs::read(image.path()).unwrap();
    let (code, out, errors) = fsck(&["-fn"], &image);
    assert_eq!(code, 4, "{what}: {out}{errors}");
    assert!(before == std::fs::read(image.path()).unwrap(), "{what}");
    let (code, out, errors) = fsck(&["-fy"], &image);
    assert_eq!(code, 1, "{what}: {out}{errors}");
    let repaired = std::fs::read(image.path()).unwrap();
    let (code, again, _) = fsck(&["-fy"], &image);
    assert_eq!(code, 0, "{what}: {again}");
    assert!(repaired == std::fs::read(image.path()).unwrap(), "{what}");
    oracle::assert_clean(&image.load().unwrap());
    (image, out)
}

/// 23: the block of a directory is gone. Preening gives up, a repair makes do.
#[test]
fn directories_whose_block_is_gone() {
    let sound = made("", |txn| {
        let mut folder = filesystem::fresh(txn, 0o040_755);
        dir::create(txn, &mut folder, InodeNumber::ROOT).unwrap();
        filesystem::put_in_root(txn, "folder", &folder);
    });
    for name in ["lost+found", "folder"] {
        for fill in [0, 0xff, 0x5a] {
            let what = format!("{name} of {fill:#x}");
            let damaged = sound.clone();
            damaged.write_at(first_block(&sound, named(&sound, name)).0 * 1024, &[fill; 1024]).unwrap();
            let image = TempImage::of(&damaged).unwrap();
            let (code, out, _) = fsck(&["-fp"], &image);
            assert_eq!(code, 4, "{what}");
            assert!(out.contains("UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY."), "{what}: {out}");
            settles(&what, &damaged);
        }
    }
}

/// 30: an inline directory says in its own way who its parent is.
#[test]
fn inline_directories_with_large_directories_allowed() {
    let store = made("inline_data large_dir", |txn| {
        let mut folder = filesystem::fresh(txn, 0o040_755);
        assert!(dir::create_inline(txn, &mut folder, InodeNumber::ROOT).unwrap());
        filesystem::put_in_root(txn, "aa", &folder);
    });
    assert_eq!(fsck(&["-fn"], &TempImage::of(&store).unwrap()).0, 0);
}

/// 32: somebody who does not know of indexes wrote a name where it is never looked for.
#[test]
fn names_in_the_wrong_leaf_of_an_index() {
    let sound = made("", |txn| {
        for at in 0..200 {
            let made = filesystem::fresh(txn, 0o100_644);
            filesystem::put_in_root(txn, &format!("a file with a name that is not short {at}"), &made);
        }
    });
    let root = |store: &MemoryStore| {
        let mut damage = Damage::to(store);
        let root = inode::read(damage.transaction(), InodeNumber::ROOT).unwrap();
        map::segments(damage.transaction(), &root, LogicalBlock(0))
            .flat_map(|segment| segment.unwrap().run().unwrap().iter().collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let blocks = root(&sound);
    assert!(blocks.len() > 4);
    // The contents of two leaves change places: every name is there, and in the wrong one.
    let mut damage = Damage::to(&sound);
    let owner = inode::read(damage.transaction(), InodeNumber::ROOT).unwrap().owner();
    let kind = |at| BlockKind::DirectoryLeaf(owner, LogicalBlock(at));
    let [one, two] =
        [2, 3].map(|at| damage.transaction().read(blocks[at], BlockKind::Plain).unwrap().to_vec());
    let damage = damage.block(blocks[2], kind(2), |bytes| bytes[..1012].copy_from_slice(&two[..1012])).block(
        blocks[3],
        kind(3),
        |bytes| bytes[..1012].copy_from_slice(&one[..1012]),
    );
    let (image, out) = settles("two leaves", &damage.finish());
    assert!(!out.contains("loses data"), "{out}");
    let after = image.load().unwrap();
    for at in 0..200 {
        named(&after, &format!("a file with a name that is not short {at}"));
    }
    // Its neighbour: the sum of a descriptor is stale.
    let damaged = sound.clone();
    let table = Image::open(Arc::new(sound.clone())).unwrap().layout().geometry.superblock_block().0 + 1;
    damaged.write_at(table * 1024 + 64 + 0x1e, &[0x12, 0x34]).unwrap();
    settles("stale sum", &damaged);
}

/// 34: damaged copies are told, and made anew, though nothing else is wrong.
#[test]
fn damaged_copies_of_superblock_and_descriptors() {
    let sound = made("", |_| {});
    for (what, at, length) in [("superblock", 8193 * 1024 + 0x78, 2), ("descriptors", 8194 * 1024, 1024)] {
        let damaged = sound.clone();
        damaged.write_at(at, &vec![0xa5; length]).unwrap();
        let image = TempImage::of(&damaged).unwrap();
        let (code, out, _) = fsck(&["-fn"], &image);
        assert_eq!(code, 0, "{what}");
        assert!(out.contains("[129]"), "{what}: {out}");
        assert!(fsck(&["-fy"], &image).0 <= 1, "{what}");
        let mut bytes = vec![0; length];
        image.load().unwrap().read_at(at, &mut bytes).unwrap();
        assert_ne!(bytes, vec![0xa5; length], "{what}");
        assert!(!fsck(&["-fn"], &image).1.contains("[129]"), "{what}");
    }
}

/// 38: a size that no device has, with its checksum right. Nobody believes it, nor allocates by it.
#[test]
fn sizes_that_no_device_has() {
    let sound = made("", |_| {});
    for high in [0x0100, 0x8000_0000, 0xffff_ffff] {
        let damaged = Damage::to(&sound).superblock(|to| to.s_blocks_count_hi.set(high)).finish();
        settles(&format!("{high:#x}"), &damaged);
    }
}

/// A file of so many separate blocks.
fn scattered(txn: &mut Overlay, count: u32) -> Inode {
    let mut made = filesystem::fresh(txn, 0o100_644);
    for at in 0..count {
        file::write(txn, &mut made, u64::from(at) * 2048, &[7; 1024]).unwrap();
    }
    made
}

/// 39: extent trees that lead to themselves, and roots that have forgotten everything.
#[test]
fn extent_trees_in_circles_and_without_entries() {
    let mut number = None;
    let sound = made("", |txn| {
        let made = scattered(txn, 200);
        number = Some(made.number());
        filesystem::put_in_root(txn, "scattered", &made);
    });
    let number = number.unwrap();
    let mut damage = Damage::to(&sound);
    let whole = inode::read(damage.transaction(), number).unwrap();
    let nodes = map::own_blocks(damage.transaction(), &whole).unwrap();
    assert!(!nodes.is_empty());
    // The first node becomes an index that leads to itself.
    let node = nodes[0];
    let circle = Damage::to(&sound).block(node, BlockKind::ExtentNode(whole.owner()), |bytes| {
        bytes[2..4].copy_from_slice(&1u16.to_le_bytes());
        bytes[6..8].copy_from_slice(&1u16.to_le_bytes());
        bytes[12..24].fill(0);
        bytes[16..20].copy_from_slice(&u32::try_from(node.0).unwrap().to_le_bytes());
    });
    let deeper =
        |depth: u16| move |inode: &mut Inode| inode.map_mut()[6..8].copy_from_slice(&depth.to_le_bytes());
    settles("a circle", &circle.inode(number, deeper(2)).finish());
    settles("too deep", &Damage::to(&sound).inode(number, deeper(6)).finish());
    let none = Damage::to(&sound)
        .inode(number, |inode| inode.map_mut()[2..4].copy_from_slice(&0u16.to_le_bytes()))
        .finish();
    let (_, out) = settles("no entries", &none);
    assert!(out.contains("(/scattered)"), "{out}");
}

/// 41: one file's map is copied to another: each gets its own blocks, in time that grows with their number.
#[test]
fn files_that_share_all_their_blocks() {
    let mut times = Vec::new();
    for blocks in [200u32, 6000] {
        let mut numbers = Vec::new();
        let sound = made("^metadata_csum", |txn| {
            for name in ["a", "b"] {
                let mut made = filesystem::fresh(txn, 0o100_644);
                if name == "a" {
                    let bytes: Vec<u8> = (0..blocks * 1024).map(|at| (at / 1024 % 250) as u8).collect();
                    file::write(txn, &mut made, 0, &bytes).unwrap();
                }
                numbers.push(made.number());
                filesystem::put_in_root(txn, name, &made);
            }
        });
        let mut damage = Damage::to(&sound);
        let first = inode::read(damage.transaction(), numbers[0]).unwrap();
        assert!(map::own_blocks(damage.transaction(), &first).unwrap().is_empty());
        let (map, size) = (*first.view().map(), first.view().size());
        let sectors = inode::sectors(damage.transaction(), first.view());
        let damaged = damage
            .inode(numbers[1], |inode| {
                *inode.map_mut() = map;
                inode.set_size(size);
            })
            .inode_slot(numbers[1], |bytes| {
                bytes[0x1c..0x20].copy_from_slice(&u32::try_from(sectors).unwrap().to_le_bytes());
            })
            .finish();
        let begun = Instant::now();
        let (image, out) = settles(&format!("{blocks} blocks"), &damaged);
        times.push(begun.elapsed());
        assert!(!out.contains("loses data"), "{out}");
        let mut after = Damage::to(&image.load().unwrap());
        let contents = |damage: &mut Damage, number| {
            let txn = damage.transaction();
            let inode = inode::read(txn, number).unwrap();
            let mut bytes = Vec::new();
            for segment in map::segments(txn, &inode, LogicalBlock(0)) {
                for block in segment.unwrap().run().unwrap().iter() {
                    let mut one = vec![0; 1024];
                    txn.read_data(block, &mut one).unwrap();
                    bytes.extend(one);
                }
            }
            bytes
        };
        let one = contents(&mut after, numbers[0]);
        assert_eq!(one.len(), blocks as usize * 1024);
        assert!(one == contents(&mut after, numbers[1]));
    }
    // Thirty times the blocks take nowhere near nine hundred times as long.
    assert!(times[1] < times[0] * 200, "{times:?}");
}

/// 44: how many inodes there are is wrong, and the kernel would not mount it.
#[test]
fn numbers_of_inodes_that_do_not_add_up() {
    let sound = made("^metadata_csum", |_| {});
    let right = Image::open(Arc::new(sound.clone())).unwrap().superblock().s_inodes_count.get();
    for wrong in [4000, right + 8, right - 8, 1] {
        let damaged = Damage::to(&sound).superblock(|to| to.s_inodes_count.set(wrong)).finish();
        let (image, _) = settles(&format!("{wrong} of {right}"), &damaged);
        let after = Image::open(Arc::new(image.load().unwrap())).unwrap();
        assert_eq!(after.superblock().s_inodes_count.get(), right);
    }
}

/// A file or link with an attribute that is too large for anything but an inode of its own.
fn with_large_value(txn: &mut Overlay, name: &str, mut made: Inode) -> InodeNumber {
    use ext4kit_format::disk::timestamp::Timestamp;
    use ext4kit_format::tree::xattr::{self, Change};
    let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    inode::write_over(txn, &made).unwrap();
    xattr::set(txn, &mut made, b"trusted.big", &vec![0x42; 20_000], &mut Change::at(time)).unwrap();
    assert!(inode::sectors(txn, made.view()) >= 40);
    filesystem::put_in_root(txn, name, &made);
    made.number()
}

/// 27: the inode of an attribute's value outlives the file that had the attribute.
#[test]
fn values_whose_file_is_gone() {
    let mut number = None;
    let sound = made("ea_inode", |txn| {
        let made = filesystem::fresh(txn, 0o100_644);
        number = Some(with_large_value(txn, "file", made));
    });
    // The file's inode is all zeros, as after a lost write.
    settles(
        "the file is gone",
        &Damage::to(&sound).inode_slot(number.unwrap(), |bytes| bytes.fill(0)).finish(),
    );
}

/// 29: a link whose target lies in its inode stays one, however many blocks its attributes take. e2fsck before 1.47.1 sees
/// block numbers in the target, so that it is not asked.
#[test]
fn fast_links_with_large_values() {
    let (store, mut overlay) = filesystem::filesystem(&filesystem::parameters(40_960, 1024, "ea_inode"));
    let mut link = filesystem::fresh(&mut overlay, 0o120_777);
    link.set_flags(InodeFlags::empty());
    link.map_mut().fill(0);
    file::write_symlink(&mut overlay, &mut link, b"/target", false).unwrap();
    with_large_value(&mut overlay, "link", link);
    filesystem::commit(&mut overlay);
    let image = TempImage::of(&*store).unwrap();
    let (code, out, _) = fsck(&["-fn"], &image);
    assert_eq!(code, 0, "{out}");
}
