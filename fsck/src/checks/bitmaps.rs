//! Pass 5: bitmaps, and the counts that sum them up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ext4kit_format::disk::bitmap::{self, Bits};
use ext4kit_format::disk::group_desc::{GroupDescriptor, GroupFlags};
use ext4kit_format::num::{index, low16, low32, wide};
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber, Place};

use super::bits::count;
use super::context::{Context, Known, known};
use super::part::{Part, Run, share};
use crate::finding::BitmapProblem as Problem;

/// Groups that are checked together.
const TOGETHER: usize = 16;

/// Sums over all groups.
#[derive(Default)]
struct Totals {
    free_clusters: AtomicU64,
    free_inodes: AtomicU64,
}

/// Checks all bitmaps.
pub fn check(context: &mut Context<'_>) {
    let geometry = context.geometry();
    let totals = OnceLock::new();
    context.run(
        |run| {
            let _ = totals.set(all(run));
        },
        |_| {},
    );
    let Totals { free_clusters, free_inodes } = totals.into_inner().unwrap_or_default();
    let counted = free_clusters.into_inner() << geometry.cluster_bits();
    let stored = context.superblock.free_blocks_count();
    if stored != counted {
        context.find(Place::Superblock, Problem::TotalFreeBlocksWrong { stored, counted });
    }
    let free_inodes = free_inodes.into_inner();
    let counted_inodes = u32::try_from(free_inodes).unwrap_or(u32::MAX);
    let stored = context.superblock.s_free_inodes_count.get();
    if stored != counted_inodes {
        let problem = Problem::TotalFreeInodesWrong { stored, counted: counted_inodes };
        context.find(Place::Superblock, problem);
    }
    let summary = &mut context.ledger.summary;
    summary.blocks_used = geometry.blocks_count().saturating_sub(counted);
    summary.inodes_used = u64::from(geometry.inodes_count()).saturating_sub(free_inodes);
}

fn all(run: &mut Run<'_, '_>) -> Totals {
    let totals = Totals::default();
    let groups = index(run.known.geometry().group_count());
    let parts = run.parts_of(groups, TOGETHER);
    run.parts(parts, |part, at| {
        for group in share(groups, parts, at) {
            let group = GroupNumber(u32::try_from(group).unwrap_or(u32::MAX));
            if let Some(descriptor) = part.group(group) {
                let free_clusters = blocks(part, group, descriptor);
                let free_inodes = inodes(part, group, descriptor);
                // As many as can be are fewer than fit 64 bits.
                totals.free_clusters.fetch_add(free_clusters.into(), Relaxed);
                totals.free_inodes.fetch_add(free_inodes.into(), Relaxed);
            }
        }
    });
    totals
}

/// A stretch of bits that differ in the same way.
struct Stretch {
    start: u32,
    length: u32,
    marked: bool,
}

