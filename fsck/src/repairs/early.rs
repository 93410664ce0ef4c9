//! The first stage put right: superblock and descriptors, on which everything else stands.
//!
//! Where a repair needs blocks, nothing that the image says of itself is enough: bitmaps may be wrong, and the check
//! stopped before it saw a file. One whole check then tells which blocks are in use.

use ext4kit_format::BlockNumber;
use ext4kit_format::create::write_backups;
use ext4kit_format::error::Result;
use ext4kit_format::geometry::Geometry;

use super::superblock::{Ground, Wanted, outdates_backups};
use super::{groups, superblock};
use crate::check::{self, Observer};
use crate::checks::claims::BitSet;
use crate::finding::{Finding, GroupProblem, Problem, SuperblockProblem};
use crate::opening::Opened;

/// Whether a finding is one of superblock or descriptors.
pub fn is_early(finding: &Finding) -> bool {
    matches!(finding.problem, Problem::Superblock(_) | Problem::Group(_))
}

/// Puts right what is early among the findings, in the overlay; gives what became of each. Copies are written again
/// where they would contradict what they are copies of.
pub fn put_right<'f>(opened: &mut Opened, wanted: &'f [Finding]) -> Result<Vec<(&'f Finding, Result<()>)>> {
    let mut used = if wanted.iter().any(may_need_blocks) { Some(blocks_in_use(opened)) } else { None };
    let geometry = opened.source.layout().geometry.clone();
    let mut free = |wanted: Wanted| find_free(&geometry, used.as_mut()?, wanted);
    let mut results = Vec::new();
    for finding in wanted.iter().filter(|finding| is_early(finding)) {
        let mut ground = Ground { superblock: &opened.superblock, groups: &opened.groups, free: &mut free };
        let overlay = &mut opened.source.overlay;
        let result = match &finding.problem {
            Problem::Group(_) => groups::apply(finding, overlay, &mut ground),
            _ => superblock::apply(finding, overlay, &mut ground),
        };
        results.push((finding, result));
    }
    let outdated = results.iter().any(|(finding, result)| result.is_ok() && outdates_backups(finding));
    if outdated {
        write_backups(&mut opened.source.overlay)?;
    }
    opened.source.overlay.seal()?;
    opened.reread()?;
    Ok(results)
}

/// Whether a repair may have to move something.
fn may_need_blocks(finding: &Finding) -> bool {
    matches!(
        finding.problem,
        Problem::Superblock(
            SuperblockProblem::ResizeInodeWrong { .. } | SuperblockProblem::ResizeInodeWithMetaGroups {}
        ) | Problem::Group(
            GroupProblem::MetadataOverlap { .. }
                | GroupProblem::InodeTableLost { .. }
                | GroupProblem::InodeTableMisplaced { .. }
                | GroupProblem::InodeBitmapMisplaced { .. }
                | GroupProblem::BlockBitmapMisplaced { .. }
        )
    )
}

struct Silent;

impl Observer for Silent {
    fn finding(&mut self, _finding: Finding) {}
}

/// The clusters that metadata or any file claims, as a whole check sees it.
fn blocks_in_use(opened: &Opened) -> BitSet {
    let (_, knowledge) = check::round(opened, &mut Silent);
    knowledge.claims.used
}

/// Consecutive blocks that nothing uses; they count as used from then on.
fn find_free(geometry: &Geometry, used: &mut BitSet, wanted: Wanted) -> Option<BlockNumber> {
    let bits = geometry.cluster_bits();
    let first = wanted.within.start.0.div_ceil(1 << bits);
    // A cluster that is cut short by the end is not given out.
    let end = wanted.within.start.0.checked_add(wanted.within.length)?.min(geometry.blocks_count()) >> bits;
    let clusters = wanted.blocks.div_ceil(1 << bits).max(1);
    // Near the group first, so that tables stay where they are read together.
    let near = (geometry.group_start(wanted.group).0 >> bits).clamp(first, end);
    let start =
        run_of_absent(used, near, end, clusters).or_else(|| run_of_absent(used, first, end, clusters))?;
    for cluster in start..start.saturating_add(clusters) {
        used.insert(cluster);
    }
    Some(BlockNumber(start << bits))
}

/// The first of so many consecutive numbers between two that are not in a set.
fn run_of_absent(used: &BitSet, from: u64, to: u64, count: u64) -> Option<u64> {
    let mut at = from;
    loop {
        let start = used.next_absent(at, to)?;
        let end = used.next(start).unwrap_or(to).min(to);
        if end.saturating_sub(start) >= count {
            return Some(start);
        }
        at = end;
        if at >= to {
            return None;
        }
    }
}
