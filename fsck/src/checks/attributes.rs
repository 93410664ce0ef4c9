//! Extended attributes: in inodes, in blocks that inodes share, and in inodes of their own.

use ext4kit_format::disk::features::{Compat, Incompat};
use ext4kit_format::disk::inode::{InodeFlags, InodeView};
use ext4kit_format::disk::xattr::{self, Area, NameIndex, Value};
use ext4kit_format::{BlockNumber, BlockRun, InodeNumber, Place};

use super::context::{Context, Known};
use super::part::Part;
use super::proof;
use crate::finding::{AttributeProblem as Problem, InodeProblem};

/// What an inode's attributes tell about the inode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Blocks that values in inodes of their own add to `i_blocks`.
    pub value_blocks: u64,
    /// Length of the rest of inline data, where there is such an attribute.
    pub inline: Option<usize>,
    /// Whether there is an encryption part, and whether it is a sound one.
    pub context: Option<bool>,
}

/// Checks the attributes inside an inode.
pub fn in_inode(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>, seen: &mut Seen) {
    let Some(area) = Area::of_inode(view.attribute_area()) else { return };
    entries(part, (number, view), (area, Place::InodeAttributes(number), false), seen);
}

/// Reads what an inode's attribute block tells; the block itself is checked once for all its owners.
pub fn of_block(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>, seen: &mut Seen) -> bool {
    let block = view.attribute_block();
    if block.0 == 0 {
        return false;
    }
    let place = Place::Inode(number);
    if !part.features().compat.contains(Compat::EXT_ATTR) {
        let problem = InodeProblem::FieldNotZero { field: "i_file_acl", value: block.0 };
        part.find(place, problem);
        return false;
    }
    let run = BlockRun::single(block);
    if !part.geometry().contains(block) {
        part.find(place, Problem::BlockInvalid { block });
        return false;
    }
    if part.claims.in_metadata(run).is_some() {
        part.find(place, Problem::OverMetadata { block });
        return false;
    }
    part.found.attribute_blocks.push((block, number));
    let interesting =
        part.features().incompat.contains(Incompat::EA_INODE) || view.flags().contains(InodeFlags::ENCRYPTED);
    if interesting
        && let Ok(bytes) = part.source.block(block)
        && let Ok(area) = Area::of_block(&bytes)
    {
        for entry in area.entries().filter_map(Result::ok).take(4096) {
            note(part, (number, view), &entry, seen);
        }
    }
    true
}

/// What one entry tells, without judging it.
fn note(
    part: &mut Part<'_, '_>,
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
            if !is_plain_reference(part, owner, inode) {
                return;
            }
            let geometry = part.geometry();
            let cluster = u64::from(geometry.block_size()) << geometry.cluster_bits();
            let clusters = u64::from(size).div_ceil(cluster);
            seen.value_blocks = seen.value_blocks.saturating_add(clusters << geometry.cluster_bits());
        }
    }
}

/// Whether a value's inode counts its references, as opposed to naming its only owner.
fn is_plain_reference(known: &Known<'_>, owner: (InodeNumber, InodeView<'_>), value: InodeNumber) -> bool {
    let Some((bytes, range)) = known.inode_block(value) else { return false };
    let Some(view) = bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else { return false };
    let named = view.head().i_mtime.get() == owner.0.get() && view.generation() == owner.1.generation();
    !named && view.flags().contains(InodeFlags::EA_INODE)
}

