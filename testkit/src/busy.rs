//! Filesystems with a little of everything in them: what damage can hit.

use ext4kit_format::create::Parameters;
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::store::MemoryStore;
use ext4kit_format::tree::namespace::{self, NewInode, NewKind};
use ext4kit_format::tree::{dir, file, inode, xattr};
use ext4kit_format::txn::Overlay;
use ext4kit_format::{Error, InodeNumber};

use crate::filesystem::{self, TIME};

/// A filesystem with directories of every shape, files with long and short maps, links, devices and attributes, which
/// e2fsck calls clean.
pub fn busy(parameters: &Parameters) -> MemoryStore {
    let (store, mut overlay) = filesystem::filesystem(parameters);
    fill(&mut overlay);
    filesystem::commit_clean(&store, &mut overlay);
    MemoryStore::clone(&store)
}

/// A dozen kinds of filesystems, by the features that tell them apart: size in blocks, block size, changes to the
/// features of ext4.
pub const KINDS: [(&str, u64, u32, &str); 14] = [
    ("ext4 of 1 KiB", 4096, 1024, ""),
    ("ext4 of 4 KiB", 2048, 4096, ""),
    ("ext4 of 2 KiB, no checksums", 3072, 2048, "^metadata_csum"),
    (
        "ext2",
        4096,
        1024,
        "^has_journal ^extent ^64bit ^flex_bg ^metadata_csum ^huge_file ^dir_nlink ^extra_isize",
    ),
    ("ext3", 8192, 1024, "^extent ^64bit ^flex_bg ^metadata_csum ^huge_file ^dir_nlink ^extra_isize"),
    ("uninit_bg", 20480, 1024, "^metadata_csum uninit_bg ^flex_bg"),
    ("bigalloc", 8192, 1024, "bigalloc"),
    ("inline_data", 4096, 1024, "inline_data"),
    ("ea_inode", 4096, 1024, "ea_inode"),
    ("meta_bg", 20480, 1024, "meta_bg ^resize_inode"),
    ("sparse_super2", 20480, 1024, "sparse_super2 ^sparse_super ^resize_inode"),
    ("orphan_file", 8192, 1024, "orphan_file metadata_csum_seed"),
    ("no index, no types", 4096, 1024, "^dir_index ^filetype"),
    ("32-bit, several groups", 20480, 1024, "^64bit ^flex_bg"),
];

fn new(permissions: u16) -> NewInode {
    NewInode { permissions, time: TIME, generation: 0x1234_5678, ..NewInode::default() }
}

fn create(txn: &mut Overlay, parent: &mut Inode, name: &str, kind: NewKind<'_>) -> Inode {
    namespace::create(txn, parent, name.as_bytes(), kind, new(0o644)).unwrap()
}

fn write(txn: &mut Overlay, file: &mut Inode, offset: u64, bytes: &[u8]) {
    file::write(txn, file, offset, bytes).unwrap();
    inode::write(txn, file).unwrap();
}

fn fill(txn: &mut Overlay) {
    let mut root = inode::read(txn, InodeNumber::ROOT).unwrap();
    let block = u64::from(ext4kit_format::txn::Transaction::layout(txn).geometry.block_size());
    let mut deep = create(txn, &mut root, "a", NewKind::Directory);
    for name in ["b", "c", "d"] {
        let mut text = create(txn, &mut deep, "text", NewKind::Regular);
        write(txn, &mut text, 0, b"a file of a line\n");
        deep = create(txn, &mut deep, name, NewKind::Directory);
    }
    let mut many = create(txn, &mut root, "many", NewKind::Directory);
    for number in 0..150 {
        let mut file = create(txn, &mut many, &format!("name-of-a-file-{number:04}"), NewKind::Regular);
        write(txn, &mut file, 0, format!("contents of {number}").as_bytes());
    }
    let mut sparse = create(txn, &mut root, "sparse", NewKind::Regular);
    for at in [0u64, 40, 41, 42, 300, 5000] {
        write(txn, &mut sparse, at * block, &[at.to_le_bytes()[0]; 700]);
    }
    // Two files written in turns lie in pieces.
    let mut one = create(txn, &mut root, "one", NewKind::Regular);
    let mut two = create(txn, &mut root, "two", NewKind::Regular);
    for at in 0..60u64 {
        let (odd, even) = (at * 2 + 1, at * 2);
        write(txn, &mut one, odd * block, &vec![1; block.try_into().unwrap()]);
        write(txn, &mut two, even * block, &vec![2; block.try_into().unwrap()]);
    }
    create(txn, &mut root, "short-link", NewKind::Symlink(b"a/b/c"));
    create(txn, &mut root, "long-link", NewKind::Symlink(&[b'x'; 200]));
    create(txn, &mut root, "pipe", NewKind::Fifo);
    create(txn, &mut root, "socket", NewKind::Socket);
    create(txn, &mut root, "null", NewKind::CharacterDevice(1, 3));
    create(txn, &mut root, "disk", NewKind::BlockDevice(259, 70_000));
    namespace::link(txn, &mut root, b"again", &mut one, TIME).unwrap();
    attributes(txn, &mut root);
}

fn attributes(txn: &mut Overlay, root: &mut Inode) {
    let change = || xattr::Change::at(TIME);
    let mut small = create(txn, root, "small-attribute", NewKind::Regular);
    xattr::set(txn, &mut small, b"user.small", b"value", &mut change()).unwrap();
    inode::write(txn, &small).unwrap();
    let mut large = create(txn, root, "large-attribute", NewKind::Regular);
    xattr::set(txn, &mut large, b"user.large", &[b'v'; 400], &mut change()).unwrap();
    inode::write(txn, &large).unwrap();
    let mut huge = create(txn, root, "huge-attribute", NewKind::Regular);
    match xattr::set(txn, &mut huge, b"user.huge", &[b'h'; 9000], &mut change()) {
        // Without ea_inode there is no room for it.
        Ok(()) | Err(Error::NoSpace) => {}
        Err(error) => assert!(!error.is_corruption(), "{error}"),
    }
    inode::write(txn, &huge).unwrap();
    let mut listed = 0;
    dir::for_each(txn, root, &mut |_| {
        listed += 1;
        Ok(std::ops::ControlFlow::Continue(()))
    })
    .unwrap();
    assert!(listed > 15, "the root has {listed} names");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_can_be_filled_and_is_clean() {
        for (what, blocks, size, changes) in KINDS {
            let image = busy(&filesystem::parameters(blocks, size, changes));
            assert!(image.to_vec().len() as u64 == blocks * u64::from(size), "{what}");
        }
    }
}
