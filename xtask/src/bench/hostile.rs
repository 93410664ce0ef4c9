//! Filesystems that make a check work: each family in sizes that double, to see how time grows.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use ext4kit_format::disk::dirent;
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::image::Image;
use ext4kit_format::store::{Access, Store, open};
use ext4kit_format::tree::{inode, map};
use ext4kit_format::txn::{self, BlockKind, Overlay, OverlayOptions, Transaction};
use ext4kit_format::{InodeNumber, LogicalBlock};

use super::synthetic::Tree;

/// A kind of filesystem, made in any size.
pub struct Family {
    /// What it is called.
    pub name: &'static str,
    /// Makes it, so many times larger than its smallest.
    pub make: fn(&Path, u32) -> Result<()>,
}

/// All families.
pub const FAMILIES: [Family; 8] = [
    Family { name: "one directory", make: |path, scale| tree(1, 100_000, 0, scale).make(path) },
    Family { name: "many directories", make: many_directories },
    Family { name: "fragmented file", make: fragmented_file },
    Family { name: "value inodes", make: value_inodes },
    Family { name: "equal names", make: equal_names },
    Family { name: "shared blocks", make: shared_blocks },
    Family { name: "shared nodes", make: shared_nodes },
    Family { name: "second names", make: second_names },
];

/// The first file of the first directory: the root's, `lost+found` and the directory come before it.
const FIRST_FILE: u32 = 13;

fn tree(directories: u64, files: u64, extents: u64, scale: u32) -> Tree {
    Tree { directories, files: files * u64::from(scale), extents, ..Tree::default() }
}

fn many_directories(path: &Path, scale: u32) -> Result<()> {
    Tree { directories: 20_000 * u64::from(scale), ..Tree::default() }.make(path)
}

fn fragmented_file(path: &Path, scale: u32) -> Result<()> {
    Tree { directories: 1, files: 1, extents: 500_000 * u64::from(scale), ..Tree::default() }.make(path)
}

/// Files that each have an attribute whose value lies in an inode of its own.
fn value_inodes(path: &Path, scale: u32) -> Result<()> {
    Tree { value_bytes: 5000, ..tree(1, 10_000, 0, scale) }.make(path)
}

/// A directory in which every name is the same.
fn equal_names(path: &Path, scale: u32) -> Result<()> {
    tree(1, 10_000, 0, scale).make(path)?;
    edit(path, |overlay| {
        let directory = inode::read(overlay, number(FIRST_FILE - 1)?)?;
        let blocks = directory.view().size() / u64::from(overlay.layout().geometry.block_size());
        for logical in 1..u32::try_from(blocks)? {
            let logical = LogicalBlock(logical);
            let Some(run) = map::lookup(overlay, &directory, logical)?.run() else { continue };
            let kind = BlockKind::DirectoryLeaf(directory.owner(), logical);
            txn::modify(overlay, run.start, kind, |bytes| {
                if dirent::tail_offset(bytes).is_some() {
                    rename_all(bytes);
                }
            })?;
        }
        Ok(())
    })
}

/// Gives every name in a leaf the same digits.
fn rename_all(leaf: &mut [u8]) {
    let mut at = 0;
    while at + 16 < leaf.len() {
        let length = usize::from(u16::from_le_bytes([leaf[at + 4], leaf[at + 5]]));
        let name = usize::from(leaf[at + 6]);
        if name > 5 {
            leaf[at + 13..at + 8 + name].fill(b'0');
        }
        at += length.max(12);
    }
}

/// Files that all map the same blocks.
fn shared_blocks(path: &Path, scale: u32) -> Result<()> {
    same_maps(path, tree(1, 10_000, 3, scale))
}

/// Files that all have the same extent tree.
fn shared_nodes(path: &Path, scale: u32) -> Result<()> {
    same_maps(path, Tree { extents_of_first: 300, ..tree(1, 10_000, 1, scale) })
}

/// Gives every file the map of the first.
fn same_maps(path: &Path, tree: Tree) -> Result<()> {
    tree.make(path)?;
    edit(path, |overlay| {
        let first = inode::read(overlay, number(FIRST_FILE)?)?;
        for at in 1..u32::try_from(tree.files)? {
            let mut file = inode::read(overlay, number(FIRST_FILE + at)?)?;
            take_map(&mut file, &first)?;
            inode::write_over(overlay, &file)?;
        }
        Ok(())
    })
}

fn take_map(file: &mut Inode, from: &Inode) -> Result<()> {
    *file.map_mut() = *from.view().map();
    file.set_size(from.view().size());
    Ok(file.set_blocks_raw(from.view().blocks_raw())?)
}

/// Directories that all take the block of the first for their own, so that it names everything again and again.
fn second_names(path: &Path, scale: u32) -> Result<()> {
    many_directories(path, scale)?;
    edit(path, |overlay| {
        let root = inode::read(overlay, InodeNumber::ROOT)?;
        for at in 0..10_000 * scale {
            let mut directory = inode::read(overlay, number(FIRST_FILE - 1 + at)?)?;
            take_map(&mut directory, &root)?;
            inode::write_over(overlay, &directory)?;
        }
        Ok(())
    })
}

fn number(number: u32) -> Result<InodeNumber> {
    InodeNumber::new(number).context("inode 0")
}

/// Edits an image, and puts every checksum right.
fn edit(path: &Path, edit: impl FnOnce(&mut Overlay) -> Result<()>) -> Result<()> {
    let store = open(path, Access::ReadWrite, false)?;
    let image = Image::open(Arc::clone(&store))?;
    let mut overlay = image.overlay(OverlayOptions { verify: false, ..OverlayOptions::default() });
    edit(&mut overlay)?;
    for at in overlay.seal()? {
        let change = overlay.change(at)?.context("a sealed block was changed")?;
        let offset = overlay.layout().geometry.byte_offset(at).context("a changed block has a place")?;
        store.write_at(offset, &change.after)?;
    }
    store.flush()?;
    Ok(())
}
