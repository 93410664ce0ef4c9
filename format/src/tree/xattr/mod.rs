//! Extended attributes: in the inode, in a block that inodes may share, and in inodes of their own.
//!
//! Names are whole (`user.x`), and values of access lists have the form of the system calls. [`set`] puts an attribute
//! into the inode if it fits there, else into the attribute block, else (with the feature `ea_inode`) its value into
//! an inode of its own. Functions take the owner as a copy in memory and change its attribute area, `i_file_acl` and
//! `i_blocks`; the caller holds its lock where there is one, keeps its change time, and writes it back.
//!
//! Where to start: `places` holds the attributes of one inode as two lists, on which a change is planned before
//! anything is written; `block` and `value_inode` keep the reference counts.
//!
//! - A block is shared by up to 1024 inodes. It is changed in place by its only owner, and copied by one of several.
//! - A value's inode counts the entries that name it, so a block that is shared counts once.
//! - An owner's `i_blocks` includes its attribute block, and the blocks of each value that its entries name, shared or
//!   not: so the kernel charges quota, and so e2fsck counts.

mod block;
mod names;
mod places;
mod sharing;
mod value_inode;

use std::borrow::Cow;

pub use sharing::Sharing;

use crate::disk::inode::{Inode, Timestamp};
use crate::disk::xattr::{NameIndex, NewValue, full_name};
use crate::error::{Error, Result};
use crate::txn::Transaction;
use names::Name;
use places::{Places, Room};
use value_inode::{Named, NewValues, References};

/// The internal attribute that holds what of a file's inline data does not fit into `i_block`.
pub(crate) const INLINE_DATA: (NameIndex, &[u8]) = (NameIndex::SYSTEM, b"data");

/// What a change of attributes needs besides names and values.
#[derive(Debug)]
pub struct Change<'a> {
    /// The time of the change, for inodes that hold values.
    pub time: Timestamp,
    /// `i_generation` of inodes that are made to hold values.
    pub generation: u32,
    /// Blocks and values made before, so that equal ones are shared; `None` to share nothing new.
    pub sharing: Option<&'a mut Sharing>,
}

impl Change<'_> {
    /// A change at a time that shares nothing new.
    pub fn at(time: Timestamp) -> Self {
        Self { time, generation: 0, sharing: None }
    }
}

/// An attribute's value; `None` if the inode has no attribute of this name.
pub fn get(txn: &dyn Transaction, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let name = Name::parse(name)?;
    let Some(stored) = get_raw(txn, inode, name.index, name.rest)? else { return Ok(None) };
    name.seen(inode.number(), stored).map(Some)
}

/// The whole names of an inode's attributes, those in the inode first. Attributes that programs cannot name are left
/// out: inline data, the encryption context, and those of unknown prefixes.
pub fn list(txn: &dyn Transaction, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    let places = Places::read(txn, inode)?;
    let named = places.iter().filter(|attribute| (attribute.index, attribute.name.as_slice()) != INLINE_DATA);
    Ok(named.filter_map(|attribute| full_name(attribute.index, &attribute.name)).collect())
}

/// Sets an attribute, whether it is there or not.
///
/// An error of the plan ([`Error::AttributeTooBig`], a bad name or value) changes nothing.
pub fn set(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    name: &[u8],
    value: &[u8],
    change: &mut Change<'_>,
) -> Result<()> {
    set_all(txn, inode, &[(name, value)], change)
}

/// Sets several attributes in one step: each block is written once.
pub fn set_all(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    attributes: &[(&[u8], &[u8])],
    change: &mut Change<'_>,
) -> Result<()> {
    let before = Places::read(txn, inode)?;
    let mut after = before.clone();
    let mut values = NewValues::default();
    let room = Room::of(txn, inode);
    for (name, value) in attributes {
        let parsed = Name::parse(name)?;
        let stored: Cow<'_, [u8]> = parsed.stored(inode, value)?;
        if after.holds(parsed.index, parsed.rest, &stored) {
            continue;
        }
        after.put(room, (parsed.index, parsed.rest), &stored, &mut values).ok_or_else(|| {
            Error::AttributeTooBig(format!("{} ({} bytes)", String::from_utf8_lossy(name), value.len()))
        })?;
    }
    write(txn, inode, (before, after), values, change)
}

/// Removes an attribute; [`Error::NotFound`] if it is not there.
pub fn remove(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    name: &[u8],
    change: &mut Change<'_>,
) -> Result<()> {
    let parsed = Name::parse(name)?;
    let before = Places::read(txn, inode)?;
    let mut after = before.clone();
    if !after.take(parsed.index, parsed.rest) {
        return Err(Error::NotFound(String::from_utf8_lossy(name).into_owned()));
    }
    write(txn, inode, (before, after), NewValues::default(), change)
}

