//! Oddities: none in what our mkfs, mke2fs and a kernel make, and each found where it was put, alone.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ext4kit_format::disk::dirent::FileType;
use ext4kit_format::disk::group_desc::GroupFlags;
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::image::Image;
use ext4kit_format::journal::open_internal;
use ext4kit_format::store::MemoryStore;
use ext4kit_format::tree::{dir, group, inode, map};
use ext4kit_format::txn::BlockKind;
use ext4kit_format::{BlockNumber, GroupNumber, InodeNumber, LogicalBlock};
use ext4kit_fsck::{Options, lint, opening};
use ext4kit_testkit::damage::Damage;
use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{filesystem, fixture, oracle, skip};

/// The codes of all oddities.
fn lints(image: &MemoryStore) -> Vec<u16> {
    let opened = opening::open(Arc::new(image.clone()), &Options::default()).unwrap();
    let mut found = Vec::new();
    lint::lint(&opened, &mut |finding| found.push(finding.code()));
    found
}

fn base() -> MemoryStore {
    filesystem::ext4(16_384, 1024)
}

fn has(code: u16, image: &MemoryStore) {
    assert_eq!(lints(image), [code]);
}

#[test]
fn what_tools_make_is_without_oddities() {
    for image in [base(), filesystem::ext4(32_768, 4096), fixture::load("images/small-ext4.img.zst")] {
        assert_eq!(lints(&image), [0u16; 0]);
    }
    for kind in ["ext2", "ext3", "ext4"] {
        for size in ["1024", "4096"] {
            let Some(image) = oracle::mke2fs(64 << 20, &["-t", kind, "-b", size]) else { return };
            assert_eq!(lints(&image), [0u16; 0], "{kind} {size}");
        }
    }
}

/// Two filesystems that a kernel filled and unmounted cleanly.
#[test]
fn what_a_kernel_makes_is_without_oddities() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/kernel-images");
    for name in ["K1", "K2"] {
        let path = folder.join(format!("{name}.img.zst"));
        if !path.exists() {
            skip::missing("there are no images of kernels beside the repository");
            return;
        }
        let output = Command::new("zstd").arg("-dcq").arg(path).output().expect("zstd is installed");
        assert_eq!(lints(&MemoryStore::from_bytes(&output.stdout)), [0u16; 0], "{name}");
    }
}

#[test]
fn copies_of_the_superblock() {
    let copy = |at: usize| {
        Damage::to(&base()).block(BlockNumber(8193), BlockKind::Plain, |block| block[at] = 7).finish()
    };
    has(1101, &copy(0x78));
    has(1102, &copy(0x5a));
}

#[test]
fn fields_of_the_superblock() {
    has(1103, &Damage::to(&base()).superblock(|superblock| superblock.s_overhead_clusters.set(99)).finish());
    // A count of 0 is one that was never made.
    let none = Damage::to(&base()).superblock(|superblock| superblock.s_overhead_clusters.set(0)).finish();
    assert_eq!(lints(&none), [0u16; 0]);
    has(1104, &Damage::to(&base()).superblock(|superblock| superblock.s_reserved[5].set(1)).finish());
}

#[test]
fn the_superblock_of_the_journal() {
    let image = filesystem::ext4(40_000, 1024);
    let journal = |at: usize, value: u32| {
        let opened = Image::open(Arc::new(image.clone())).unwrap();
        let blocks = open_internal(&opened).unwrap().journal;
        let block = blocks.blocks().locate(blocks.blocks().superblock_block()).unwrap();
        let write = |bytes: &mut [u8]| bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        Damage::to(&image).block(block, BlockKind::Plain, write).finish()
    };
    has(1105, &journal(4, 3));
    has(1106, &journal(0x20, 5));
    has(1107, &journal(0x10, 1024));
}

#[test]
fn descriptors() {
    let image = base();
    let reserved = |bytes: &mut [u8]| bytes[0x3c] = 1;
    let kind = BlockKind::Descriptor(GroupNumber(0));
    has(1111, &Damage::to(&image).block(BlockNumber(2), kind, reserved).finish());
    let mut damage = Damage::to(&image);
    let flags = group::read_descriptor(damage.transaction(), GroupNumber(1)).unwrap().flags;
    assert!(flags.contains(GroupFlags::INODE_UNINIT), "{flags:?}");
    has(1112, &damage.descriptor(GroupNumber(1), |group| group.unused_inodes -= 1).finish());
}

