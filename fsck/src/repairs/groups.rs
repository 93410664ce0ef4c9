//! Repairs of group descriptors, and of where bitmaps and inode tables lie.
//!
//! What a bitmap holds is put right by the last pass; here it only gets a place.

use ext4kit_format::disk::group_desc::{GroupDescriptor, GroupFlags};
use ext4kit_format::error::{Defect, Error, Place, Result};
use ext4kit_format::geometry::Geometry;
use ext4kit_format::num::index;
use ext4kit_format::tree::group;
use ext4kit_format::txn::{BlockKind, Overlay, Transaction, create};
use ext4kit_format::{BlockNumber, BlockRun, GroupNumber};

use super::superblock::{Ground, Wanted};
use crate::finding::{Finding, GroupProblem, Problem};
use crate::opening::descriptors::{Look, allowed, look_at_table};

/// A piece of metadata that a descriptor leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    BlockBitmap,
    InodeBitmap,
    InodeTable,
}

/// Carries out the repair of a problem of a descriptor. A problem of another area is an error.
pub fn apply(finding: &Finding, overlay: &mut Overlay, ground: &mut Ground<'_>) -> Result<()> {
    let (Problem::Group(problem), Place::GroupDescriptor(number)) = (&finding.problem, &finding.place) else {
        return Err(Error::Invalid(format!("{finding}: no problem of a descriptor")));
    };
    let lazy = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
    match problem {
        GroupProblem::BlockBitmapMisplaced { group, .. } => place(overlay, ground, *group, Part::BlockBitmap),
        GroupProblem::InodeBitmapMisplaced { group, .. } => place(overlay, ground, *group, Part::InodeBitmap),
        GroupProblem::InodeTableMisplaced { group, .. } | GroupProblem::InodeTableLost { group, .. } => {
            place(overlay, ground, *group, Part::InodeTable)
        }
        GroupProblem::MetadataOverlap { group, what, .. } => {
            let part = match *what {
                "block bitmap" => Part::BlockBitmap,
                "inode bitmap" => Part::InodeBitmap,
                _ => Part::InodeTable,
            };
            relocate(overlay, ground, *group, part)
        }
        // Without a right checksum the flags vouch for nothing.
        GroupProblem::ChecksumWrong { .. } | GroupProblem::LazyFlagsUnsupported { .. } => {
            group::update_descriptor(overlay, *number, |descriptor| {
                descriptor.flags.remove(lazy);
                descriptor.unused_inodes = 0;
            })
        }
        GroupProblem::UnusedInodesTooMany { .. } => {
            group::update_descriptor(overlay, *number, |descriptor| descriptor.unused_inodes = 0)
        }
        GroupProblem::LastGroupUninit {} => group::update_descriptor(overlay, *number, |descriptor| {
            descriptor.flags.remove(GroupFlags::BLOCK_UNINIT);
        }),
        GroupProblem::Unreadable { .. } | GroupProblem::CopyUsed { .. } | GroupProblem::Rebuilt { .. } => {
            restore(overlay, ground.groups, *number)
        }
    }
}

/// Writes a group's descriptor as it is in use. Where the block of the table cannot be read, all of it is written.
fn restore(overlay: &mut Overlay, groups: &[GroupDescriptor], number: GroupNumber) -> Result<()> {
    let descriptor = known(groups, number)?.clone();
    match group::update_descriptor(overlay, number, |stored| *stored = descriptor) {
        Err(Error::Io { .. }) => {}
        done => return done,
    }
    let geometry = overlay.layout().geometry.clone();
    let (block, _) = geometry.descriptor_slot(number);
    let per_block = geometry.descriptors_per_block();
    let first = number.0.saturating_sub(number.0.checked_rem(per_block).unwrap_or(0));
    create(overlay, block, BlockKind::Descriptor(number), |_| ())?;
    for other in first..first.saturating_add(per_block).min(geometry.group_count()) {
        let descriptor = known(groups, GroupNumber(other))?.clone();
        group::update_descriptor(overlay, GroupNumber(other), |stored| *stored = descriptor)?;
    }
    Ok(())
}

