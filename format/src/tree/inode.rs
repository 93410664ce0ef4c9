//! Reading and writing inodes inside a transaction.

use crate::bytes::{span, span_mut};
use crate::disk::group_desc::GroupFlags;
use crate::disk::inode::{Inode, InodeView};
use crate::error::{Defect, Place, Result};
use crate::ids::{BlockNumber, InodeNumber};
use crate::num::index;
use crate::tree::group;
use crate::txn::{BlockKind, Transaction, modify};

/// Block and byte within it where an inode lies.
pub fn locate(txn: &dyn Transaction, inode: InodeNumber) -> Result<(BlockNumber, usize)> {
    let geometry = &txn.layout().geometry;
    let Some((group, place)) = geometry.inode_place(inode) else {
        let most = geometry.inodes_count().into();
        return Err(Defect::Range { field: "inode number", value: inode.get().into(), least: 1, most }
            .at(Place::Inode(inode)));
    };
    let table = group::read_descriptor(txn, group)?.inode_table;
    Ok(txn.layout().geometry.inode_slot(table, place))
}

/// A copy of an inode, its checksum verified. An inode of a group whose table was never written reads as zero.
pub fn read(txn: &dyn Transaction, number: InodeNumber) -> Result<Inode> {
    read_as(txn, number, BlockKind::Inode(number))
}

/// A copy of an inode whatever its checksum says, for tools that look at damage.
pub fn read_unverified(txn: &dyn Transaction, number: InodeNumber) -> Result<Inode> {
    read_as(txn, number, BlockKind::Plain)
}

fn read_as(txn: &dyn Transaction, number: InodeNumber, kind: BlockKind) -> Result<Inode> {
    let layout = txn.layout();
    let size = index(layout.geometry.inode_size());
    let (block, offset) = locate(txn, number)?;
    if let Some((group, _)) = layout.geometry.inode_place(number)
        && layout.has_lazy_groups()
        && group::read_descriptor(txn, group)?.flags.contains(GroupFlags::INODE_UNINIT)
    {
        return Ok(Inode::fresh(number, size, 0));
    }
    let bytes = txn.read(block, kind)?;
    span(&bytes, offset, size)
        .ok_or(Defect::Truncated { what: "inode" })
        .and_then(|slot| Inode::from_slot(number, slot))
        .map_err(|defect| defect.at(Place::Inode(number)))
}

/// Writes an inode back; its checksum is put right on the block's way out.
///
/// The slot's old contents are verified on the way, so that a damaged block is noticed before it is changed. A slot
/// that was just allocated holds anything: use [`write_over`].
pub fn write(txn: &mut dyn Transaction, inode: &Inode) -> Result<()> {
    let (block, _) = locate(txn, inode.number())?;
    txn.read(block, BlockKind::Inode(inode.number()))?;
    write_over(txn, inode)
}

/// Writes an inode over whatever its slot holds; its checksum is put right on the block's way out.
pub fn write_over(txn: &mut dyn Transaction, inode: &Inode) -> Result<()> {
    let number = inode.number();
    let (block, offset) = locate(txn, number)?;
    let size = index(txn.layout().geometry.inode_size());
    modify(txn, block, BlockKind::Inode(number), |bytes| {
        let slot = span_mut(bytes, offset, size).ok_or(Defect::Truncated { what: "inode" })?;
        inode.store(slot)
    })?
    .map_err(|defect| defect.at(Place::Inode(number)))
}

/// What `i_blocks` says, in units of 512 bytes.
pub fn sectors(txn: &dyn Transaction, view: InodeView<'_>) -> u64 {
    use crate::disk::features::RoCompat;
    use crate::disk::inode::InodeFlags;
    let layout = txn.layout();
    if !layout.features().ro_compat.contains(RoCompat::HUGE_FILE) {
        return view.head().i_blocks_lo.get().into();
    }
    if view.flags().contains(InodeFlags::HUGE_FILE) {
        view.blocks_raw() << layout.geometry.block_bits().saturating_sub(9)
    } else {
        view.blocks_raw()
    }
}

/// Stores a number of 512-byte sectors in `i_blocks`, in the unit that it needs.
pub fn set_sectors(txn: &dyn Transaction, inode: &mut Inode, sectors: u64) -> Result<()> {
    use crate::disk::features::RoCompat;
    use crate::disk::inode::InodeFlags;
    let layout = txn.layout();
    let place = |defect: Defect| defect.at(Place::Inode(inode.number()));
    if !layout.features().ro_compat.contains(RoCompat::HUGE_FILE) {
        Defect::check_range("i_blocks", sectors, 0, u32::MAX.into()).map_err(place)?;
    }
    let needs_blocks = sectors >= 1 << 48;
    let mut flags = inode.view().flags();
    flags.set(InodeFlags::HUGE_FILE, needs_blocks);
    let stored =
        if needs_blocks { sectors >> layout.geometry.block_bits().saturating_sub(9) } else { sectors };
    let number = inode.number();
    inode.set_flags(flags);
    inode.set_blocks_raw(stored).map_err(|defect| defect.at(Place::Inode(number)))
}

/// Adds to `i_blocks`, or takes from it, a number of filesystem blocks.
pub fn change_blocks(txn: &dyn Transaction, inode: &mut Inode, change: i64) -> Result<()> {
    let unit = txn.layout().geometry.block_bits().saturating_sub(9);
    let before = sectors(txn, inode.view());
    let sectors = change.checked_mul(1 << unit).and_then(|change| before.checked_add_signed(change));
    let sectors = sectors.ok_or_else(|| {
        Defect::Contradiction(format!("i_blocks is {before} and would change by {change} blocks"))
            .at(Place::Inode(inode.number()))
    })?;
    set_sectors(txn, inode, sectors)
}