/// A byte in an inode that was never used.
#[test]
fn a_table_that_is_not_zeroed() {
    let mut damage =
        Damage::to(&base()).descriptor(GroupNumber(0), |group| group.flags |= GroupFlags::INODE_ZEROED);
    let descriptor = group::read_descriptor(damage.transaction(), GroupNumber(0)).unwrap();
    assert!(descriptor.unused_inodes > 16);
    let table = descriptor.inode_table;
    let image = damage.block(BlockNumber(table.0 + 10), BlockKind::Plain, |block| block[300] = 1).finish();
    has(1113, &image);
}

fn number(number: u32) -> InodeNumber {
    InodeNumber::new(number).unwrap()
}

#[test]
fn free_inodes() {
    let free = |edit: fn(&mut Inode)| {
        Damage::to(&base())
            .descriptor(GroupNumber(0), |group| group.unused_inodes = 0)
            .inode(number(20), edit)
            .finish()
    };
    has(1121, &free(|inode| inode.set_links(1)));
    has(1121, &free(|inode| inode.set_mode(0o100_644)));
    let deleted = |inode: &mut Inode| {
        inode.set_mode(0o100_644);
        inode.set_deletion_time(5);
    };
    let rest = free(|inode| {
        inode.set_mode(0o100_644);
        inode.set_deletion_time(5);
        inode.set_blocks_raw(8).unwrap();
    });
    has(1122, &rest);
    let image = Damage::to(&base())
        .descriptor(GroupNumber(0), |group| group.unused_inodes = 0)
        .inode(number(20), deleted)
        .finish();
    assert_eq!(lints(&image), [0u16; 0], "what a kernel leaves of a deleted file");
}

#[test]
fn fields_and_extents_of_inodes() {
    has(
        1123,
        &Damage::to(&base()).inode(InodeNumber::ROOT, |inode| inode.head_mut().i_reserved.set(1)).finish(),
    );
    // One extent of lost+found cut in two.
    let cut = |inode: &mut Inode| {
        let map = inode.map_mut();
        let word = |map: &[u8], at: usize| u32::from_le_bytes(map[at..at + 4].try_into().unwrap());
        let (length, start) = (u16::from_le_bytes([map[16], map[17]]), word(map, 20));
        assert!(length > 1);
        map[2] = 2;
        map[16..18].copy_from_slice(&1u16.to_le_bytes());
        map[24..28].copy_from_slice(&1u32.to_le_bytes());
        map[28..30].copy_from_slice(&(length - 1).to_le_bytes());
        map[32..36].copy_from_slice(&(start + 1).to_le_bytes());
    };
    has(1124, &Damage::to(&base()).inode(number(11), cut).finish());
}

/// A filesystem whose root has a hash tree of one level.
fn indexed() -> MemoryStore {
    let (store, mut overlay) = filesystem::filesystem(&filesystem::parameters(16_384, 1024, ""));
    let mut root = inode::read(&overlay, InodeNumber::ROOT).unwrap();
    for name in 0..200 {
        let mut file = filesystem::fresh(&mut overlay, 0o100_644);
        file.set_links(1);
        inode::write_over(&mut overlay, &file).unwrap();
        let name = format!("a name that takes some room, and its number is {name}");
        dir::insert(&mut overlay, &mut root, name.as_bytes(), file.number(), FileType::REGULAR).unwrap();
    }
    inode::write(&mut overlay, &root).unwrap();
    filesystem::commit_clean(&store, &mut overlay);
    MemoryStore::clone(&store)
}

/// Edits a block of the root directory.
fn root_block(image: &MemoryStore, logical: u32, index: bool, edit: impl FnOnce(&mut [u8])) -> MemoryStore {
    let mut damage = Damage::to(image);
    let root = inode::read(damage.transaction(), InodeNumber::ROOT).unwrap();
    let block = map::lookup(damage.transaction(), &root, LogicalBlock(logical)).unwrap().run().unwrap().start;
    let kind = if index {
        BlockKind::DirectoryIndex(root.owner(), LogicalBlock(logical))
    } else {
        BlockKind::DirectoryLeaf(root.owner(), LogicalBlock(logical))
    };
    damage.block(block, kind, edit).finish()
}

