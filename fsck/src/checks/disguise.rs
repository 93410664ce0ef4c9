//! Inodes whose mode does not say what they are: a damaged mode must not cost a directory its names.

use ext4kit_format::BlockNumber;
use ext4kit_format::InodeNumber;
use ext4kit_format::bytes::le32;
use ext4kit_format::disk::dirent::{self, EntryFormat, INLINE_ENTRIES};
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::inode::{FileKind, InodeFlags, InodeView};

use super::context::Known;
use super::maps::{self, Piece, View, Visitor};
use crate::finding::MapProblem;
use ext4kit_format::Place;

/// Whether an inode that is no regular file, directory or symbolic link by its mode has the contents of a directory:
/// `.` that names it, and `..`.
pub fn is_really_directory(known: &Known<'_>, number: InodeNumber, view: InodeView<'_>) -> bool {
    let kind = view.kind();
    let usual = matches!(kind, Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink));
    let first = le32(view.map(), 0).unwrap_or(0);
    if usual || first == 0 {
        return false;
    }
    let format = EntryFormat {
        block_size: known.geometry().block_size(),
        file_type: known.features().incompat.contains(Incompat::FILETYPE),
        hashed: false,
    };
    if view.flags().contains(InodeFlags::INLINE_DATA) {
        return known.features().incompat.contains(Incompat::INLINE_DATA) && is_inline(known, format, view);
    }
    let device = matches!(kind, Some(FileKind::CharacterDevice | FileKind::BlockDevice));
    let words = view.map().as_chunks::<4>().0;
    let more = words.iter().skip(4).any(|word| *word != [0; 4]);
    if device && view.links() == 1 && !more {
        return false;
    }
    let mut finder = First { block: None, nodes: 0 };
    maps::walk(View { source: known.source, layout: known.layout }, number, view, &mut finder);
    let block = finder.block.filter(|block| known.geometry().contains(*block));
    block
        .and_then(|block| known.source.block(block).ok())
        .is_some_and(|bytes| has_dots(format, &bytes, number))
}

fn has_dots(format: EntryFormat, bytes: &[u8], number: InodeNumber) -> bool {
    let mut entries = format.entries(bytes).take(2);
    let (Some(Ok(own)), Some(Ok(parent))) = (entries.next(), entries.next()) else { return false };
    own.name == b"." && own.inode == Some(number) && parent.name == b".." && parent.inode.is_some()
}

/// Whether inline data reads as entries, the first of which names an inode that there is.
fn is_inline(known: &Known<'_>, format: EntryFormat, view: InodeView<'_>) -> bool {
    let exists = |inode: InodeNumber| known.geometry().inode_place(inode).is_some();
    let area = view.map().get(INLINE_ENTRIES).unwrap_or_default();
    let sound = format.entries(area).all(|entry| entry.is_ok_and(|entry| entry.inode.is_none_or(exists)));
    dirent::inline_parent(view.map()).is_some_and(exists) && sound
}

/// Finds the block that the file begins with, without following damage.
struct First {
    block: Option<BlockNumber>,
    nodes: u32,
}

/// Blocks of a map that lead to the first block of a file: no tree is deeper.
const MOST_NODES: u32 = 6;

impl Visitor for First {
    fn data(&mut self, piece: Piece) {
        if piece.logical == 0 {
            self.block = Some(BlockNumber(piece.physical));
        }
    }

    fn node(&mut self, _block: BlockNumber) -> bool {
        self.nodes = self.nodes.saturating_add(1);
        self.block.is_none() && self.nodes <= MOST_NODES
    }

    fn problem(&mut self, _place: Place, _problem: MapProblem) {}
}
