//! The attributes of one inode as two lists: those in the inode, and those in its block.

use super::block;
use super::value_inode::{Named, NewValues};
use crate::disk::features::Incompat;
use crate::disk::inode::Inode;
use crate::disk::xattr::{
    Area, Attribute, BLOCK_HEADER, INODE_HEADER, NameIndex, NewValue, needed, write_inode_area,
};
use crate::error::{Place, Result};
use crate::ids::InodeNumber;
use crate::txn::Transaction;

/// What the largest value leaves of a block: room for a header, an entry with a short name, and the end of the list.
/// A longer value goes to an inode of its own at once.
const LARGE_VALUE_MARGIN: usize = 56;

/// Where an inode's attributes are, or are to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// In the inode, in their order there.
    pub area: Vec<Attribute>,
    /// In the block; empty without one.
    pub block: Vec<Attribute>,
}

impl Places {
    pub fn read(txn: &dyn Transaction, inode: &Inode) -> Result<Self> {
        Ok(Self { area: read_area(inode)?, block: block::read(txn, inode)? })
    }

    pub fn iter(&self) -> impl Iterator<Item = &Attribute> {
        self.area.iter().chain(&self.block)
    }

    pub fn find(&self, index: NameIndex, name: &[u8]) -> Option<&Attribute> {
        self.iter().find(|attribute| is(attribute, index, name))
    }

    /// Whether the attribute has this value already, beside its entry.
    pub fn holds(&self, index: NameIndex, name: &[u8], value: &[u8]) -> bool {
        self.find(index, name)
            .is_some_and(|found| matches!(&found.value, NewValue::Here(stored) if stored == value))
    }

    /// Takes an attribute out of either list; whether it was there.
    pub fn take(&mut self, index: NameIndex, name: &[u8]) -> bool {
        let before = self.area.len().saturating_add(self.block.len());
        self.area.retain(|attribute| !is(attribute, index, name));
        self.block.retain(|attribute| !is(attribute, index, name));
        self.area.len().saturating_add(self.block.len()) < before
    }

    /// Puts an attribute where it fits; `None` if it does not, and then the lists are of no more use.
    ///
    /// A value that goes to an inode of its own is noted, and the entry names no inode yet.
    pub fn put(
        &mut self,
        room: Room,
        (index, name): (NameIndex, &[u8]),
        value: &[u8],
        values: &mut NewValues,
    ) -> Option<()> {
        self.take(index, name);
        values.forget(index, name);
        if value.len() <= room.longest_here && self.append(room, &here(index, name, value)) {
            return Some(());
        }
        if !room.value_inodes {
            return None;
        }
        let size = u32::try_from(value.len()).ok()?;
        let outside = NewValue::Inode { inode: InodeNumber::ROOT, size, entry_hash: 0 };
        values.note(index, name, value);
        self.append(room, &Attribute { index, name: name.to_vec(), value: outside }).then_some(())
    }

    /// Adds an attribute to the list in the inode, or else to that of the block; `false` if neither has room.
    fn append(&mut self, room: Room, attribute: &Attribute) -> bool {
        for (list, room) in [(&mut self.area, room.area), (&mut self.block, room.block)] {
            list.push(attribute.clone());
            if needed(list) <= room {
                return true;
            }
            list.pop();
        }
        false
    }
}

/// How much there is room for in each place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    area: usize,
    block: usize,
    /// Whether values may have inodes of their own.
    value_inodes: bool,
    /// The longest value that lies beside its entry.
    longest_here: usize,
}

impl Room {
    pub fn of(txn: &dyn Transaction, inode: &Inode) -> Self {
        let block_length = txn.layout().geometry.block_length();
        let value_inodes = txn.layout().features().incompat.contains(Incompat::EA_INODE);
        let longest_here =
            if value_inodes { block_length.saturating_sub(LARGE_VALUE_MARGIN) } else { block_length };
        let block = block_length.saturating_sub(BLOCK_HEADER);
        Self { area: area_room(inode), block, value_inodes, longest_here }
    }
}

/// Whether an attribute has this name.
pub(super) fn is(attribute: &Attribute, index: NameIndex, name: &[u8]) -> bool {
    attribute.index == index && attribute.name == name
}

/// An attribute whose value lies beside its entry.
pub(super) fn here(index: NameIndex, name: &[u8], value: &[u8]) -> Attribute {
    Attribute { index, name: name.to_vec(), value: NewValue::Here(value.to_vec()) }
}

/// Whether the inode can have attributes in it: the kernel looks for none where `i_extra_isize` is 0.
fn has_area(inode: &Inode) -> bool {
    inode.view().extra_size().is_some_and(|size| size > 0)
}

/// How many bytes the attributes in the inode may take.
pub(super) fn area_room(inode: &Inode) -> usize {
    if has_area(inode) { inode.view().attribute_area().len().saturating_sub(INODE_HEADER) } else { 0 }
}

/// The attributes in the inode.
pub(super) fn read_area(inode: &Inode) -> Result<Vec<Attribute>> {
    let view = inode.view();
    let Some(area) = Area::of_inode(view.attribute_area()).filter(|_| has_area(inode)) else {
        return Ok(Vec::new());
    };
    let entries = area.checked().map_err(|defect| defect.at(Place::InodeAttributes(inode.number())))?;
    Ok(entries.iter().map(crate::disk::xattr::Entry::to_attribute).collect())
}

/// Whether attributes fit into the inode.
pub(super) fn fits_area(inode: &Inode, attributes: &[Attribute]) -> bool {
    attributes.is_empty() || needed(attributes) <= area_room(inode)
}

/// Writes the attributes in the inode.
pub(super) fn write_area(inode: &mut Inode, attributes: &[Attribute]) -> Result<()> {
    let place = Place::InodeAttributes(inode.number());
    write_inode_area(inode.attribute_area_mut(), attributes).map_err(|defect| defect.at(place))
}

/// The values that entries of a list name, each with the entry's name.
pub(super) fn named_values(list: &[Attribute]) -> impl Iterator<Item = (&[u8], Named)> {
    list.iter().filter_map(|attribute| match attribute.value {
        NewValue::Here(_) => None,
        NewValue::Inode { inode, size, entry_hash } => {
            Some((attribute.name.as_slice(), Named { inode, size, entry_hash }))
        }
    })
}