/// Compares a bitmap with what was found in use, 64 bits at a time.
fn compare(stored: Bits<'_>, limit: u32, used_word: impl Fn(u32) -> u64) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    let mut at = 0u32;
    while at < limit {
        let whole = limit.saturating_sub(at) >= 64;
        let word = ext4kit_format::bytes::le64(stored.0, index(at / 8));
        let used = used_word(at);
        if whole && word == Some(used) {
            at = at.saturating_add(64);
            continue;
        }
        let end = limit.min(at.saturating_add(64));
        for bit in at..end {
            let marked = stored.is_set(bit);
            if marked == (used.wrapping_shr(bit.saturating_sub(at)) & 1 == 1) {
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
fn checksum(known: &Known<'_>, bytes: &[u8], bits: u32, stored: u32) -> Option<(u32, u32)> {
    let seed = known.layout.checksum_seed?;
    let computed = bitmap::checksum(bytes, bits, seed);
    let wide = known.geometry().descriptor_size() >= 64;
    let computed = if wide { computed } else { low16(computed).into() };
    (computed != stored).then_some((stored, computed))
}

/// Checks the block bitmap of a group; gives how many clusters are free.
fn blocks(part: &mut Part<'_, '_>, group: GroupNumber, descriptor: &GroupDescriptor) -> u32 {
    let geometry = part.geometry();
    let place = Place::BlockBitmap(group);
    let limit = geometry.group_clusters(group);
    let first = part.claims.cluster(geometry.group_start(group).0);
    let claims = &part.claims.used;
    let used_word = |bit: u32| claims.word(first.saturating_add(bit.into()));
    let taken = count_used(limit, used_word);
    let counted = limit.saturating_sub(taken);
    let mut found: Vec<(Place, Problem)> = Vec::new();
    let lazy = part.layout.has_lazy_groups() && descriptor.flags.contains(GroupFlags::BLOCK_UNINIT);
    if lazy {
        if taken > 0 && has_other_than_metadata(part, first, limit) {
            found.push((place, Problem::BlocksInUninitGroup {}));
        }
    } else if geometry.contains(descriptor.block_bitmap) {
        match part.source.block(descriptor.block_bitmap) {
            Err(error) => found.push((place, Problem::Unreadable { why: error.to_string() })),
            Ok(bytes) => {
                for stretch in compare(Bits(&bytes), limit, used_word) {
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
                    checksum(part, &bytes, bits, descriptor.block_bitmap_checksum)
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
        part.find(place, problem);
    }
    counted
}

/// Whether any of a group's clusters is in use for something else than fixed metadata.
fn has_other_than_metadata(known: &Known<'_>, first: u64, limit: u32) -> bool {
    let claims = &known.claims;
    let bits = known.geometry().cluster_bits();
    let end = first.saturating_add(limit.into());
    let mut from = first;
    while let Some(cluster) = claims.used.next(from..end) {
        let run = BlockRun { start: BlockNumber(cluster << bits), length: 1 << bits };
        let Some(block) = claims.in_metadata(run) else { return true };
        // On to where this stretch of metadata ends.
        from = claims.cluster(claims.metadata_end(block)).max(cluster.saturating_add(1));
    }
    false
}

fn count_used(limit: u32, used_word: impl Fn(u32) -> u64) -> u32 {
    let words = (0..limit).step_by(64).map(|at| {
        let beyond = 64u32.saturating_sub(limit.saturating_sub(at).min(64));
        used_word(at).wrapping_shl(beyond).count_ones()
    });
    words.fold(0, u32::saturating_add)
}

/// Checks the inode bitmap of a group; gives how many inodes are free.
fn inodes(part: &mut Part<'_, '_>, group: GroupNumber, descriptor: &GroupDescriptor) -> u32 {
    let geometry = part.geometry();
    let place = Place::InodeBitmap(group);
    let limit = geometry.inodes_per_group();
    let start = index(group.0).saturating_mul(index(limit));
    // Behind the used part nothing was looked at, and only reserved inodes count all the same.
    let looked_at =
        part.used_part(group).max(part.geometry().first_inode().saturating_sub(low32(wide(start))));
    let states = part.states.stretch(start, index(limit.min(looked_at)));
    let is_used = |state: u8| state & known::USED != 0;
    let taken = count(states, is_used);
    // An orphan that waits for its end is still counted as the directory that it was.
    let directories = count(states, |state| is_used(state) && state & known::KIND == 2);
    let counted = limit.saturating_sub(taken);
    let mut found: Vec<(Place, Problem)> = Vec::new();
    let lazy = part.layout.has_lazy_groups() && descriptor.flags.contains(GroupFlags::INODE_UNINIT);
    if lazy {
        if taken > 0 {
            found.push((place, Problem::InodesInUninitGroup {}));
        }
    } else if geometry.contains(descriptor.inode_bitmap) {
        match part.source.block(descriptor.inode_bitmap) {
            Err(error) => found.push((place, Problem::Unreadable { why: error.to_string() })),
            Ok(bytes) => {
                let word = |bit: u32| {
                    let states = states.get(index(bit)..).unwrap_or_default().iter().take(64);
                    (0u32..).zip(states).fold(0u64, |word, (at, state)| {
                        word | u64::from(is_used(state.load(Relaxed))).wrapping_shl(at)
                    })
                };
                for stretch in compare(Bits(&bytes), limit, word) {
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
                    checksum(part, &bytes, limit, descriptor.inode_bitmap_checksum)
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
        part.find(place, problem);
    }
    counted
}
