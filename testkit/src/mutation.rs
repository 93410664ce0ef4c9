//! Seeded damage to any structure of a filesystem, with its checksum put right or left wrong.
//!
//! A mutant is a few edits, each to one structure that was found by walking the sound image: superblock, descriptor,
//! bitmap, inode, node of a map, block of a directory, block of attributes, journal superblock.

use std::ops::Range;

use ext4kit_format::disk::inode::InodeFlags;
use ext4kit_format::image::Image;
use ext4kit_format::num::index;
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::{dir, group, inode, map};
use ext4kit_format::txn::{BlockKind, OverlayOptions, Transaction};
use ext4kit_format::{BlockNumber, InodeNumber, LogicalBlock};
use std::sync::Arc;

use crate::damage::Damage;

/// A structure that can be damaged: its block, what it is, and which bytes of the block are its.
#[derive(Clone, Debug)]
pub struct Target {
    /// The block.
    pub at: BlockNumber,
    /// What it is.
    pub kind: BlockKind,
    /// The bytes that are the structure's.
    pub bytes: Range<usize>,
}

/// Every structure of a sound image, by what it is, so that rare ones are hit as often as common ones.
pub fn targets(image: &MemoryStore) -> Vec<Vec<Target>> {
    let opened = Image::open(Arc::new(image.clone()) as Arc<dyn Store>).expect("a sound image");
    let txn = opened.overlay(OverlayOptions::default());
    let geometry = txn.layout().geometry.clone();
    let whole = 0..geometry.block_length();
    let mut classes: Vec<Vec<Target>> = vec![Vec::new(); 7];
    let mut add = |class: usize, at, kind, bytes: Range<usize>| {
        classes[class].push(Target { at, kind, bytes });
    };
    let start = geometry.superblock_offset();
    add(0, geometry.superblock_block(), BlockKind::Superblock, start..start + 1024);
    for number in geometry.groups() {
        let (at, offset) = geometry.descriptor_slot(number);
        let size = index(geometry.descriptor_size());
        add(1, at, BlockKind::Descriptor(number), offset..offset + size);
        let descriptor = group::read_descriptor(&txn, number).unwrap();
        add(2, descriptor.block_bitmap, BlockKind::BlockBitmap(number), whole.clone());
        add(2, descriptor.inode_bitmap, BlockKind::InodeBitmap(number), whole.clone());
    }
    for number in (1..=geometry.inodes_count()).filter_map(InodeNumber::new) {
        let Ok(file) = inode::read(&txn, number) else { continue };
        if file.view().links() == 0 {
            continue;
        }
        let (at, offset) = inode::locate(&txn, number).unwrap();
        add(3, at, BlockKind::Inode(number), offset..offset + index(geometry.inode_size()));
        let attributes = file.view().attribute_block();
        if attributes.0 != 0 {
            add(6, attributes, BlockKind::Attributes, whole.clone());
        }
        if file.view().flags().contains(InodeFlags::INLINE_DATA) || number == InodeNumber::RESIZE {
            continue;
        }
        let node = if map::uses_extents(&file) {
            BlockKind::ExtentNode(file.owner())
        } else {
            BlockKind::IndirectBlock(number)
        };
        let mapped = file.view().is_directory() || file.view().mode() & 0xf000 == 0x8000;
        for block in if mapped { map::own_blocks(&txn, &file).unwrap() } else { Vec::new() } {
            add(4, block, node, whole.clone());
        }
        if file.view().is_directory() {
            for logical in
                (0..dir::block_count(&txn, &file)).map(|at| LogicalBlock(u32::try_from(at).unwrap()))
            {
                let Some(run) = map::lookup(&txn, &file, logical).unwrap().run() else { continue };
                let is_node = file.view().flags().contains(InodeFlags::INDEX) && logical.0 == 0;
                let kind = if is_node {
                    BlockKind::DirectoryIndex(file.owner(), logical)
                } else {
                    BlockKind::DirectoryLeaf(file.owner(), logical)
                };
                add(5, run.start, kind, whole.clone());
            }
        }
    }
    classes.retain(|class| !class.is_empty());
    classes
}

