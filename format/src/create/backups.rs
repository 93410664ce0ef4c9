//! Copies of superblock and descriptors in the backup groups.

use zerocopy::IntoBytes;

use crate::disk::superblock::Superblock;
use crate::error::{Defect, Place, Result};
use crate::num::low16;
use crate::tree::group;
use crate::txn::{BlockKind, Overlay, Transaction, create};

/// Copies the primary superblock and descriptors, as the overlay has them, to every backup group.
///
/// Seals the overlay first, so that the copies carry right checksums. What changes afterwards does not reach them, as
/// with the kernel, which leaves the backups alone but for a few events.
pub fn write_backups(overlay: &mut Overlay) -> Result<()> {
    overlay.seal()?;
    let geometry = overlay.layout().geometry.clone();
    let superblock = group::read_superblock(overlay)?;
    for group in geometry.backup_groups() {
        let Some(at) = geometry.superblock_copy(group) else { continue };
        let mut copy = superblock.clone();
        copy.s_block_group_nr.set(low16(group.0));
        copy.refresh_checksum();
        create(overlay, at, BlockKind::Plain, |bytes| store(&copy, bytes))?
            .map_err(|defect| defect.at(Place::SuperblockCopy(at)))?;
        overlay.ensure_credits(1)?;
    }
    for table_block in 0..geometry.descriptor_blocks() {
        let primary = overlay.read(geometry.descriptor_table_block(table_block), BlockKind::Plain)?;
        for at in geometry.descriptor_table_copies(table_block) {
            create(overlay, at, BlockKind::Plain, |bytes| bytes.copy_from_slice(&primary))?;
            overlay.ensure_credits(1)?;
        }
    }
    Ok(())
}

fn store(superblock: &Superblock, bytes: &mut [u8]) -> Result<(), Defect> {
    superblock.write_to_prefix(bytes).map_err(|_| Defect::Truncated { what: "superblock" })
}
