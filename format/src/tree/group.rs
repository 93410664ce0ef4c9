//! Reading and changing the superblock and group descriptors inside a transaction.

use zerocopy::IntoBytes;

use crate::bytes::{span, span_mut};
use crate::disk::group_desc::GroupDescriptor;
use crate::disk::superblock::Superblock;
use crate::error::{Defect, Place, Result};
use crate::ids::GroupNumber;
use crate::num::index;
use crate::txn::{BlockKind, Transaction, modify};

/// The descriptor of a group, its checksum verified.
pub fn read_descriptor(txn: &dyn Transaction, group: GroupNumber) -> Result<GroupDescriptor> {
    let layout = txn.layout();
    check_group(txn, group)?;
    let (block, offset) = layout.geometry.descriptor_slot(group);
    let bytes = txn.read(block, BlockKind::Descriptor(group))?;
    let descriptor = span(&bytes, offset, index(layout.geometry.descriptor_size()))
        .ok_or_else(|| Defect::Truncated { what: "descriptor table" }.at(Place::GroupDescriptor(group)))?;
    let parsed =
        GroupDescriptor::parse(descriptor).map_err(|defect| defect.at(Place::GroupDescriptor(group)))?;
    Ok(parsed)
}

/// Changes the descriptor of a group. A value that does not fit a short descriptor is an error and changes nothing.
pub fn update_descriptor(
    txn: &mut dyn Transaction,
    group: GroupNumber,
    change: impl FnOnce(&mut GroupDescriptor),
) -> Result<()> {
    check_group(txn, group)?;
    let (block, offset) = txn.layout().geometry.descriptor_slot(group);
    let size = index(txn.layout().geometry.descriptor_size());
    let stored = modify(txn, block, BlockKind::Descriptor(group), |bytes| {
        let bytes = span_mut(bytes, offset, size).ok_or(Defect::Truncated { what: "descriptor table" })?;
        let mut descriptor = GroupDescriptor::parse(bytes)?;
        change(&mut descriptor);
        descriptor.store(bytes)
    })?;
    stored.map_err(|defect| defect.at(Place::GroupDescriptor(group)))
}

fn check_group(txn: &dyn Transaction, group: GroupNumber) -> Result<()> {
    let most = txn.layout().geometry.group_count().saturating_sub(1);
    Defect::check_range("group number", group.0.into(), 0, most.into())
        .map_err(|defect| defect.at(Place::GroupDescriptor(group)))
}

/// The primary superblock as the transaction sees it.
pub fn read_superblock(txn: &dyn Transaction) -> Result<Superblock> {
    let geometry = &txn.layout().geometry;
    let bytes = txn.read(geometry.superblock_block(), BlockKind::Superblock)?;
    let area = bytes.get(geometry.superblock_offset()..).unwrap_or_default();
    Superblock::parse(area).map_err(|defect| defect.at(Place::Superblock))
}

/// Changes the primary superblock. A change of features or sizes takes effect on the transaction only when it is
/// given a new layout.
pub fn update_superblock(txn: &mut dyn Transaction, change: impl FnOnce(&mut Superblock)) -> Result<()> {
    let block = txn.layout().geometry.superblock_block();
    let offset = txn.layout().geometry.superblock_offset();
    let stored = modify(txn, block, BlockKind::Superblock, |bytes| {
        let truncated = || Defect::Truncated { what: "superblock" };
        let area = bytes.get_mut(offset..).ok_or_else(truncated)?;
        let mut superblock = Superblock::parse(area)?;
        change(&mut superblock);
        superblock.write_to_prefix(area).map_err(|_| truncated())
    })?;
    stored.map_err(|defect| defect.at(Place::Superblock))
}
