//! The one place where checksums of metadata are verified on the way in and put right on the way out.
//!
//! Which checksum a block carries follows from its [`BlockKind`]. Kinds of three sorts:
//! - the checksum lies in the block itself (extent nodes, directories, attributes …): verified and refreshed here;
//! - many records in a block, each with its own (inodes, descriptors): verified by whoever reads the record, and
//!   refreshed here for those records that were changed;
//! - the checksum lies in another block (bitmaps): carried to the group's descriptor before the blocks are sealed.

use super::{Block, BlockKind, Overlay, Owner, Transaction};
use crate::Result;
use crate::bytes::span;
use crate::disk::group_desc::{self, GroupDescriptor, GroupFlags};
use crate::disk::{bitmap, dirent, extent, htree, inode, mmp, orphan, superblock, xattr};
use crate::error::Defect;
use crate::ids::{BlockNumber, GroupNumber, InodeNumber};
use crate::layout::Layout;
use crate::num::{index, wide};
use crate::tree::group;

/// Which records of a block were changed, one bit each, by their place in the block.
#[derive(Clone, Debug, Default)]
pub(super) struct Records(Vec<u64>);

impl Records {
    /// Notes the record that a kind names, if it names one of many.
    pub(super) fn add(&mut self, layout: &Layout, kind: BlockKind) {
        let Some(place) = record_place(layout, kind) else { return };
        let word = index(place / 64);
        if self.0.len() <= word {
            self.0.resize(word.saturating_add(1), 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= 1 << (place % 64);
        }
    }

    /// Whether the record that a kind names was noted.
    pub(super) fn contains(&self, layout: &Layout, kind: BlockKind) -> bool {
        record_place(layout, kind)
            .and_then(|place| Some(self.0.get(index(place / 64))? >> (place % 64) & 1 == 1))
            .unwrap_or(false)
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            (0..64)
                .filter(move |bit| bits >> bit & 1 == 1)
                .map(move |bit| word.saturating_mul(64).saturating_add(bit))
        })
    }
}

/// A record's place among those of its block; `None` for a kind that means the whole block.
fn record_place(layout: &Layout, kind: BlockKind) -> Option<u32> {
    let geometry = &layout.geometry;
    match kind {
        BlockKind::Inode(inode) => {
            let (_, place) = geometry.inode_place(inode)?;
            Some(place & geometry.inodes_per_block().saturating_sub(1))
        }
        BlockKind::Descriptor(group) => Some(group.0 & geometry.descriptors_per_block().saturating_sub(1)),
        _ => None,
    }
}

/// Whether a kind names one of many records of a block, each with its own checksum.
pub(super) fn is_one_of_many(kind: BlockKind) -> bool {
    matches!(kind, BlockKind::Inode(_) | BlockKind::Descriptor(_))
}

/// Whether what a kind names was changed in a changed block: the record, or the block as a whole.
pub(super) fn is_changed(layout: &Layout, kind: BlockKind, records: &Records) -> bool {
    record_place(layout, kind).is_none() || records.contains(layout, kind)
}

/// The bytes of the record that a kind names, within its block; the whole block for other kinds.
fn record<'a>(layout: &Layout, kind: BlockKind, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let size = match kind {
        BlockKind::Inode(_) => layout.geometry.inode_size(),
        BlockKind::Descriptor(_) => layout.geometry.descriptor_size(),
        _ => return Some(bytes),
    };
    let place = record_place(layout, kind)?;
    span(bytes, index(place).saturating_mul(index(size)), index(size))
}

/// Verifies the checksum of what a kind names: the block, or one record of it.
pub(super) fn verify(txn: &dyn Transaction, at: BlockNumber, kind: BlockKind, bytes: &[u8]) -> Result<()> {
    let layout = txn.layout();
    let verified = match kind {
        BlockKind::Descriptor(group) => record(layout, kind, bytes)
            .map_or(Ok(()), |descriptor| layout.descriptor_checksum.verify(group, descriptor)),
        BlockKind::Inode(inode) => verify_inode(layout, inode, record(layout, kind, bytes)),
        BlockKind::BlockBitmap(group) | BlockKind::InodeBitmap(group) => {
            let descriptor = group::read_descriptor(txn, group)?;
            verify_bitmap(layout, &descriptor, kind, bytes)
        }
        BlockKind::ExtentNode(owner) => with_seed(layout, owner, |seed| extent::verify_checksum(bytes, seed)),
        BlockKind::DirectoryLeaf(owner, _) => {
            with_seed(layout, owner, |seed| dirent::verify_checksum(bytes, seed))
        }
        BlockKind::DirectoryIndex(owner, _) => {
            with_seed(layout, owner, |seed| htree::verify_checksum(bytes, seed))
        }
        BlockKind::Orphan(owner) => with_seed(layout, owner, |seed| orphan::verify_checksum(bytes, seed, at)),
        BlockKind::Attributes => {
            layout.checksum_seed.map_or(Ok(()), |seed| xattr::verify_checksum(bytes, seed, at))
        }
        BlockKind::Mmp => layout.checksum_seed.map_or(Ok(()), |seed| mmp::verify_checksum(bytes, seed)),
        _ => Ok(()),
    };
    verified.map_err(|defect| defect.at(kind.place(at)))
}

fn verify_inode(layout: &Layout, inode: InodeNumber, slot: Option<&[u8]>) -> Result<(), Defect> {
    let (Some(seed), Some(slot)) = (layout.checksum_seed, slot) else { return Ok(()) };
    inode::InodeView::new(slot)?.verify_checksum(seed, inode)
}

