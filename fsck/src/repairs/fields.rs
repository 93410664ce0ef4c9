//! Single fields, flags and checksums of inodes, and inodes that have to go.

use ext4kit_format::bytes::le32;
use ext4kit_format::disk::inode::{HEAD_SIZE, Inode, InodeFlags, MAP_SIZE};
use ext4kit_format::disk::one_bit::Bit;
use ext4kit_format::disk::xattr::{self, NameIndex};
use ext4kit_format::error::{Error, Result};
use ext4kit_format::num::{high32, index, low16, low32, wide};
use ext4kit_format::tree::inode;
use ext4kit_format::txn::Transaction;
use ext4kit_format::{InodeNumber, Place};

use super::workshop::{Whole, Workshop};
use super::{attributes, connect, maps, superblock};
use crate::repair::Repair;

/// The inode that a place lies in.
pub fn inode_of(place: &Place) -> Result<InodeNumber> {
    match place {
        Place::Inode(number)
        | Place::InodeAttributes(number)
        | Place::InlineData(number)
        | Place::InlineRest(number)
        | Place::ExtentNode { inode: number, .. }
        | Place::IndirectBlock { inode: number, .. }
        | Place::DirectoryBlock { inode: number, .. } => Ok(*number),
        _ => Err(Error::Invalid(format!("{place} is in no inode"))),
    }
}

/// Puts an inode's problem right.
pub fn apply(shop: &mut Workshop<'_>, place: &Place, repair: &Repair) -> Result<()> {
    match repair {
        Repair::ClearInode(number) => return clear_inode(shop, *number),
        Repair::CreateRoot => return connect::create_root(shop),
        Repair::SetFeature(name) => return superblock::switch(shop.overlay(), name, true, |_| ()),
        Repair::Truncate { .. } => return shorten_inline(shop, inode_of(place)?),
        _ => {}
    }
    let number = inode_of(place)?;
    if shop.is_done(Whole::Cleared, number) {
        return Ok(());
    }
    let mut inode = inode::read_unverified(shop, number)?;
    match repair {
        Repair::FlipBit { byte, bit } => {
            let mut slot = inode.bytes().to_vec();
            Bit { byte: index(*byte), bit: *bit }.flip(&mut slot);
            inode = Inode::from_slot(number, &slot).map_err(|defect| defect.at(place.clone()))?;
        }
        Repair::RefreshChecksum => {}
        Repair::ClearInodeFlags(bits) => {
            let flags = inode.view().flags().difference(InodeFlags::from_bits_retain(*bits));
            inode.set_flags(flags);
        }
        Repair::SetInodeFlags(bits) => {
            let flags = inode.view().flags().union(InodeFlags::from_bits_retain(*bits));
            inode.set_flags(flags);
        }
        Repair::SetField { field, value } => set_field(shop, &mut inode, field, *value)?,
        other => return Err(Error::Invalid(format!("{place}: {other} is no repair of an inode"))),
    }
    inode::write_over(shop, &inode)
}

/// Stores a field by its name in the kernel.
fn set_field(shop: &Workshop<'_>, inode: &mut Inode, field: &str, value: u64) -> Result<()> {
    match field {
        "i_dtime" => inode.set_deletion_time(if value == 0 { 0 } else { shop.now }),
        "i_mode" => inode.set_mode(low16(low32(value))),
        "i_size" => inode.set_size(value),
        "i_links_count" => inode.set_links(low16(low32(value))),
        "i_faddr" => inode.head_mut().i_faddr.set(0),
        "i_file_acl" => {
            inode.head_mut().i_file_acl_lo.set(0);
            inode.head_mut().i_file_acl_high.set(0);
        }
        "i_file_acl_high" => inode.head_mut().i_file_acl_high.set(0),
        "i_blocks_high" => inode.head_mut().i_blocks_high.set(0),
        "i_size_high" => inode.head_mut().i_size_high.set(0),
        "i_extra_isize" => {
            let size = likely_extra_size(inode);
            inode.set_extra_size(size);
        }
        "i_version" => {
            inode.head_mut().i_version_lo.set(low32(value));
            inode.head_mut().i_ctime.set(high32(value));
        }
        "i_blocks" => {
            let in_blocks = inode.view().flags().contains(InodeFlags::HUGE_FILE);
            let shift = shop.layout().geometry.block_bits().saturating_sub(9);
            let sectors = if in_blocks { value << shift } else { value };
            inode::set_sectors(shop, inode, sectors)?;
        }
        _ => return Err(Error::Invalid(format!("inode {}: no field {field} is known", inode.number()))),
    }
    Ok(())
}

/// The size of the extra fields: where attributes begin if there are any, else what is usual.
fn likely_extra_size(inode: &Inode) -> u16 {
    let room = inode.bytes().len().saturating_sub(HEAD_SIZE);
    let begins =
        |size: &u16| le32(inode.bytes(), HEAD_SIZE.saturating_add((*size).into())) == Some(xattr::MAGIC);
    let usual = ext4kit_format::disk::inode::EXTRA_SIZE;
    let found = (4..=u16::try_from(room).unwrap_or(0)).step_by(4).find(begins);
    found.unwrap_or_else(|| usual.min(u16::try_from(room).unwrap_or(0)))
}

/// Frees an inode; what it maps is free with it, unless others have it too.
pub fn clear_inode(shop: &mut Workshop<'_>, number: InodeNumber) -> Result<()> {
    if !shop.first_time(Whole::Cleared, number) {
        return Ok(());
    }
    let geometry = &shop.layout().geometry;
    let reserved = number.get() < geometry.first_inode();
    let mut empty = Inode::fresh(number, index(geometry.inode_size()), 0);
    if !reserved {
        empty.set_deletion_time(shop.now);
    }
    inode::write_over(shop, &empty)
}

/// Inline data whose attribute is missing: what lies in the map is kept, the rest is gone.
fn shorten_inline(shop: &mut Workshop<'_>, number: InodeNumber) -> Result<()> {
    if shop.is_done(Whole::Cleared, number) {
        return Ok(());
    }
    let mut inode = inode::read_unverified(shop, number)?;
    if inode.view().extra_size() == Some(0) {
        // Without extra fields there is no room for attributes behind them.
        let size = likely_extra_size(&inode);
        inode.set_extra_size(size);
    }
    let mut kept = attributes::sound_in_inode(&inode);
    kept.retain(|attribute| !(attribute.index == NameIndex::SYSTEM && attribute.name == b"data"));
    kept.push(xattr::Attribute {
        index: NameIndex::SYSTEM,
        name: b"data".to_vec(),
        value: xattr::NewValue::Here(Vec::new()),
    });
    let size = inode.view().size().min(wide(MAP_SIZE));
    let directory = inode.view().is_directory();
    if xattr::write_inode_area(inode.attribute_area_mut(), &kept).is_err() {
        return maps::empty(shop, &mut inode);
    }
    inode.set_size(if directory { wide(MAP_SIZE) } else { size });
    inode::write_over(shop, &inode)
}
