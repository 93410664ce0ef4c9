//! Writing an overlay's changes to its store.
//!
//! [`commit_new`] is for a target that holds no filesystem worth keeping: everything is written in order and flushed
//! before the superblock is, so that a target on which it was interrupted is no filesystem at all. What held before is
//! made unrecognisable first.

use super::{Overlay, Transaction};
use crate::disk::superblock::{MAGIC, PRIMARY_OFFSET, SIZE};
use crate::error::{Error, Place, Result};
use crate::ids::BlockNumber;
use crate::num::{index, wide};

/// How many bytes of consecutive blocks are written with one call at the most.
const WRITE_SIZE: usize = 1 << 20;

/// Writes a new filesystem. The overlay is without changes afterwards.
pub fn commit_new(overlay: &mut Overlay) -> Result<()> {
    let order = overlay.seal()?;
    let superblock = overlay.layout().geometry.superblock_block();
    forget_old_filesystem(overlay)?;
    write_in_order(overlay, order.iter().copied().filter(|at| *at != superblock))?;
    flush(overlay)?;
    write_in_order(overlay, order.iter().copied().filter(|at| *at == superblock))?;
    flush(overlay)?;
    overlay.discard();
    Ok(())
}

fn flush(overlay: &Overlay) -> Result<()> {
    let length = overlay.store().size();
    overlay.store().flush().map_err(Error::io(Place::Bytes { offset: 0, length }))
}

/// Zeroes the superblock of a filesystem that was there before, at once. Whoever writes file data through to such a store
/// calls this first: blocks of the old filesystem are about to change under it.
pub fn forget_old_filesystem(overlay: &Overlay) -> Result<()> {
    let place = || Place::Superblock;
    let store = overlay.store();
    let mut magic = [0; 2];
    store.read_at(PRIMARY_OFFSET.saturating_add(0x38), &mut magic).map_err(Error::io(place()))?;
    if u16::from_le_bytes(magic) != MAGIC {
        return Ok(());
    }
    store.write_at(PRIMARY_OFFSET, &[0; SIZE]).map_err(Error::io(place()))?;
    flush(overlay)
}

/// Writes changed blocks, in ascending order, joining neighbours into long writes.
pub(super) fn write_in_order(overlay: &Overlay, blocks: impl Iterator<Item = BlockNumber>) -> Result<()> {
    let geometry = &overlay.layout().geometry;
    let mut pending: Vec<u8> = Vec::with_capacity(WRITE_SIZE);
    let mut start = BlockNumber(0);
    for at in blocks {
        let Some(change) = overlay.change(at)? else { continue };
        let next = start.checked_add(wide(pending.len()) >> geometry.block_bits());
        if next != Some(at) || pending.len().saturating_add(index(geometry.block_size())) > WRITE_SIZE {
            write_run(overlay, start, &pending)?;
            pending.clear();
            start = at;
        }
        pending.extend_from_slice(&change.after);
    }
    write_run(overlay, start, &pending)
}

fn write_run(overlay: &Overlay, start: BlockNumber, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let place = Place::Block(start);
    let offset = overlay.layout().geometry.byte_offset(start).ok_or_else(|| {
        crate::Defect::Contradiction("a changed block lies outside the filesystem".to_owned())
            .at(place.clone())
    })?;
    overlay.store().write_at(offset, bytes).map_err(Error::io(place))
}
