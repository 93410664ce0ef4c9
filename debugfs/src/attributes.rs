//! Extended attributes of an inode: those in its slot, then those in its block.
//!
//! Unlike the trees of `format`, this keeps what can be read of a damaged area, and shows attributes that are internal.

use ext4kit_format::disk::inode::Inode;
use ext4kit_format::disk::xattr::{Area, Entry, MAX_VALUE, Value, full_name};
use ext4kit_format::tree::{file, inode};
use ext4kit_format::txn::{BlockKind, Transaction};
use ext4kit_format::{Error, InodeNumber, Place, Result};

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its full name.
    pub name: Vec<u8>,
    /// Length of its value in bytes.
    pub size: u32,
    /// Its value, or the inode that holds it.
    pub value: Held,
}

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// With the entry.
    Here(Vec<u8>),
    /// In an inode.
    Inode(InodeNumber),
}

/// The attributes that can be read, and what cannot.
pub fn list(txn: &dyn Transaction, owner: &Inode) -> (Vec<Attribute>, Vec<Error>) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    if let Some(area) = Area::of_inode(owner.view().attribute_area()) {
        collect(area, &Place::InodeAttributes(owner.number()), &mut found, &mut errors);
    }
    let at = owner.view().attribute_block();
    if at.0 != 0 {
        let place = Place::AttributeBlock(at);
        match txn.read(at, BlockKind::Attributes) {
            Err(error) => errors.push(error),
            Ok(block) => match Area::of_block(&block) {
                Ok(area) => collect(area, &place, &mut found, &mut errors),
                Err(defect) => errors.push(defect.at(place)),
            },
        }
    }
    (found, errors)
}

fn collect(area: Area<'_>, place: &Place, found: &mut Vec<Attribute>, errors: &mut Vec<Error>) {
    for entry in area.entries() {
        match entry {
            Ok(entry) => found.push(attribute(&entry)),
            Err(bad) => errors.push(bad.defect.at(place.clone())),
        }
    }
}

fn attribute(entry: &Entry<'_>) -> Attribute {
    // Names without a prefix that is known, such as that of encryption, stand alone, as debugfs prints them.
    let name = full_name(entry.index, entry.name).unwrap_or_else(|| entry.name.to_vec());
    match entry.value {
        Value::Here(value) => Attribute {
            name,
            size: u32::try_from(value.len()).unwrap_or(u32::MAX),
            value: Held::Here(value.to_vec()),
        },
        Value::Inode { inode, size } => Attribute { name, size, value: Held::Inode(inode) },
    }
}

/// The value of an attribute, from its inode if it has one.
pub fn value(txn: &dyn Transaction, attribute: &Attribute) -> Result<Vec<u8>> {
    match &attribute.value {
        Held::Here(value) => Ok(value.clone()),
        Held::Inode(number) => {
            let holder = inode::read(txn, *number)?;
            let most = u64::from(attribute.size.min(MAX_VALUE));
            file::read_all(txn, &holder, most)
        }
    }
}