fn known(groups: &[GroupDescriptor], number: GroupNumber) -> Result<&GroupDescriptor> {
    groups.get(index(number.0)).ok_or_else(|| {
        let defect = Defect::Contradiction("there is no such group".to_owned());
        defect.at(Place::GroupDescriptor(number))
    })
}

fn run_of(geometry: &Geometry, descriptor: &GroupDescriptor, part: Part) -> BlockRun {
    match part {
        Part::BlockBitmap => BlockRun::single(descriptor.block_bitmap),
        Part::InodeBitmap => BlockRun::single(descriptor.inode_bitmap),
        Part::InodeTable => {
            BlockRun { start: descriptor.inode_table, length: geometry.inode_table_blocks().into() }
        }
    }
}

fn set_place(descriptor: &mut GroupDescriptor, part: Part, at: BlockNumber) {
    match part {
        Part::BlockBitmap => descriptor.block_bitmap = at,
        Part::InodeBitmap => descriptor.inode_bitmap = at,
        Part::InodeTable => descriptor.inode_table = at,
    }
}

/// Gives a part the place that the opening found for it; where it found none, a new one.
fn place(overlay: &mut Overlay, ground: &mut Ground<'_>, number: GroupNumber, part: Part) -> Result<()> {
    let geometry = overlay.layout().geometry.clone();
    let run = run_of(&geometry, known(ground.groups, number)?, part);
    if allowed(&geometry, number, run) {
        return group::update_descriptor(overlay, number, |stored| set_place(stored, part, run.start));
    }
    relocate(overlay, ground, number, part)
}

/// Moves a part to free blocks. An inode table takes along what lies in it, unless that is shown to be something
/// else; the new one is empty then, which the finding said.
fn relocate(overlay: &mut Overlay, ground: &mut Ground<'_>, number: GroupNumber, part: Part) -> Result<()> {
    let geometry = overlay.layout().geometry.clone();
    let flexible = geometry.features().incompat.contains(ext4kit_format::disk::features::Incompat::FLEX_BG);
    let within = if flexible {
        let start = geometry.first_data_block();
        BlockRun { start, length: geometry.blocks_count().saturating_sub(start.0) }
    } else {
        geometry.group_blocks(number)
    };
    let old = run_of(&geometry, known(ground.groups, number)?, part);
    let kept = part == Part::InodeTable && allowed(&geometry, number, old) && {
        let read = |at| overlay.read(at, BlockKind::Plain).ok();
        look_at_table(overlay.layout(), read, number, old.start) > Look::Other
    };
    let wanted = Wanted { blocks: old.length, within, group: number };
    let at = (ground.free)(wanted).ok_or(Error::NoSpace)?;
    for distance in 0..old.length {
        let to = BlockNumber(at.0.saturating_add(distance));
        let from = BlockNumber(old.start.0.saturating_add(distance));
        let bytes = if kept { Some(overlay.read(from, BlockKind::Plain)?) } else { None };
        create(overlay, to, BlockKind::Plain, |target| {
            if let Some(bytes) = &bytes {
                target.copy_from_slice(bytes);
            }
        })?;
        overlay.ensure_credits(1)?;
    }
    group::update_descriptor(overlay, number, |stored| {
        set_place(stored, part, at);
        match part {
            Part::BlockBitmap => stored.flags.remove(GroupFlags::BLOCK_UNINIT),
            Part::InodeBitmap => stored.flags.remove(GroupFlags::INODE_UNINIT),
            Part::InodeTable => {}
        }
    })
}

/// Whether a run of blocks holds metadata whose place is fixed.
pub fn is_metadata(geometry: &Geometry, groups: &[GroupDescriptor], run: BlockRun) -> bool {
    let overlaps = |other: BlockRun| {
        other.start.0 < run.start.0.saturating_add(run.length)
            && run.start.0 < other.start.0.saturating_add(other.length)
    };
    geometry.groups().zip(groups).any(|(group, descriptor)| {
        geometry.base_metadata(group).runs().any(overlaps)
            || [Part::BlockBitmap, Part::InodeBitmap, Part::InodeTable]
                .into_iter()
                .any(|part| overlaps(run_of(geometry, descriptor, part)))
    })
}
