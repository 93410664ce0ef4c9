//! Extended attributes: what is sound is kept, the rest is left out.

use ext4kit_format::disk::inode::Inode;
use ext4kit_format::disk::one_bit::Bit;
use ext4kit_format::disk::xattr::{self, Area, Attribute, NewValue};
use ext4kit_format::error::{Error, Result};
use ext4kit_format::num::{index, low32};
use ext4kit_format::tree::inode;
use ext4kit_format::txn::{BlockKind, Transaction, modify};
use ext4kit_format::{BlockNumber, InodeNumber, Place};
use rustc_hash::FxHashMap;

use super::fields;
use super::workshop::{Whole, Workshop};
use crate::checks::context::known;
use crate::finding::AttributeProblem as Problem;
use crate::repair::Repair;

/// Attributes of one inode are no more than this.
const MOST_ENTRIES: usize = 4096;

/// Puts a problem of attributes right.
pub fn apply(
    shop: &mut Workshop<'_>,
    place: &Place,
    (problem, repair): (&Problem, &Repair),
    gentle: bool,
) -> Result<()> {
    if let Problem::ValueInodeFlagMissing { inode } = problem {
        return fields::apply(shop, &Place::Inode(*inode), repair);
    }
    match (place, repair) {
        (Place::AttributeBlock(block), Repair::FlipBit { byte, bit }) => {
            let wrong = Bit { byte: index(*byte), bit: *bit };
            modify(shop, *block, BlockKind::Attributes, |bytes| wrong.flip(bytes))
        }
        (Place::AttributeBlock(block), Repair::RefreshChecksum) => {
            modify(shop, *block, BlockKind::Attributes, |_| ())
        }
        (Place::AttributeBlock(block), Repair::SetField { value, .. }) => {
            let count = low32(*value);
            modify(shop, *block, BlockKind::Attributes, |bytes| {
                xattr::header_mut(bytes).map(|header| header.h_refcount.set(count))
            })?
            .map_err(|defect| defect.at(place.clone()))
        }
        (Place::AttributeBlock(block), Repair::ClearAttributes) => {
            clear_block(shop, *block, (problem, gentle))
        }
        (Place::Inode(number), Repair::ClearAttributes) => {
            let mut inode = inode::read_unverified(shop, *number)?;
            drop_block(&mut inode)?;
            inode::write_over(shop, &inode)
        }
        (Place::InodeAttributes(number), Repair::ClearAttributes) => {
            clear_in_inode(shop, *number, (problem, gentle))
        }
        _ => Err(Error::Invalid(format!("{place}: {repair} is no repair of attributes"))),
    }
}

/// The attributes inside an inode that can be read and lie over no other.
pub fn sound_in_inode(inode: &Inode) -> Vec<Attribute> {
    Area::of_inode(inode.view().attribute_area()).map_or_else(Vec::new, |area| sound(&area))
}

fn sound(area: &Area<'_>) -> Vec<Attribute> {
    let bad: Vec<usize> = area.check_layout(false).into_iter().map(|bad| bad.offset).collect();
    let entries = area.entries().take(MOST_ENTRIES).filter_map(std::result::Result::ok);
    entries
        .filter(|entry| !bad.contains(&entry.offset) && (!entry.name.is_empty() || entry.index.0 != 0))
        .map(|entry| entry.to_attribute())
        .collect()
}

/// Takes the attribute out that the problem names.
fn without_named(list: &mut Vec<Attribute>, problem: &Problem) {
    match problem {
        Problem::HashWrong { name, .. } => {
            list.retain(|attribute| String::from_utf8_lossy(&attribute.name) != name.as_str());
        }
        Problem::ValueInodeInvalid { inode } => list.retain(
            |attribute| !matches!(attribute.value, NewValue::Inode { inode: value, .. } if value == *inode),
        ),
        _ => {}
    }
}

fn clear_in_inode(
    shop: &mut Workshop<'_>,
    number: InodeNumber,
    (problem, gentle): (&Problem, bool),
) -> Result<()> {
    let mut inode = inode::read_unverified(shop, number)?;
    let mut kept = if gentle { sound_in_inode(&inode) } else { Vec::new() };
    without_named(&mut kept, problem);
    let area = inode.attribute_area_mut();
    if kept.is_empty() || xattr::write_inode_area(area, &kept).is_err() {
        inode.attribute_area_mut().fill(0);
    }
    shop.first_time(Whole::Attributes, number);
    inode::write_over(shop, &inode)
}

fn clear_block(
    shop: &mut Workshop<'_>,
    block: BlockNumber,
    (problem, gentle): (&Problem, bool),
) -> Result<()> {
    let bytes = shop.read(block, BlockKind::Plain)?;
    let entry_problem = !matches!(problem, Problem::BlockDamaged { .. });
    if gentle
        && entry_problem
        && let Ok(area) = Area::of_block(&bytes)
    {
        let references = xattr::header(&bytes).map_or(1, |header| header.h_refcount.get());
        let mut kept = sound(&area);
        without_named(&mut kept, problem);
        if !kept.is_empty() {
            let written = modify(shop, block, BlockKind::Attributes, |bytes| {
                xattr::write_block(bytes, &kept, references)
            })?;
            return written.map_err(|defect| defect.at(Place::AttributeBlock(block)));
        }
    }
    for number in owners(shop, block) {
        let mut inode = inode::read_unverified(shop, number)?;
        drop_block(&mut inode)?;
        inode::write_over(shop, &inode)?;
    }
    Ok(())
}

fn drop_block(inode: &mut Inode) -> Result<()> {
    let number = inode.number();
    inode.set_attribute_block(BlockNumber(0)).map_err(|defect| defect.at(Place::Inode(number)))
}

/// Every inode in use whose attributes lie in a block. All inodes are read once in a stage, however many blocks are asked
/// for.
fn owners(shop: &mut Workshop<'_>, block: BlockNumber) -> Vec<InodeNumber> {
    if shop.attribute_owners.is_none() {
        let states = shop.knowledge.states.iter();
        let used = (1u32..).zip(states).filter(|(_, state)| **state & known::USED != 0);
        let mut owners: FxHashMap<BlockNumber, Vec<InodeNumber>> = FxHashMap::default();
        for number in used.filter_map(|(number, _)| InodeNumber::new(number)) {
            if let Ok(inode) = inode::read_unverified(shop, number)
                && inode.view().attribute_block().0 != 0
            {
                owners.entry(inode.view().attribute_block()).or_default().push(number);
            }
        }
        shop.attribute_owners = Some(owners);
    }
    shop.attribute_owners.as_mut().and_then(|owners| owners.remove(&block)).unwrap_or_default()
}
