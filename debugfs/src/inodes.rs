//! Every inode that was ever used, group by group.

use ext4kit_format::disk::group_desc::GroupFlags;
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::tree::{group, inode};
use ext4kit_format::txn::Transaction;
use ext4kit_format::{Error, Result};

/// Calls `visit` for each inode in the part of the tables that was used, until it says to stop; what could not be read
/// is returned. The number of inodes bounds the walk; a table that cannot be read is left with its first error.
pub fn for_each(txn: &dyn Transaction, visit: &mut dyn FnMut(&Inode) -> bool) -> Vec<Error> {
    let mut errors = Vec::new();
    for number in txn.layout().geometry.groups() {
        match of_group(txn, number, visit, &mut errors) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => errors.push(error),
        }
    }
    errors
}

fn of_group(
    txn: &dyn Transaction,
    number: ext4kit_format::GroupNumber,
    visit: &mut dyn FnMut(&Inode) -> bool,
    errors: &mut Vec<Error>,
) -> Result<bool> {
    let descriptor = group::read_descriptor(txn, number)?;
    let geometry = &txn.layout().geometry;
    let mut used = geometry.inodes_per_group();
    if txn.layout().has_lazy_groups() {
        if descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(true);
        }
        used = used.saturating_sub(descriptor.unused_inodes);
    }
    for place in 0..used {
        let Some(number) = geometry.inode_at(number, place) else { break };
        match inode::read(txn, number) {
            Ok(inode) if !visit(&inode) => return Ok(false),
            Ok(_) => {}
            // One inode may be damaged alone; where its block cannot be read, its neighbours cannot either.
            Err(error @ Error::Corrupt { place: ext4kit_format::Place::Inode(_), .. }) => errors.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