/// A damaged copy of an image, and what was done to it.
pub fn mutant(
    random: &mut fastrand::Rng,
    image: &MemoryStore,
    targets: &[Vec<Target>],
) -> (MemoryStore, String) {
    let mut damage = Damage::to(image);
    let mut broken: Vec<Target> = Vec::new();
    let mut told = Vec::new();
    for _ in 0..random.usize(1..5) {
        let class = &targets[random.usize(..targets.len())];
        let target = class[random.usize(..class.len())].clone();
        told.push(format!("{}", target.kind.place(target.at)));
        if random.u8(..4) == 0 {
            broken.push(target);
        } else {
            let edit = |bytes: &mut [u8]| edit(random, &mut bytes[target.bytes.clone()]);
            damage = damage.block(target.at, target.kind, edit);
        }
    }
    // Damage that left no place for a checksum is not done; the rest of the mutant is.
    let damaged = damage.try_finish().unwrap_or_else(|_| image.clone());
    let size = u64::from(
        Image::open(Arc::new(image.clone()) as Arc<dyn Store>).unwrap().layout().geometry.block_size(),
    );
    for target in broken {
        let mut bytes = vec![0; target.bytes.len()];
        let offset = target.at.0 * size + target.bytes.start as u64;
        damaged.read_at(offset, &mut bytes).unwrap();
        edit(random, &mut bytes);
        damaged.write_at(offset, &bytes).unwrap();
    }
    (damaged, told.join(", "))
}

/// One edit of a structure's bytes, mostly where it holds something.
fn edit(random: &mut fastrand::Rng, bytes: &mut [u8]) {
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let at = if used.is_empty() || random.u8(..4) == 0 {
        random.usize(..bytes.len())
    } else {
        used[random.usize(..used.len())]
    };
    match random.u8(..6) {
        0 | 1 => bytes[at] ^= 1 << random.u8(..8),
        2 => bytes[at] = random.u8(..),
        3 => {
            let word = [0, 1, u32::MAX, 0x7fff_ffff, random.u32(..2048), random.u32(..)][random.usize(..6)];
            let at = (at & !3).min(bytes.len() - 4);
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        4 => {
            let from = random.usize(..bytes.len()) & !3;
            let length = random.usize(4..64).min(bytes.len() - from.max(at & !3));
            bytes.copy_within(from..from + length, at & !3);
        }
        _ => {
            let end = (at + random.usize(1..256)).min(bytes.len());
            bytes[at..end].fill(0);
        }
    }
}

/// Where the metadata of the image lies that is worth damaging: blocks that are not all zero.
pub fn used_blocks(image: &MemoryStore) -> Vec<u64> {
    let bytes = image.to_vec();
    let blocks = bytes.chunks(1024).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0));
    blocks.map(|(at, _)| at as u64 * 1024).collect()
}

/// Damages an image anywhere in these blocks, a few times, checksums left as they are.
pub fn scribble(random: &mut fastrand::Rng, image: &MemoryStore, blocks: &[u64]) {
    for _ in 0..random.usize(1..6) {
        let block = blocks[random.usize(..blocks.len())];
        let at = block + random.u64(..1024);
        match random.u8(..4) {
            0 => {
                let mut byte = [0];
                image.read_at(at, &mut byte).unwrap();
                image.write_at(at, &[byte[0] ^ (1 << random.u8(..8))]).unwrap();
            }
            1 => image.write_at(at, &[random.u8(..)]).unwrap(),
            2 => {
                let word = [0, 1, u32::MAX, 0x7fff_ffff, random.u32(..)][random.usize(..5)];
                let at = (at & !3).min(image.size() - 4);
                image.write_at(at, &word.to_le_bytes()).unwrap();
            }
            _ => {
                let other = blocks[random.usize(..blocks.len())];
                let mut copy = [0; 64];
                image.read_at(other, &mut copy).unwrap();
                image.write_at((at & !63).min(image.size() - 64), &copy).unwrap();
            }
        }
    }
}
