//! Files without data blocks of their own: devices, pipes, sockets, symbolic links, inline data.

use ext4kit_format::bytes::{all_zero, le16, le32};
use ext4kit_format::disk::inode::{InodeFlags, InodeView, MAP_SIZE};
use ext4kit_format::num::{index64, wide};
use ext4kit_format::{BlockNumber, InodeNumber};

use super::context::Known;
use super::maps::{self, Piece, View, Visitor};
use crate::finding::MapProblem;

/// Whether a device, pipe or socket can be one. The kernel leaves old map words behind; they count only where the
/// inode cannot be changed, which is how garbage looks.
pub fn is_sound_special(view: InodeView<'_>) -> bool {
    let flags = view.flags();
    if flags.intersects(InodeFlags::INDEX | InodeFlags::EXTENTS) {
        return false;
    }
    !flags.contains(InodeFlags::IMMUTABLE) || view.map().get(16..).is_none_or(all_zero)
}

/// Whether a symbolic link's target lies in the inode's map.
pub fn is_fast_symlink(view: InodeView<'_>) -> bool {
    let size = view.size();
    size > 0 && size < wide(MAP_SIZE) && !view.flags().contains(InodeFlags::INLINE_DATA)
}

struct First(Option<Piece>, u32);

impl Visitor for First {
    fn data(&mut self, piece: Piece) {
        self.0 = self.0.or(Some(piece));
        self.1 = self.1.saturating_add(1);
    }

    fn node(&mut self, _block: BlockNumber) -> bool {
        false
    }

    fn problem(&mut self, _place: ext4kit_format::Place, _problem: MapProblem) {}
}

/// Whether a symbolic link has a target that fits its size.
pub fn is_sound_symlink(known: &Known<'_>, number: InodeNumber, view: InodeView<'_>) -> bool {
    let size = view.size();
    if size == 0 || size > u64::from(u32::MAX) || view.flags().contains(InodeFlags::INDEX) {
        return false;
    }
    if view.flags().contains(InodeFlags::INLINE_DATA) {
        return true;
    }
    if is_fast_symlink(view) {
        return target_fits(view.map(), size, view.flags());
    }
    let geometry = known.geometry();
    if size >= geometry.block_size().into() {
        return false;
    }
    let mut first = First(None, 0);
    maps::walk(View { source: known.source, layout: known.layout }, number, view, &mut first);
    let Some(piece) = first.0.filter(|piece| piece.logical == 0 && piece.length == 1 && first.1 == 1) else {
        return false;
    };
    let block = BlockNumber(piece.physical);
    if !geometry.contains(block) {
        return false;
    }
    known.source.block(block).is_ok_and(|bytes| target_fits(&bytes, size, view.flags()))
}

/// Whether the target ends where the size says; an encrypted one says itself how long it is.
fn target_fits(bytes: &[u8], size: u64, flags: InodeFlags) -> bool {
    if flags.contains(InodeFlags::ENCRYPTED) {
        let stored = u64::from(le16(bytes, 0).unwrap_or(0)).saturating_add(2);
        return stored == size && size <= wide(bytes.len());
    }
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    length == index64(size)
}

/// Whether an inode's map begins like the root of an extent tree although the flag is not set.
pub fn looks_like_extents(view: InodeView<'_>) -> bool {
    if view.flags().intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) {
        return false;
    }
    let map = view.map();
    let head = (le16(map, 0), le16(map, 4), le32(map, 8));
    head.0 == Some(ext4kit_format::disk::extent::MAGIC)
        && head.1 == Some(4)
        && ext4kit_format::disk::extent::Node::parse(map).is_ok()
}