/// Checks the entries of an area.
fn entries(
    part: &mut Part<'_, '_>,
    owner: (InodeNumber, InodeView<'_>),
    (area, place, in_block): (Area<'_>, Place, bool),
    seen: &mut Seen,
) {
    let mut sound = true;
    let mut count = 0u32;
    for entry in area.entries().take(4096) {
        match entry {
            Err(bad) => {
                sound = false;
                part.find(place.clone(), Problem::EntryDamaged { defect: bad.defect });
            }
            Ok(entry) => {
                count = count.saturating_add(1);
                note(part, owner, &entry, seen);
                one_entry(part, owner, &entry, (&place, in_block));
            }
        }
    }
    // One value cannot lie over another.
    if sound && count > 1 {
        for bad in area.check_layout(false).into_iter().take(4) {
            part.find(place.clone(), Problem::Overlap { defect: bad.defect });
        }
    }
}

fn one_entry(
    part: &mut Part<'_, '_>,
    owner: (InodeNumber, InodeView<'_>),
    entry: &xattr::Entry<'_>,
    (place, in_block): (&Place, bool),
) {
    let stored = entry.hash;
    match entry.value {
        Value::Here(_) => {
            if (in_block || stored != 0) && !entry.hash_matches(0) {
                let name = String::from_utf8_lossy(entry.name).into_owned();
                part.find(place.clone(), Problem::HashWrong { name, stored });
            }
        }
        Value::Inode { inode, size } => {
            part.found.value_references.push((inode, owner.0));
            if let Some(problem) = value_inode(part, owner, (inode, size), entry) {
                part.find(place.clone(), problem);
            }
        }
    }
}

/// What is wrong with the inode of a value.
fn value_inode(
    known: &Known<'_>,
    owner: (InodeNumber, InodeView<'_>),
    (inode, size): (InodeNumber, u32),
    entry: &xattr::Entry<'_>,
) -> Option<Problem> {
    let invalid = Some(Problem::ValueInodeInvalid { inode });
    if inode.get() < known.geometry().first_inode() {
        return invalid;
    }
    let Some((bytes, range)) = known.inode_block(inode) else { return invalid };
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
    let mut blocks = std::mem::take(&mut context.ledger.kept.attribute_blocks);
    blocks.sort_unstable();
    let mut part = Part::new(&context.known);
    for owners in blocks.chunk_by(|left, right| left.0 == right.0) {
        let Some((block, number)) = owners.first().copied() else { continue };
        let counted = u32::try_from(owners.len()).unwrap_or(u32::MAX);
        let cluster = part.claims.cluster(block.0);
        part.claim_single(cluster);
        one_block(&mut part, block, number, counted);
    }
    let found = part.finish();
    context.ledger.take(found);
}

fn one_block(part: &mut Part<'_, '_>, block: BlockNumber, number: InodeNumber, counted: u32) {
    let place = Place::AttributeBlock(block);
    let bytes = match part.source.block(block) {
        Ok(bytes) => bytes,
        Err(error) => {
            let problem = InodeProblem::Unreadable { why: error.to_string() };
            return part.find(place, problem);
        }
    };
    let area = match Area::of_block(&bytes) {
        Ok(area) => area,
        Err(defect) => return part.find(place, Problem::BlockDamaged { defect }),
    };
    if let Some(seed) = part.layout.checksum_seed
        && let Err(defect) = xattr::verify_checksum(&bytes, seed, block)
    {
        if let Some(wrong) = proof::attributes(&bytes, seed, block) {
            // The rest is looked at when the bit is right again.
            let byte = u32::try_from(wrong.byte).unwrap_or(u32::MAX);
            return part.find(place, Problem::OneBitWrong { byte, bit: wrong.bit });
        }
        part.find(place.clone(), Problem::ChecksumWrong { defect });
    }
    let stored = xattr::header(&bytes).map_or(0, |header| header.h_refcount.get());
    if stored != counted {
        part.find(place.clone(), Problem::ReferencesWrong { stored, counted });
    }
    let Some((inode_bytes, range)) = part.inode_block(number) else { return };
    let Some(view) = inode_bytes.get(range).and_then(|slot| InodeView::new(slot).ok()) else { return };
    // A value named in a shared block is referenced once, however many inodes share the block.
    entries(part, (number, view), (area, place, true), &mut Seen::default());
}
