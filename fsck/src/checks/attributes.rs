//! Extended attributes: in inodes, in blocks that inodes share, and in inodes of their own.

use ext4kit_format::disk::features::{Compat, Incompat};
use ext4kit_format::disk::inode::{InodeFlags, InodeView};
use ext4kit_format::disk::xattr::{self, Area, NameIndex, Value};
use ext4kit_format::{BlockNumber, BlockRun, InodeNumber, Place};

use super::context::Context;
use crate::finding::{AttributeProblem as Problem, InodeProblem};

/// What an inode's attributes tell about the inode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Blocks that values in inodes of their own add to `i_blocks`.
    pub value_blocks: u64,
    /// Length of the rest of inline data, where there is such an attribute.
    pub inline: Option<usize>,
    /// Whether there is an encryption context, and whether it is a sound one.
    pub context: Option<bool>,
}

/// Checks the attributes inside an inode.
pub fn in_inode(context: &mut Context<'_>, number: InodeNumber, view: InodeView<'_>, seen: &mut Seen) {
    let Some(area) = Area::of_inode(view.attribute_area()) else { return };
    entries(context, (number, view), (area, Place::InodeAttributes(number), false), seen);
}

/// Reads what an inode's attribute block tells; the block itself is checked once for all its owners.
pub fn of_block(
    context: &mut Context<'_>,
    number: InodeNumber,
    view: InodeView<'_>,
    seen: &mut Seen,
) -> bool {
    let block = view.attribute_block();
    if block.0 == 0 {
        return false;
    }
    let place = Place::Inode(number);
    if !context.features().compat.contains(Compat::EXT_ATTR) {
        let problem = InodeProblem::FieldNotZero { field: "i_file_acl", value: block.0 };
        context.find(place, problem);
        return false;
    }
    let run = BlockRun::single(block);
    if !context.geometry().contains(block) {
        context.find(place, Problem::BlockInvalid { block });
        return false;
    }
    if context.claims.in_metadata(run).is_some() {
        context.find(place, Problem::OverMetadata { block });
        return false;
    }
    context.attribute_blocks.push((block, number));
    let interesting = context.features().incompat.contains(Incompat::EA_INODE)
        || view.flags().contains(InodeFlags::ENCRYPTED);
    if interesting
        && let Ok(bytes) = context.source.block(block)
        && let Ok(area) = Area::of_block(&bytes)
    {
        for entry in area.entries().filter_map(Result::ok).take(4096) {
            note(context, (number, view), &entry, seen);
        }
    }
    true
}

