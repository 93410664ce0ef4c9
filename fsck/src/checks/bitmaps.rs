//! Pass 5: bitmaps, and the counts that sum them up.

use ext4kit_format::disk::bitmap::{self, Bits};
use ext4kit_format::disk::group_desc::{GroupDescriptor, GroupFlags};
use ext4kit_format::num::{index, low16};
use ext4kit_format::{BlockNumber, GroupNumber, Place};

use super::context::{Context, known};
use crate::finding::BitmapProblem as Problem;

/// Sums over all groups.
#[derive(Default)]
struct Totals {
    free_clusters: u64,
    free_inodes: u64,
}

/// Checks all bitmaps.
pub fn check(context: &mut Context<'_>) {
    let geometry = context.geometry();
    let mut totals = Totals::default();
    for (group, descriptor) in geometry.groups().zip(context.groups) {
        blocks(context, group, descriptor, &mut totals);
        inodes(context, group, descriptor, &mut totals);
        context.progress(u64::from(group.0).saturating_add(1), geometry.group_count().into());
    }
    let counted = totals.free_clusters << geometry.cluster_bits();
    let stored = context.superblock.free_blocks_count();
    if stored != counted {
        context.find(Place::Superblock, Problem::TotalFreeBlocksWrong { stored, counted });
    }
    let counted_inodes = u32::try_from(totals.free_inodes).unwrap_or(u32::MAX);
    let stored = context.superblock.s_free_inodes_count.get();
    if stored != counted_inodes {
        let problem = Problem::TotalFreeInodesWrong { stored, counted: counted_inodes };
        context.find(Place::Superblock, problem);
    }
    context.summary.blocks_used = geometry.blocks_count().saturating_sub(counted);
    context.summary.inodes_used = u64::from(geometry.inodes_count()).saturating_sub(totals.free_inodes);
}

/// A stretch of bits that differ in the same way.
struct Stretch {
    start: u32,
    length: u32,
    marked: bool,
}

/// Compares a bitmap with what was found in use, 64 bits at a time.
fn compare(
    stored: Bits<'_>,
    limit: u32,
    used: impl Fn(u32) -> bool,
    used_word: impl Fn(u32) -> u64,
) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    let mut at = 0u32;
    while at < limit {
        let whole = limit.saturating_sub(at) >= 64;
        let word = ext4kit_format::bytes::le64(stored.0, index(at / 8));
        if whole && word == Some(used_word(at)) {
            at = at.saturating_add(64);
            continue;
        }
        let end = limit.min(at.saturating_add(64));
        for bit in at..end {
            let marked = stored.is_set(bit);
            if marked == used(bit) {
                continue;
            }
            match found.last_mut() {
                Some(last) if last.marked == marked && last.start.saturating_add(last.length) == bit => {
                    last.length = last.length.saturating_add(1);
                }
                _ => found.push(Stretch { start: bit, length: 1, marked }),
            }
        }
        at = end;
    }
    found
}

/// Whether every bit from a limit to the end of a block is set.
fn padding_is_set(bytes: &[u8], limit: u32) -> bool {
    let end = u32::try_from(bytes.len().saturating_mul(8)).unwrap_or(u32::MAX);
    Bits(bytes).find_clear(limit, end).is_none()
}

/// The stored checksum of a bitmap, and the one that its bits give, if they differ.
fn checksum(context: &Context<'_>, bytes: &[u8], bits: u32, stored: u32) -> Option<(u32, u32)> {
    let seed = context.layout.checksum_seed?;
    let computed = bitmap::checksum(bytes, bits, seed);
    let wide = context.geometry().descriptor_size() >= 64;
    let computed = if wide { computed } else { low16(computed).into() };
    (computed != stored).then_some((stored, computed))
}

fn blocks(context: &mut Context<'_>, group: GroupNumber, descriptor: &GroupDescriptor, totals: &mut Totals) {
    let geometry = context.geometry();
    let place = Place::BlockBitmap(group);
    let limit = geometry.group_clusters(group);
    let first = context.claims.cluster(geometry.group_start(group).0);
    let claims = &context.claims.used;
    let used = |bit: u32| claims.contains(first.saturating_add(bit.into()));
    let used_word = |bit: u32| word_at(claims.words(), first.saturating_add(bit.into()));
    let taken = count_used(limit, used, used_word);
    let counted = limit.saturating_sub(taken);
    totals.free_clusters = totals.free_clusters.saturating_add(counted.into());
    let mut found: Vec<(Place, Problem)> = Vec::new();
    let lazy = context.layout.has_lazy_groups() && descriptor.flags.contains(GroupFlags::BLOCK_UNINIT);
    if lazy {
        let own = (0..limit).filter(|bit| used(*bit)).any(|bit| {
            let block = geometry.block_of_bit(group, bit);
            let run = ext4kit_format::BlockRun { start: block, length: geometry.blocks_per_cluster().into() };
            context.claims.in_metadata(run).is_none()
        });
        if own {
            found.push((place, Problem::BlocksInUninitGroup {}));
        }
    } else if geometry.contains(descriptor.block_bitmap) {
        match context.source.block(descriptor.block_bitmap) {
            Err(error) => found.push((place, Problem::Unreadable { why: error.to_string() })),
            Ok(bytes) => {
                for stretch in compare(Bits(&bytes), limit, used, used_word) {
                    let start: BlockNumber = geometry.block_of_bit(group, stretch.start);
                    let length = u64::from(stretch.length) << geometry.cluster_bits();
                    let problem = if stretch.marked {
                        Problem::BlocksMarked { start, length }
                    } else {
                        Problem::BlocksUnmarked { start, length }
                    };
                    found.push((place.clone(), problem));
                }
                if !padding_is_set(&bytes, limit) {
                    found.push((place.clone(), Problem::BlockPaddingUnset {}));
                }
                let bits = geometry.clusters_per_group();
                if let Some((stored, computed)) =
                    checksum(context, &bytes, bits, descriptor.block_bitmap_checksum)
                {
                    found.push((place, Problem::BlockChecksumWrong { stored, computed }));
                }
            }
        }
    }
    if descriptor.free_clusters != counted {
        let problem = Problem::FreeClustersWrong { stored: descriptor.free_clusters, counted };
        found.push((Place::GroupDescriptor(group), problem));
    }
    for (place, problem) in found {
        context.find(place, problem);
    }
}

