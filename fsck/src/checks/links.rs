//! Pass 4: link counts, inodes that nothing names, and references of values.

use ext4kit_format::disk::features::RoCompat;
use ext4kit_format::disk::inode::{InodeView, MAX_LINKS};
use ext4kit_format::num::{index, join32, low32, wide};
use ext4kit_format::{InodeNumber, Place};

use super::bits::NameCounts;
use super::context::{Context, Known, known};
use super::part::{Part, Run};
use crate::finding::CountProblem as Problem;

/// Inodes that are looked at together.
const TOGETHER: u32 = 16 << 10;

/// Checks all inodes in use.
pub fn check(context: &mut Context<'_>) {
    let mut references = std::mem::take(&mut context.ledger.kept.value_references);
    references.sort_unstable();
    context.run(|run| all(run, &references), |_| {});
}

fn all(run: &mut Run<'_, '_>, references: &[(InodeNumber, InodeNumber)]) {
    let geometry = run.known.geometry();
    let parts = run.parts_of(index(geometry.inodes_count()), index(TOGETHER));
    let inodes = u64::from(geometry.inodes_count());
    let end_of = |part: usize| low32(inodes.saturating_mul(wide(part)).checked_div(wide(parts)).unwrap_or(0));
    run.parts(parts, |part, at| {
        for before in end_of(at)..end_of(at.saturating_add(1)) {
            let Some(number) = InodeNumber::new(before.saturating_add(1)) else { continue };
            let state = part.state(number);
            if state & known::USED != 0
                && state & known::HIDDEN == 0
                && !is_plainly_right(part, number, state)
            {
                one_inode(part, number, references);
            }
        }
    });
}

/// Whether an inode's names are as many as pass 1 saw links, both small enough to be told from what was noted of them.
fn is_plainly_right(known: &Known<'_>, number: InodeNumber, state: u8) -> bool {
    let names = known.names.low().get(number);
    state & known::VALUE == 0 && names > 0 && names < NameCounts::MOST_LOW && names == known.links.get(number)
}

fn one_inode(part: &mut Part<'_, '_>, number: InodeNumber, references: &[(InodeNumber, InodeNumber)]) {
    let place = Place::Inode(number);
    let state = part.state(number);
    let counted = part.names.get(number);
    let Some((bytes, range)) = part.inode_block(number) else { return };
    let Some(view) = bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else { return };
    if state & known::VALUE != 0 && counted == 0 {
        return one_value(part, number, view, references);
    }
    if state & known::VALUE != 0 {
        part.find(place.clone(), Problem::ValueFlagSpurious {});
    }
    let directory = state & known::KIND == 2;
    let unconnected = directory
        && number != InodeNumber::ROOT
        && part
            .directories
            .find(number)
            .and_then(|at| part.directories.get(at))
            .is_some_and(|directory| directory.parent == 0);
    if unconnected {
        // Told in pass 3.
        return;
    }
    if counted == 0 {
        return part.find(place, Problem::Unattached { inode: number });
    }
    let stored = view.links();
    let many = directory && counted > u32::from(MAX_LINKS).saturating_sub(1);
    let wanted = if many { 1 } else { counted };
    if many && !part.features().ro_compat.contains(RoCompat::DIR_NLINK) {
        part.find(place.clone(), Problem::ManyLinksUnset {});
    }
    let overflowed = directory && stored == 1 && part.features().ro_compat.contains(RoCompat::DIR_NLINK);
    if u32::from(stored) != wanted && !(overflowed && counted > 2) {
        part.find(place, Problem::LinksWrong { stored, counted: wanted });
    }
}

/// The inode of a value counts its references in fields that other files use for times.
fn one_value(
    part: &mut Part<'_, '_>,
    number: InodeNumber,
    view: InodeView<'_>,
    references: &[(InodeNumber, InodeNumber)],
) {
    let from = references.partition_point(|(value, _)| *value < number);
    let owners = references.get(from..).unwrap_or_default();
    let end = owners.partition_point(|(value, _)| *value == number);
    let place = Place::Inode(number);
    let Some((_, owner)) = owners.first().filter(|_| end > 0) else {
        return part.find(place, Problem::Unattached { inode: number });
    };
    let head = view.head();
    if end == 1 && head.i_mtime.get() == owner.get() {
        // Of the older kind, which belongs to the one inode that it names.
        return;
    }
    let stored = join32(head.i_version_lo.get(), head.i_ctime.get());
    let counted = wide(end);
    if stored != counted {
        part.find(place, Problem::ValueReferencesWrong { stored, counted });
    }
}