/// What one entry tells, without judging it.
fn note(
    context: &mut Context<'_>,
    owner: (InodeNumber, InodeView<'_>),
    entry: &xattr::Entry<'_>,
    seen: &mut Seen,
) {
    match entry.value {
        Value::Here(value) if entry.index == NameIndex::SYSTEM && entry.name == b"data" => {
            seen.inline = Some(value.len());
        }
        Value::Here(value) if entry.index == NameIndex::ENCRYPTION && entry.name == b"c" => {
            seen.context = Some(matches!((value.first(), value.len()), (Some(1), 28) | (Some(2), 40)));
        }
        Value::Here(_) => {}
        Value::Inode { inode, size } => {
            if !is_plain_reference(context, owner, inode) {
                return;
            }
            let geometry = context.geometry();
            let cluster = u64::from(geometry.block_size()) << geometry.cluster_bits();
            let clusters = u64::from(size).div_ceil(cluster);
            seen.value_blocks = seen.value_blocks.saturating_add(clusters << geometry.cluster_bits());
        }
    }
}

/// Whether a value's inode counts its references, as opposed to naming its only owner.
fn is_plain_reference(
    context: &Context<'_>,
    owner: (InodeNumber, InodeView<'_>),
    value: InodeNumber,
) -> bool {
    let Some((bytes, range)) = context.inode_block(value) else { return false };
    let Some(view) = bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else { return false };
    let named = view.head().i_mtime.get() == owner.0.get() && view.generation() == owner.1.generation();
    !named && view.flags().contains(InodeFlags::EA_INODE)
}

/// Checks the entries of an area.
fn entries(
    context: &mut Context<'_>,
    owner: (InodeNumber, InodeView<'_>),
    (area, place, in_block): (Area<'_>, Place, bool),
    seen: &mut Seen,
) {
    let mut sound = true;
    for entry in area.entries().take(4096) {
        match entry {
            Err(bad) => {
                sound = false;
                context.find(place.clone(), Problem::EntryDamaged { defect: bad.defect });
            }
            Ok(entry) => {
                note(context, owner, &entry, seen);
                one_entry(context, owner, &entry, (&place, in_block));
            }
        }
    }
    if sound {
        for bad in area.check_layout(false).into_iter().take(4) {
            context.find(place.clone(), Problem::Overlap { defect: bad.defect });
        }
    }
}

fn one_entry(
    context: &mut Context<'_>,
    owner: (InodeNumber, InodeView<'_>),
    entry: &xattr::Entry<'_>,
    (place, in_block): (&Place, bool),
) {
    let name = String::from_utf8_lossy(entry.name).into_owned();
    let stored = entry.hash;
    match entry.value {
        Value::Here(_) => {
            if (in_block || stored != 0) && !entry.hash_matches(0) {
                context.find(place.clone(), Problem::HashWrong { name, stored });
            }
        }
        Value::Inode { inode, size } => {
            context.value_references.push((inode, owner.0));
            if let Some(problem) = value_inode(context, owner, (inode, size), entry) {
                context.find(place.clone(), problem);
            }
        }
    }
}

/// What is wrong with the inode of a value.
fn value_inode(
    context: &Context<'_>,
    owner: (InodeNumber, InodeView<'_>),
    (inode, size): (InodeNumber, u32),
    entry: &xattr::Entry<'_>,
) -> Option<Problem> {
    let invalid = Some(Problem::ValueInodeInvalid { inode });
    if inode.get() < context.geometry().first_inode() {
        return invalid;
    }
    let Some((bytes, range)) = context.inode_block(inode) else { return invalid };
    let Some(view) = bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else { return invalid };
    let named = view.head().i_mtime.get() == owner.0.get() && view.generation() == owner.1.generation();
    if view.links() == 0 || view.size() != u64::from(size) {
        return invalid;
    }
    if !view.flags().contains(InodeFlags::EA_INODE) {
        return Some(Problem::ValueInodeFlagMissing { inode });
    }
    if !named && !entry.hash_matches(view.head().i_atime.get()) {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        return Some(Problem::HashWrong { name, stored: entry.hash });
    }
    None
}

/// Checks and claims every attribute block once, and counts its owners.
pub fn check_blocks(context: &mut Context<'_>) {
    let mut blocks = std::mem::take(&mut context.attribute_blocks);
    blocks.sort_unstable();
    for owners in blocks.chunk_by(|left, right| left.0 == right.0) {
        let Some((block, number)) = owners.first().copied() else { continue };
        let counted = u32::try_from(owners.len()).unwrap_or(u32::MAX);
        let cluster = context.claims.cluster(block.0);
        context.claims.claim(cluster);
        one_block(context, block, number, counted);
    }
    context.attribute_blocks = blocks;
}

fn one_block(context: &mut Context<'_>, block: BlockNumber, number: InodeNumber, counted: u32) {
    let place = Place::AttributeBlock(block);
    let bytes = match context.source.block(block) {
        Ok(bytes) => bytes,
        Err(error) => {
            let problem = InodeProblem::Unreadable { why: error.to_string() };
            return context.find(place, problem);
        }
    };
    let area = match Area::of_block(&bytes) {
        Ok(area) => area,
        Err(defect) => return context.find(place, Problem::BlockDamaged { defect }),
    };
    if let Some(seed) = context.layout.checksum_seed
        && let Err(defect) = xattr::verify_checksum(&bytes, seed, block)
    {
        context.find(place.clone(), Problem::ChecksumWrong { defect });
    }
    let stored = xattr::header(&bytes).map_or(0, |header| header.h_refcount.get());
    if stored != counted {
        context.find(place.clone(), Problem::ReferencesWrong { stored, counted });
    }
    let Some((inode_bytes, range)) = context.inode_block(number) else { return };
    let Some(view) = inode_bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else { return };
    // A value named in a shared block is referenced once, however many inodes share the block.
    entries(context, (number, view), (area, place, true), &mut Seen::default());
}
