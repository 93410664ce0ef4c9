//! Damage with checksums put right.
//!
//! A flipped byte alone only ever tests the checksum check. Here an edit goes through a transaction that is told
//! what the block is, so that every checksum fits the wrong contents. To damage a checksum itself, write to
//! the finished store.
//!
//! ```
//! # use ext4kit_testkit::{damage::Damage, fixture};
//! # use ext4kit_format::InodeNumber;
//! let image = fixture::load("images/small-ext4.img.zst");
//! let damaged = Damage::to(&image).inode(InodeNumber::ROOT, |inode| inode.set_links(77)).finish();
//! ```

use std::sync::Arc;

use ext4kit_format::bytes::span_mut;
use ext4kit_format::disk::group_desc::GroupDescriptor;
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::image::{Image, OpenOptions};
use ext4kit_format::store::{MemoryStore, Store};
use ext4kit_format::tree::{group, inode};
use ext4kit_format::txn::{self, BlockKind, Overlay, OverlayOptions, Transaction};
use ext4kit_format::{BlockNumber, GroupNumber, InodeNumber, Result};

/// Edits on their way into a copy of an image. What cannot be done panics: a test's damage has to be what it says.
pub struct Damage {
    store: Arc<MemoryStore>,
    overlay: Overlay,
}

impl Damage {
    /// Starts on a copy of an image, whose superblock must be usable.
    pub fn to(image: &MemoryStore) -> Self {
        let store = Arc::new(image.clone());
        let options = OpenOptions { verify: false, allow_short: true, ..OpenOptions::default() };
        let opened = done("opening", Image::open_with(Arc::clone(&store) as Arc<dyn Store>, options));
        // Earlier damage must not keep later damage from being done.
        let overlay = opened.overlay(OverlayOptions { verify: false, ..OverlayOptions::default() });
        Self { store, overlay }
    }

    /// The transaction, for edits through the trees.
    pub fn transaction(&mut self) -> &mut Overlay {
        &mut self.overlay
    }

    /// Edits the bytes of a block that is of this kind.
    #[must_use]
    pub fn block(mut self, at: BlockNumber, kind: BlockKind, edit: impl FnOnce(&mut [u8])) -> Self {
        done("block", txn::modify(&mut self.overlay, at, kind, edit));
        self
    }

    /// Edits the primary superblock.
    #[must_use]
    pub fn superblock(mut self, edit: impl FnOnce(&mut Superblock)) -> Self {
        done("superblock", group::update_superblock(&mut self.overlay, edit));
        self
    }

    /// Edits the primary descriptor of a group.
    #[must_use]
    pub fn descriptor(mut self, number: GroupNumber, edit: impl FnOnce(&mut GroupDescriptor)) -> Self {
        done("descriptor", group::update_descriptor(&mut self.overlay, number, edit));
        self
    }

    /// Edits an inode.
    #[must_use]
    pub fn inode(mut self, number: InodeNumber, edit: impl FnOnce(&mut Inode)) -> Self {
        let mut changed = done("inode", inode::read_unverified(&self.overlay, number));
        edit(&mut changed);
        done("inode", inode::write_over(&mut self.overlay, &changed));
        self
    }

    /// Edits the bytes of an inode's slot, for what the inode's own methods do not let through.
    #[must_use]
    pub fn inode_slot(self, number: InodeNumber, edit: impl FnOnce(&mut [u8])) -> Self {
        let size = ext4kit_format::num::index(self.overlay.layout().geometry.inode_size());
        let (block, offset) = done("inode", inode::locate(&self.overlay, number));
        self.block(block, BlockKind::Inode(number), |bytes| {
            edit(span_mut(bytes, offset, size).expect("a slot lies in its block"));
        })
    }

    /// Puts the checksums right and gives the damaged image.
    pub fn finish(self) -> MemoryStore {
        done("sealing", self.try_finish())
    }

    /// The same for damage that may leave no place for a checksum.
    pub fn try_finish(mut self) -> Result<MemoryStore> {
        for at in self.overlay.seal()? {
            let change = self.overlay.change(at)?.expect("a sealed block was changed");
            let offset = self.overlay.layout().geometry.byte_offset(at).expect("a changed block has a place");
            self.store.write_at(offset, &change.after).expect("memory takes writes");
        }
        Ok(MemoryStore::clone(&self.store))
    }
}

fn done<T>(what: &str, result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("damage, {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture, oracle};

    fn small() -> MemoryStore {
        fixture::load("images/small-ext4.img.zst")
    }

    fn findings(store: &MemoryStore) -> Option<String> {
        let run = oracle::e2fsck(store)?;
        assert_eq!(run.code, 4, "{run:?}");
        assert!(!run.stdout.contains("checksum"), "a checksum was left wrong:\n{}", run.stdout);
        Some(run.stdout)
    }

    #[test]
    fn without_edits_nothing_changes() {
        assert!(Damage::to(&small()).finish().to_vec() == small().to_vec());
    }

    #[test]
    fn e2fsck_finds_the_damage_and_no_checksum_errors() {
        let damage = || Damage::to(&small());
        let damaged = damage().inode(InodeNumber::ROOT, |inode| inode.set_links(77)).finish();
        if let Some(text) = findings(&damaged) {
            assert!(text.contains("Inode 2 ref count is 77, should be 4."), "{text}");
        }
        let damaged = damage().inode_slot(InodeNumber::ROOT, |slot| slot[0x1a] = 78).finish();
        if let Some(text) = findings(&damaged) {
            assert!(text.contains("Inode 2 ref count is 78, should be 4."), "{text}");
        }
        let damaged = damage().descriptor(GroupNumber(0), |group| group.free_clusters += 1).finish();
        if let Some(text) = findings(&damaged) {
            assert!(text.contains("Free blocks count wrong for group #0"), "{text}");
        }
        // The last block of the filesystem is free.
        let image = damage();
        let layout = image.overlay.layout();
        let bitmap = done("descriptor", group::read_descriptor(&image.overlay, GroupNumber(0))).block_bitmap;
        let last = layout.geometry.blocks_count() - 1;
        let (group, bit) = layout.geometry.bit_of(BlockNumber(last)).unwrap();
        let byte = ext4kit_format::num::index(bit / 8);
        let set = |bytes: &mut [u8]| bytes[byte] |= 1 << (bit % 8);
        let damaged = image.block(bitmap, BlockKind::BlockBitmap(group), set).finish();
        if let Some(text) = findings(&damaged) {
            assert!(text.contains(&format!("Block bitmap differences:  -{last}")), "{text}");
        }
    }

    #[test]
    fn a_superblock_edit_keeps_its_checksum() {
        let damaged =
            Damage::to(&small()).superblock(|superblock| superblock.set_free_blocks_count(1)).finish();
        let opened = Image::open(Arc::new(damaged)).unwrap();
        assert_eq!(opened.superblock().free_blocks_count(), 1);
    }
}
