//! Which blocks and inodes are in use. A bitmap that was never written is made up from what its group holds.

use ext4kit_cli::exit::Failure;
use ext4kit_format::disk::bitmap::{self, Bits};
use ext4kit_format::disk::group_desc::GroupFlags;
use ext4kit_format::tree::{alloc, group};
use ext4kit_format::txn::{BlockKind, Transaction};
use ext4kit_format::{BlockNumber, GroupNumber, InodeNumber, Result};

use crate::session::Open;
use crate::table::Call;

/// The open filesystem, if its bitmaps may be read.
pub fn allowed<'a>(call: &'a Call<'_>) -> Result<&'a Open, Failure> {
    let open = call.open()?;
    if open.bitmaps { Ok(open) } else { Err(call.refuse("Filesystem bitmaps not loaded")) }
}

/// A group's block bitmap.
pub fn of_blocks(txn: &dyn Transaction, number: GroupNumber) -> Result<Vec<u8>> {
    let descriptor = group::read_descriptor(txn, number)?;
    let geometry = &txn.layout().geometry;
    if !txn.layout().has_lazy_groups() || !descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
        return Ok(txn.read(descriptor.block_bitmap, BlockKind::BlockBitmap(number))?.to_vec());
    }
    let mut bytes = vec![0; geometry.block_length()];
    for run in alloc::own_metadata(geometry, number, &descriptor) {
        // Tables of other groups may lie in this one; where flex groups are used, such a group is never left out.
        for block in run.iter().take(geometry.blocks_per_group() as usize) {
            if let Some((owner, bit)) = geometry.bit_of(block).filter(|(owner, _)| *owner == number) {
                debug_assert_eq!(owner, number, "filtered");
                bitmap::set(&mut bytes, bit);
            }
        }
    }
    Ok(bytes)
}

/// A group's inode bitmap.
pub fn of_inodes(txn: &dyn Transaction, number: GroupNumber) -> Result<Vec<u8>> {
    let descriptor = group::read_descriptor(txn, number)?;
    if txn.layout().has_lazy_groups() && descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
        return Ok(vec![0; txn.layout().geometry.block_length()]);
    }
    Ok(txn.read(descriptor.inode_bitmap, BlockKind::InodeBitmap(number))?.to_vec())
}

/// Whether a block is in use; `None` for a block of no group.
pub fn block_in_use(txn: &dyn Transaction, block: BlockNumber) -> Result<Option<bool>> {
    let Some((number, bit)) = txn.layout().geometry.bit_of(block) else { return Ok(None) };
    Ok(Some(Bits(&of_blocks(txn, number)?).is_set(bit)))
}

/// Whether an inode is in use; `None` for a number that is none.
pub fn inode_in_use(txn: &dyn Transaction, inode: InodeNumber) -> Result<Option<bool>> {
    let Some((number, place)) = txn.layout().geometry.inode_place(inode) else { return Ok(None) };
    Ok(Some(Bits(&of_inodes(txn, number)?).is_set(place)))
}