/// 64 bits from any place on.
fn word_at(words: &[u64], bit: u64) -> u64 {
    let at = ext4kit_format::num::index64(bit / 64);
    let shift = u32::try_from(bit % 64).unwrap_or(0);
    let low = words.get(at).copied().unwrap_or(0);
    if shift == 0 {
        return low;
    }
    let high = words.get(at.saturating_add(1)).copied().unwrap_or(0);
    low.wrapping_shr(shift) | high.wrapping_shl(64u32.saturating_sub(shift))
}

fn count_used(limit: u32, used: impl Fn(u32) -> bool, used_word: impl Fn(u32) -> u64) -> u32 {
    let mut total = 0u32;
    let mut at = 0u32;
    while limit.saturating_sub(at) >= 64 {
        total = total.saturating_add(used_word(at).count_ones());
        at = at.saturating_add(64);
    }
    for bit in at..limit {
        total = total.saturating_add(u32::from(used(bit)));
    }
    total
}

fn inodes(context: &mut Context<'_>, group: GroupNumber, descriptor: &GroupDescriptor, totals: &mut Totals) {
    let geometry = context.geometry();
    let place = Place::InodeBitmap(group);
    let limit = geometry.inodes_per_group();
    let start = index(group.0).saturating_mul(index(limit));
    let states = context.states.get(start..start.saturating_add(index(limit))).unwrap_or_default();
    let used = |bit: u32| states.get(index(bit)).is_some_and(|state| state & known::USED != 0);
    let taken =
        u32::try_from(states.iter().filter(|state| **state & known::USED != 0).count()).unwrap_or(u32::MAX);
    // An orphan that waits for its end is still counted as the directory that it was.
    let directory = |state: &&u8| **state & known::USED != 0 && **state & known::KIND == 2;
    let directories = u32::try_from(states.iter().filter(directory).count()).unwrap_or(u32::MAX);
    let counted = limit.saturating_sub(taken);
    totals.free_inodes = totals.free_inodes.saturating_add(counted.into());
    let mut found: Vec<(Place, Problem)> = Vec::new();
    let lazy = context.layout.has_lazy_groups() && descriptor.flags.contains(GroupFlags::INODE_UNINIT);
    if lazy {
        if taken > 0 {
            found.push((place, Problem::InodesInUninitGroup {}));
        }
    } else if geometry.contains(descriptor.inode_bitmap) {
        match context.source.block(descriptor.inode_bitmap) {
            Err(error) => found.push((place, Problem::Unreadable { why: error.to_string() })),
            Ok(bytes) => {
                let word = |bit: u32| {
                    (0..64).fold(0u64, |word, at| {
                        word | u64::from(used(bit.saturating_add(at))).wrapping_shl(at)
                    })
                };
                for stretch in compare(Bits(&bytes), limit, used, word) {
                    let first =
                        geometry.inode_at(group, stretch.start).map_or(0, ext4kit_format::InodeNumber::get);
                    let problem = if stretch.marked {
                        Problem::InodesMarked { start: first, length: stretch.length }
                    } else {
                        Problem::InodesUnmarked { start: first, length: stretch.length }
                    };
                    found.push((place.clone(), problem));
                }
                if !padding_is_set(&bytes, limit) {
                    found.push((place.clone(), Problem::InodePaddingUnset {}));
                }
                if let Some((stored, computed)) =
                    checksum(context, &bytes, limit, descriptor.inode_bitmap_checksum)
                {
                    found.push((place, Problem::InodeChecksumWrong { stored, computed }));
                }
            }
        }
    }
    let descriptor_place = || Place::GroupDescriptor(group);
    if descriptor.free_inodes != counted {
        let problem = Problem::FreeInodesWrong { stored: descriptor.free_inodes, counted };
        found.push((descriptor_place(), problem));
    }
    if descriptor.used_directories != directories {
        let problem = Problem::DirectoriesWrong { stored: descriptor.used_directories, counted: directories };
        found.push((descriptor_place(), problem));
    }
    for (place, problem) in found {
        context.find(place, problem);
    }
}