/// Gives up all attributes of an inode that is about to be freed: its block, or its share of it, and the values that
/// nothing else names.
pub fn release_all(txn: &mut dyn Transaction, inode: &mut Inode, change: &mut Change<'_>) -> Result<()> {
    let before = Places::read(txn, inode)?;
    let after = Places::default();
    write(txn, inode, (before, after), NewValues::default(), change)
}

/// The value as it is stored, by index and rest of the name. For attributes that programs cannot name as well.
pub(crate) fn get_raw(
    txn: &dyn Transaction,
    inode: &Inode,
    index: NameIndex,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    let places = Places::read(txn, inode)?;
    let Some(attribute) = places.find(index, name) else { return Ok(None) };
    match &attribute.value {
        NewValue::Here(value) => Ok(Some(value.clone())),
        NewValue::Inode { inode: holder, size, entry_hash } => {
            let named = Named { inode: *holder, size: *size, entry_hash: *entry_hash };
            value_inode::read(txn, inode, name, named).map(Some)
        }
    }
}

/// The value of an attribute that has to lie in the inode itself.
pub(crate) fn value_in_inode(inode: &Inode, name: (NameIndex, &[u8])) -> Result<Option<Vec<u8>>> {
    let attributes = places::read_area(inode)?;
    Ok(attributes.into_iter().find_map(|attribute| match attribute.value {
        NewValue::Here(ref value) if places::is(&attribute, name.0, name.1) => Some(value.clone()),
        _ => None,
    }))
}

/// Sets an attribute that has to lie in the inode itself, or removes it; `false` (and nothing changed) if it does not
/// fit. Other attributes stay where they are.
pub(crate) fn set_in_inode(
    inode: &mut Inode,
    name: (NameIndex, &[u8]),
    value: Option<&[u8]>,
) -> Result<bool> {
    let mut attributes = places::read_area(inode)?;
    let position = attributes.iter().position(|attribute| places::is(attribute, name.0, name.1));
    match (position.and_then(|position| attributes.get_mut(position)), value) {
        (Some(attribute), Some(value)) => attribute.value = NewValue::Here(value.to_vec()),
        (None, Some(value)) => attributes.insert(0, places::here(name.0, name.1, value)),
        (_, None) => attributes.retain(|attribute| !places::is(attribute, name.0, name.1)),
    }
    if !places::fits_area(inode, &attributes) {
        return Ok(false);
    }
    places::write_area(inode, &attributes)?;
    Ok(true)
}

/// How long a value of this name may be that lies in the inode itself; `None` if not even an empty one fits.
pub(crate) fn room_in_inode(inode: &Inode, name: (NameIndex, &[u8])) -> Result<Option<usize>> {
    let mut attributes = places::read_area(inode)?;
    attributes.retain(|attribute| !places::is(attribute, name.0, name.1));
    attributes.push(places::here(name.0, name.1, b""));
    let taken = crate::disk::xattr::needed(&attributes);
    // Values take whole words.
    Ok(places::area_room(inode).checked_sub(taken).map(|room| room & !3))
}

/// What of an inode's `i_blocks` its attributes take, in filesystem blocks: its attribute block, and the values that its
/// entries name.
pub fn charged_blocks(txn: &dyn Transaction, inode: &Inode) -> Result<u64> {
    let places = Places::read(txn, inode)?;
    let own = inode.view().attribute_block() != crate::BlockNumber(0);
    let block = if own { txn.layout().geometry.blocks_per_cluster().into() } else { 0 };
    Ok(value_inode::charged(txn, inode, &places)?.unsigned_abs().saturating_add(block))
}

/// Metadata blocks that one change may touch, values apart: owner and values' inodes, two attribute blocks, and for
/// each block that is taken or given back bitmap, descriptor and superblock.
const CREDITS: u32 = 32;

/// Carries a change from one state of an inode's attributes to another.
fn write(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    (before, mut after): (Places, Places),
    mut values: NewValues,
    change: &mut Change<'_>,
) -> Result<()> {
    if before == after {
        return Ok(());
    }
    txn.ensure_credits(CREDITS)?;
    values.create(txn, inode, &mut after, change)?;
    value_inode::recharge(txn, inode, &before, &after)?;
    let mut references = References::default();
    if before.area != after.area {
        places::write_area(inode, &after.area)?;
        references.exchange(&before.area, &after.area);
    }
    if before.block != after.block {
        block::replace(txn, inode, (&before.block, &after.block), &mut references, change)?;
    }
    references.apply(txn, change)?;
    // A value that was made for an entry that turned out to be shared is named by nothing.
    values.drop_unused(txn, change)
}