/// Does something with the seed of an owner's checksums, where metadata has checksums.
fn with_seed(
    layout: &Layout,
    owner: Owner,
    action: impl FnOnce(u32) -> Result<(), Defect>,
) -> Result<(), Defect> {
    layout.inode_seed(owner).map_or(Ok(()), action)
}

/// Puts right the checksums that a block carries in itself.
pub(super) fn refresh(
    layout: &Layout,
    at: BlockNumber,
    kind: BlockKind,
    records: &Records,
    bytes: &mut [u8],
) -> Result<()> {
    let refreshed = match kind {
        BlockKind::Superblock => refresh_superblock(layout, bytes),
        BlockKind::Descriptor(group) => {
            refresh_descriptors(layout, group, records, bytes);
            Ok(())
        }
        BlockKind::Inode(inode) => {
            refresh_inodes(layout, inode, records, bytes);
            Ok(())
        }
        BlockKind::ExtentNode(owner) => {
            with_seed(layout, owner, |seed| extent::refresh_checksum(bytes, seed))
        }
        BlockKind::DirectoryLeaf(owner, _) => {
            with_seed(layout, owner, |seed| dirent::refresh_checksum(bytes, seed))
        }
        BlockKind::DirectoryIndex(owner, _) => {
            with_seed(layout, owner, |seed| htree::refresh_checksum(bytes, seed))
        }
        BlockKind::Orphan(owner) => {
            with_seed(layout, owner, |seed| orphan::refresh_checksum(bytes, seed, at))
        }
        BlockKind::Attributes => {
            layout.checksum_seed.map_or(Ok(()), |seed| xattr::refresh_checksum(bytes, seed, at))
        }
        BlockKind::Mmp => layout.checksum_seed.map_or(Ok(()), |seed| mmp::refresh_checksum(bytes, seed)),
        _ => Ok(()),
    };
    refreshed.map_err(|defect| defect.at(kind.place(at)))
}

fn refresh_superblock(layout: &Layout, bytes: &mut [u8]) -> Result<(), Defect> {
    let truncated = Defect::Truncated { what: "superblock" };
    let offset = layout.geometry.superblock_offset();
    let area = bytes.get_mut(offset..).ok_or(truncated)?;
    let mut superblock = superblock::Superblock::parse(area)?;
    superblock.refresh_checksum();
    zerocopy::IntoBytes::write_to_prefix(&superblock, area)
        .map_err(|_| Defect::Truncated { what: "superblock" })
}

fn refresh_descriptors(layout: &Layout, group: GroupNumber, records: &Records, bytes: &mut [u8]) {
    let size = index(layout.geometry.descriptor_size());
    let first = group.0 & !layout.geometry.descriptors_per_block().saturating_sub(1);
    for place in records.iter() {
        let start = place.saturating_mul(size);
        let number = u64::from(first).saturating_add(wide(place));
        if let Some(descriptor) = crate::bytes::span_mut(bytes, start, size) {
            layout.descriptor_checksum.refresh(GroupNumber(crate::num::low32(number)), descriptor);
        }
    }
}

fn refresh_inodes(layout: &Layout, inode: InodeNumber, records: &Records, bytes: &mut [u8]) {
    let Some(seed) = layout.checksum_seed else { return };
    let size = index(layout.geometry.inode_size());
    let Some((group, place)) = layout.geometry.inode_place(inode) else { return };
    let first = place & !layout.geometry.inodes_per_block().saturating_sub(1);
    for place in records.iter() {
        let start = place.saturating_mul(size);
        let number = u64::from(first).saturating_add(wide(place));
        if let Some(slot) = crate::bytes::span_mut(bytes, start, size)
            && let Some(number) = layout.geometry.inode_at(group, crate::num::low32(number))
        {
            inode::refresh_checksum(slot, seed, number);
        }
    }
}

/// Carries the checksum of a changed bitmap to its group's descriptor.
pub(super) fn store_bitmap_checksum(
    overlay: &mut Overlay,
    group: GroupNumber,
    kind: BlockKind,
    bitmap: &Block,
) -> Result<()> {
    let Some(seed) = overlay.layout().checksum_seed else { return Ok(()) };
    let geometry = &overlay.layout().geometry;
    if matches!(kind, BlockKind::BlockBitmap(_)) {
        let checksum = bitmap::checksum(bitmap, geometry.clusters_per_group(), seed);
        group::update_descriptor(overlay, group, |descriptor| descriptor.block_bitmap_checksum = checksum)
    } else {
        let checksum = bitmap::checksum(bitmap, geometry.inodes_per_group(), seed);
        group::update_descriptor(overlay, group, |descriptor| descriptor.inode_bitmap_checksum = checksum)
    }
}

/// Checks a bitmap against the checksum in its group's descriptor. A bitmap that was never written has none.
fn verify_bitmap(
    layout: &Layout,
    descriptor: &GroupDescriptor,
    kind: BlockKind,
    bitmap: &[u8],
) -> Result<(), Defect> {
    let Some(seed) = layout.checksum_seed else { return Ok(()) };
    let (stored, bits, unwritten) = match kind {
        BlockKind::BlockBitmap(_) => {
            (descriptor.block_bitmap_checksum, layout.geometry.clusters_per_group(), GroupFlags::BLOCK_UNINIT)
        }
        _ => (descriptor.inode_bitmap_checksum, layout.geometry.inodes_per_group(), GroupFlags::INODE_UNINIT),
    };
    if descriptor.flags.contains(unwritten) {
        return Ok(());
    }
    let whole = bitmap::checksum(bitmap, bits, seed);
    let short = index(layout.geometry.descriptor_size()) < group_desc::FULL_SIZE;
    let computed = if short { whole & 0xffff } else { whole };
    if stored == computed { Ok(()) } else { Err(Defect::Checksum { stored, computed }) }
}
