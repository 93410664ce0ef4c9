//! What is asked for after a check that found or left nothing wrong: free blocks given back to the device, and every place
//! where a file is not in one piece. Both go by what is really in use.

use std::io;

use ext4kit_format::disk::inode::{FileKind, InodeFlags};
use ext4kit_format::error::{Error, Result};
use ext4kit_format::num::wide;
use ext4kit_format::tree::inode;
use ext4kit_format::{BlockNumber, InodeNumber, Place};

use crate::check::{self, Observer};
use crate::checks::context::{Knowledge, known};
use crate::checks::maps::{self, Piece, View, Visitor};
use crate::checks::special;
use crate::finding::{Finding, MapProblem};
use crate::opening::Opened;

/// Hears nothing.
struct Deaf;

impl Observer for Deaf {
    fn finding(&mut self, _finding: Finding) {}
}

/// What a whole check of a sound filesystem learns.
pub fn learn(opened: &Opened) -> Knowledge {
    check::round(opened, &mut Deaf).1
}

/// Tells the device that free blocks are not needed; how many bytes that are. `None` if the device cannot be told.
///
/// The caller has committed all changes: blocks that were in use before a repair may be free only by it.
pub fn discard(opened: &Opened, knowledge: &Knowledge) -> Result<Option<u64>> {
    let geometry = &opened.source.layout().geometry;
    let bits = geometry.cluster_bits();
    let used = &knowledge.claims.used;
    let last = geometry.blocks_count() >> bits;
    let mut from = geometry.first_data_block().0 >> bits;
    let mut told = 0u64;
    while let Some(start) = used.next_absent(from..last) {
        let end = used.next(start..last).unwrap_or(last);
        let length = end.saturating_sub(start);
        let bytes = (length << bits) << geometry.block_bits();
        let at = BlockNumber(start << bits);
        let outside = || Error::Invalid(format!("block {at} lies outside the filesystem"));
        let offset = geometry.byte_offset(at).ok_or_else(outside)?;
        match opened.source.store().discard(offset, bytes) {
            Ok(()) => told = told.saturating_add(bytes),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
            Err(error) => return Err(Error::io(Place::Block(at))(error)),
        }
        from = end;
    }
    Ok(Some(told))
}

/// A place where a file goes on somewhere else than behind its last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Break {
    /// The file.
    pub inode: InodeNumber,
    /// Whether it is a directory.
    pub directory: bool,
    /// Whether it has extents.
    pub extents: bool,
    /// The block behind the last one.
    pub expected: u64,
    /// Where it goes on.
    pub piece: Piece,
}

impl std::fmt::Display for Break {
    /// As e2fsck prints it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.directory { 'd' } else { 'f' };
        let Piece { logical, physical, length, .. } = self.piece;
        write!(f, "{:>6}({kind}): expecting {:>6} ", self.inode.get(), self.expected)?;
        if self.extents {
            write!(f, "actual extent phys {physical:>6} log {logical} len {length}")
        } else {
            write!(f, "got phys {physical:>6} (blkcnt {logical})")
        }
    }
}

struct Breaks<'b> {
    inode: InodeNumber,
    directory: bool,
    extents: bool,
    expected: Option<u64>,
    tell: &'b mut dyn FnMut(Break),
}

impl Visitor for Breaks<'_> {
    fn data(&mut self, piece: Piece) {
        if let Some(expected) = self.expected.filter(|expected| *expected != piece.physical) {
            let Self { inode, directory, extents, .. } = *self;
            (self.tell)(Break { inode, directory, extents, expected, piece });
        }
        self.expected = Some(piece.physical.saturating_add(piece.length));
    }

    /// In a sound filesystem every node belongs to one map.
    fn node(&mut self, _block: BlockNumber) -> bool {
        true
    }

    fn problem(&mut self, _place: Place, _problem: MapProblem) {}
}

/// Every place where a file or directory of a sound filesystem is not in one piece, in order of inodes.
pub fn fragments(opened: &Opened, knowledge: &Knowledge, tell: &mut dyn FnMut(Break)) -> Result<()> {
    let view = View { source: &opened.source, layout: opened.source.layout() };
    for (at, state) in (0u64..).zip(&knowledge.states) {
        let Some(number) = u32::try_from(at.saturating_add(1)).ok().and_then(InodeNumber::new) else { break };
        // These two are lists of blocks, not files.
        if state & (known::USED | known::HIDDEN) == 0
            || [InodeNumber::BAD_BLOCKS, InodeNumber::RESIZE].contains(&number)
        {
            continue;
        }
        let file = inode::read_unverified(&opened.source.overlay, number)?;
        let mapped = match file.view().kind() {
            Some(FileKind::Regular | FileKind::Directory) => true,
            Some(FileKind::Symlink) => !special::is_fast_symlink(file.view()),
            _ => false,
        };
        let flags = file.view().flags();
        if !mapped || flags.contains(InodeFlags::INLINE_DATA) {
            continue;
        }
        let directory = file.view().is_directory();
        let extents = flags.contains(InodeFlags::EXTENTS);
        let mut breaks = Breaks { inode: number, directory, extents, expected: None, tell };
        maps::walk(view, number, file.view(), &mut breaks);
    }
    debug_assert!(wide(knowledge.states.len()) <= view.layout.geometry.inodes_count().into());
    Ok(())
}