#[test]
fn hash_trees() {
    let image = indexed();
    assert_eq!(lints(&image), [0u16; 0]);
    let empty = |block: &mut [u8]| {
        block[..4].fill(0);
        let length = u16::try_from(block.len() - 12).unwrap();
        block[4..6].copy_from_slice(&length.to_le_bytes());
    };
    has(1131, &root_block(&image, 3, false, empty));
    has(1133, &root_block(&image, 0, true, |block| block[31] = 2));
    // Leaf 3 becomes an inner node that takes over all that the root names but itself, and the root names it alone.
    let mut children = Vec::new();
    let above = root_block(&image, 0, true, |block| {
        let count = usize::from(u16::from_le_bytes([block[34], block[35]]));
        for place in 0..count {
            let at = 32 + 8 * place;
            let child = u32::from_le_bytes(block[at + 4..at + 8].try_into().unwrap());
            let hash = u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
            children.extend((child != 3).then_some((hash, child)));
        }
        block[30] = 1;
        block[34..36].copy_from_slice(&1u16.to_le_bytes());
        block[36..40].copy_from_slice(&3u32.to_le_bytes());
    });
    let node = |block: &mut [u8]| {
        block.fill(0);
        block[4..6].copy_from_slice(&1024u16.to_le_bytes());
        for (place, (hash, child)) in children.iter().enumerate() {
            let at = 8 + 8 * place;
            block[at..at + 4].copy_from_slice(&hash.to_le_bytes());
            block[at + 4..at + 8].copy_from_slice(&child.to_le_bytes());
        }
        let count = u16::try_from(children.len()).unwrap();
        block[8..10].copy_from_slice(&126u16.to_le_bytes());
        block[10..12].copy_from_slice(&count.to_le_bytes());
    };
    let narrow = root_block(&above, 3, true, node);
    has(1132, &narrow);
    let tail = root_block(&narrow, 3, true, |block| block[1016] = 1);
    assert_eq!(lints(&tail), [1134, 1132]);
}

fn fsck(options: &[&str], image: &TempImage) -> (i32, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_ext4kit-fsck")).args(options).arg(image.path()).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// Its own bit, nothing without the option, and nothing written.
#[test]
fn the_program_tells_of_oddities_when_asked() {
    let odd = Damage::to(&base()).superblock(|superblock| superblock.s_overhead_clusters.set(99)).finish();
    let image = TempImage::of(&odd).unwrap();
    let before = std::fs::read(image.path()).unwrap();
    let (code, text) = fsck(&["-n", "--lint"], &image);
    assert_eq!(code, 64, "{text}");
    assert!(text.contains("superblock: s_overhead_clusters is 99, the metadata takes "), "{text}");
    let (code, text) = fsck(&["-n", "--lint", "--json"], &image);
    assert_eq!(code, 64);
    assert!(text.contains(r#""code":1103,"grade":"note""#) && text.contains(r#""exit_code":64"#), "{text}");
    let (code, text) = fsck(&["-fy"], &image);
    assert_eq!(code, 0, "{text}");
    assert!(before == std::fs::read(image.path()).unwrap());
    let (code, text) = fsck(&["-n", "--lint"], &TempImage::of(&base()).unwrap());
    assert_eq!(code, 0, "{text}");
    // Where errors are left there is nothing to say about oddities.
    let worse = Damage::to(&odd).inode(InodeNumber::ROOT, |inode| inode.set_mode(0)).finish();
    let (code, text) = fsck(&["--policy", "safe", "--lint"], &TempImage::of(&worse).unwrap());
    assert_eq!(code & 64, 0, "{text}");
    assert!(text.contains("errors are left, so that nothing is said about oddities"), "{text}");
}

/// Free totals of the superblock are wrong after every crash, and right again after a check.
#[test]
fn wrong_totals_are_oddities() {
    let wrong = Damage::to(&base()).superblock(|superblock| superblock.set_free_blocks_count(1)).finish();
    let image = TempImage::of(&wrong).unwrap();
    assert_eq!(fsck(&["-n", "--lint"], &image).0, 64);
    assert_eq!(fsck(&["-y", "--lint"], &image).0 & 64, 0);
    assert_eq!(fsck(&["-n", "--lint"], &image).0, 0);
}
