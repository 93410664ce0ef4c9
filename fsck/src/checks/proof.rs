//! What a checksum proves beyond being wrong: which bit it is, or that a node is whole but for its header.
//!
//! What is proven is corrected and read on; e2fsck would clear it, and what hangs from it.

use std::sync::OnceLock;

use ext4kit_format::InodeNumber;
use ext4kit_format::bytes::{le16, le32, put_le16};
use ext4kit_format::disk::dirent;
use ext4kit_format::disk::extent::{self, block_capacity};
use ext4kit_format::disk::inode::InodeView;
use ext4kit_format::disk::one_bit::{Bit, OneBit};
use ext4kit_format::disk::xattr;
use ext4kit_format::num::low32;

/// Where `i_generation` lies in an inode: it is part of the checksum's seed as well.
const GENERATION: std::ops::Range<usize> = 0x64..0x68;

/// The differences that single bits make: the same for every filesystem, and made when the first is asked for.
pub fn table() -> &'static OneBit {
    static TABLE: OnceLock<OneBit> = OnceLock::new();
    // No message is longer than a block of 64 KiB and what is put before it.
    TABLE.get_or_init(|| OneBit::new((1 << 16) + 64))
}

/// The bit that is wrong in an inode whose checksum is. A checksum of 16 bits proves nothing.
pub fn inode(view: InodeView<'_>, seed: u32, number: InodeNumber) -> Option<Bit> {
    if !view.has_checksum_high() {
        return None;
    }
    let (stored, computed) = (view.stored_checksum(), view.computed_checksum(seed, number));
    let right = |bit: &Bit| {
        let mut slot = view.bytes().to_vec();
        bit.flip(&mut slot);
        InodeView::new(&slot).is_ok_and(|view| view.verify_checksum(seed, number).is_ok())
    };
    let generation = || GENERATION.flat_map(|byte| (0..8).map(move |bit| Bit { byte, bit }));
    table().find(view.bytes().len(), stored, computed).filter(right).or_else(|| generation().find(right))
}

/// The bit that is wrong in a directory's leaf whose checksum is.
pub fn leaf(block: &[u8], seed: u32) -> Option<Bit> {
    let tail = dirent::tail_offset(block)?;
    let stored = le32(block, tail.saturating_add(8))?;
    table().find(tail, stored, dirent::checksum(block, seed))
}

/// The bit that is wrong in a block of attributes whose checksum is.
pub fn attributes(block: &[u8], seed: u32, at: ext4kit_format::BlockNumber) -> Option<Bit> {
    let stored = xattr::header(block).ok()?.h_checksum.get();
    let found = table().find(block.len(), stored, xattr::checksum(block, seed, at))?;
    let mut fixed = block.to_vec();
    found.flip(&mut fixed);
    xattr::verify_checksum(&fixed, seed, at).is_ok().then_some(found)
}

/// A node of an extent tree as it was: its header put right, or one bit, so that the checksum fits.
pub fn node(block: &[u8], depth: u16, seed: u32) -> Option<Vec<u8>> {
    let right = |bytes: &[u8]| extent::verify_checksum(bytes, seed).is_ok();
    let capacity = block_capacity(low32(ext4kit_format::num::wide(block.len())));
    let mut fixed = block.to_vec();
    put_le16(&mut fixed, 0, extent::MAGIC)?;
    put_le16(&mut fixed, 4, capacity)?;
    put_le16(&mut fixed, 6, depth)?;
    if right(&fixed) {
        return Some(fixed);
    }
    let tail = 12usize.saturating_add(usize::from(capacity).saturating_mul(12));
    let stored = le32(&fixed, tail)?;
    let computed = ext4kit_format::disk::crc::crc32c(seed, fixed.get(..tail)?);
    if let Some(bit) = table().find(tail, stored, computed) {
        bit.flip(&mut fixed);
        return right(&fixed).then_some(fixed);
    }
    let entries = le16(&fixed, 2)?;
    for count in 1..=capacity {
        put_le16(&mut fixed, 2, count)?;
        if count != entries && right(&fixed) {
            return Some(fixed);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use ext4kit_format::LogicalBlock;
    use ext4kit_format::disk::extent::{Extent, ExtentLeaf, NodeMut};

    fn sound_node() -> Vec<u8> {
        let mut block = vec![0; 1024];
        let mut node = NodeMut::create(&mut block, 0).unwrap();
        for at in 0..20u32 {
            let physical = ext4kit_format::BlockNumber(u64::from(at) * 3 + 100);
            let extent = Extent { logical: LogicalBlock(at * 2), physical, length: 1, unwritten: false };
            node.insert(usize::try_from(at).unwrap(), &ExtentLeaf::new(extent).unwrap()).unwrap();
        }
        extent::refresh_checksum(&mut block, 77).unwrap();
        block
    }

    #[test]
    fn headers_and_single_bits_of_nodes_are_put_right_by_their_checksum() {
        let sound = sound_node();
        let damages: [(usize, u8); 6] = [(0, 0xff), (2, 3), (4, 20), (6, 4), (14, 0x80), (30, 1)];
        for (at, value) in damages {
            let mut damaged = sound.clone();
            damaged[at] ^= value;
            if at >= 12 {
                assert!(value.is_power_of_two(), "of the contents one bit is put right");
            }
            assert!(node(&damaged, 0, 77).as_ref() == Some(&sound), "byte {at}");
        }
        let mut damaged = sound.clone();
        damaged[20] ^= 3;
        assert_eq!(node(&damaged, 0, 77), None);
    }
}
