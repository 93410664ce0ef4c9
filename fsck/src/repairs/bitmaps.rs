//! Bitmaps and the counts that sum them up, written from what the check found in use.

use ext4kit_format::disk::bitmap;
use ext4kit_format::disk::group_desc::GroupFlags;
use ext4kit_format::error::{Error, Result};
use ext4kit_format::num::{index, low32};
use ext4kit_format::tree::group;
use ext4kit_format::txn::{BlockKind, Transaction, create};
use ext4kit_format::{GroupNumber, InodeNumber, Place};
use rustc_hash::FxHashSet;

use super::workshop::Workshop;
use crate::checks::context::known;
use crate::repair::Repair;

/// Groups that were written in this stage.
pub type Groups = FxHashSet<GroupNumber>;

/// Puts a problem of a bitmap or a count right. A group's bitmaps and counts are written together, once.
pub fn apply(shop: &mut Workshop<'_>, place: &Place, repair: &Repair, done: &mut Groups) -> Result<()> {
    match (place, repair) {
        (Place::Superblock, Repair::SetField { field, value }) => set_total(shop, field, *value),
        (Place::BlockBitmap(group) | Place::InodeBitmap(group) | Place::GroupDescriptor(group), _) => {
            if done.insert(*group) { rewrite_group(shop, *group) } else { Ok(()) }
        }
        _ => Err(Error::Invalid(format!("{place}: {repair} is no repair of a bitmap"))),
    }
}

fn set_total(shop: &mut Workshop<'_>, field: &str, value: u64) -> Result<()> {
    let known = matches!(field, "s_free_blocks_count" | "s_free_inodes_count");
    if !known {
        return Err(Error::Invalid(format!("superblock: {field} is no count")));
    }
    group::update_superblock(shop, |superblock| {
        if field == "s_free_blocks_count" {
            superblock.set_free_blocks_count(value);
        } else {
            superblock.s_free_inodes_count.set(low32(value));
        }
    })
}

/// Writes both bitmaps of a group and its counts.
fn rewrite_group(shop: &mut Workshop<'_>, group: GroupNumber) -> Result<()> {
    let geometry = shop.layout().geometry.clone();
    let descriptor = group::read_descriptor(shop, group)?;
    let clusters = geometry.group_clusters(group);
    let used: Vec<bool> = (0..clusters)
        .map(|bit| {
            let block = geometry.block_of_bit(group, bit);
            shop.knowledge.claims.used.contains(shop.knowledge.claims.cluster(block.0))
        })
        .collect();
    let free_clusters = low32(ext4kit_format::num::wide(used.iter().filter(|used| !**used).count()));
    create(shop, descriptor.block_bitmap, BlockKind::BlockBitmap(group), |bytes| {
        for (bit, used) in (0u32..).zip(&used) {
            if *used {
                bitmap::set(bytes, bit);
            }
        }
        bitmap::set_padding(bytes, clusters);
    })?;
    let inodes = geometry.inodes_per_group();
    let states = states_of(shop, group);
    let taken = |state: &u8| state & known::USED != 0;
    let last = states.iter().rposition(taken).map_or(0, |at| at.saturating_add(1));
    let counted = states.iter().filter(|state| taken(state)).count();
    let directories = states.iter().filter(|state| taken(state) && **state & known::KIND == 2).count();
    create(shop, descriptor.inode_bitmap, BlockKind::InodeBitmap(group), |bytes| {
        for (bit, state) in (0u32..).zip(&states) {
            if taken(state) {
                bitmap::set(bytes, bit);
            }
        }
        bitmap::set_padding(bytes, inodes);
    })?;
    let to32 = |count: usize| low32(ext4kit_format::num::wide(count));
    let lazy = shop.layout().has_lazy_groups();
    group::update_descriptor(shop, group, |descriptor| {
        descriptor.free_clusters = free_clusters;
        descriptor.free_inodes = inodes.saturating_sub(to32(counted));
        descriptor.used_directories = to32(directories);
        descriptor.flags.remove(GroupFlags::BLOCK_UNINIT);
        if lazy {
            descriptor.unused_inodes = descriptor.unused_inodes.min(inodes.saturating_sub(to32(last)));
            if last > 0 {
                descriptor.flags.remove(GroupFlags::INODE_UNINIT);
            }
        }
    })
}

/// What is known of each inode of a group.
fn states_of(shop: &Workshop<'_>, group: GroupNumber) -> Vec<u8> {
    let geometry = &shop.layout().geometry;
    let first = geometry.inode_at(group, 0).map_or(1, InodeNumber::get);
    let start = index(first.saturating_sub(1));
    let end = start.saturating_add(index(geometry.inodes_per_group()));
    shop.knowledge.states.get(start..end).unwrap_or_default().to_vec()
}
