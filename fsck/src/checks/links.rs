//! Pass 4: link counts, inodes that nothing names, and references of values.

use ext4kit_format::disk::features::RoCompat;
use ext4kit_format::disk::inode::{InodeView, MAX_LINKS};
use ext4kit_format::num::{index, join32};
use ext4kit_format::{InodeNumber, Place};

use super::context::{Context, known};
use crate::finding::CountProblem as Problem;

/// Checks all inodes in use.
pub fn check(context: &mut Context<'_>) {
    let geometry = context.geometry();
    context.value_references.sort_unstable();
    let references = std::mem::take(&mut context.value_references);
    let per_group = index(geometry.inodes_per_group()).max(1);
    for group in geometry.groups() {
        let start = index(group.0).saturating_mul(per_group);
        let states = context.states.get(start..start.saturating_add(per_group)).unwrap_or_default();
        let wanted = |state: &u8| state & known::USED != 0 && state & known::HIDDEN == 0;
        let places: Vec<u32> =
            (0u32..).zip(states).filter(|(_, state)| wanted(state)).map(|(place, _)| place).collect();
        for place in places {
            if let Some(number) = geometry.inode_at(group, place) {
                one_inode(context, number, &references);
            }
        }
        context.progress(u64::from(group.0).saturating_add(1), geometry.group_count().into());
    }
    context.value_references = references;
}

fn one_inode(context: &mut Context<'_>, number: InodeNumber, references: &[(InodeNumber, InodeNumber)]) {
    let place = Place::Inode(number);
    let state = context.state(number);
    let counted = context.names.get(index(number.get().saturating_sub(1))).copied().unwrap_or(0);
    let Some((bytes, range)) = context.inode_block(number) else { return };
    let Some(view) = bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else { return };
    if state & known::VALUE != 0 && counted == 0 {
        return one_value(context, number, view, references);
    }
    if state & known::VALUE != 0 {
        context.find(place.clone(), Problem::ValueFlagSpurious {});
    }
    let directory = state & known::KIND == 2;
    let unconnected = directory
        && number != InodeNumber::ROOT
        && context
            .directories
            .binary_search_by_key(&number, |directory| directory.inode)
            .ok()
            .and_then(|at| context.directories.get(at))
            .is_some_and(|directory| directory.parent == 0);
    if unconnected {
        // Told in pass 3.
        return;
    }
    if counted == 0 {
        return context.find(place, Problem::Unattached { inode: number });
    }
    let stored = view.links();
    let many = directory && counted > u32::from(MAX_LINKS).saturating_sub(1);
    let wanted = if many { 1 } else { counted };
    if many && !context.features().ro_compat.contains(RoCompat::DIR_NLINK) {
        context.find(place.clone(), Problem::ManyLinksUnset {});
    }
    let overflowed = directory && stored == 1 && context.features().ro_compat.contains(RoCompat::DIR_NLINK);
    if u32::from(stored) != wanted && !(overflowed && counted > 2) {
        context.find(place, Problem::LinksWrong { stored, counted: wanted });
    }
}

/// The inode of a value counts its references in fields that other files use for times.
fn one_value(
    context: &mut Context<'_>,
    number: InodeNumber,
    view: InodeView<'_>,
    references: &[(InodeNumber, InodeNumber)],
) {
    let from = references.partition_point(|(value, _)| *value < number);
    let owners = references.get(from..).unwrap_or_default();
    let end = owners.partition_point(|(value, _)| *value == number);
    let place = Place::Inode(number);
    let Some((_, owner)) = owners.first().filter(|_| end > 0) else {
        return context.find(place, Problem::Unattached { inode: number });
    };
    let head = view.head();
    if end == 1 && head.i_mtime.get() == owner.get() {
        // Of the older kind, which belongs to the one inode that it names.
        return;
    }
    let stored = join32(head.i_version_lo.get(), head.i_ctime.get());
    let counted = ext4kit_format::num::wide(end);
    if stored != counted {
        context.find(place, Problem::ValueReferencesWrong { stored, counted });
    }
}
