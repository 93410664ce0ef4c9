//! What maps a file to blocks, walked leniently: everything that can be read is handed on, with what is wrong beside it.
//!
//! The walks use a stack of their own; a tree's depth falls with each step, and a node that the visitor declines is
//! not entered, which is what bounds a tree that hangs together in a circle.

use std::ops::Range;

use ext4kit_format::bytes::{le16, le32};
use ext4kit_format::disk::extent::{self, ExtentLeaf, Node, Slots};
use ext4kit_format::disk::inode::{InodeFlags, InodeView};
use ext4kit_format::layout::Layout;
use ext4kit_format::txn::Owner;
use ext4kit_format::{BlockNumber, Defect, InodeNumber, Place};

use super::proof;
use crate::finding::MapProblem;
use crate::source::Source;

/// Consecutive blocks of a file that lie one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first block, within the file.
    pub logical: u64,
    /// Where it lies.
    pub physical: u64,
    /// How many.
    pub length: u64,
    /// Allocated, but reads as zero.
    pub unwritten: bool,
}

/// Whoever walks along.
pub trait Visitor {
    /// Blocks of the file.
    fn data(&mut self, piece: Piece);

    /// All extents of a leaf that maps a range of the file. Whether they were plainly sound and are taken at once: then
    /// none of them comes as a piece, nor is it asked whether they are in order.
    fn plain_leaf(&mut self, _leaves: &[ExtentLeaf], _range: &Range<u64>) -> bool {
        false
    }

    /// A block of the map itself; whether to enter it.
    fn node(&mut self, block: BlockNumber) -> bool;

    /// Something is wrong.
    fn problem(&mut self, place: Place, problem: MapProblem);
}

/// Blocks and layout, as every walk needs them.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The blocks.
    pub source: &'a Source,
    /// The shape of the filesystem.
    pub layout: &'a Layout,
}

/// Walks the map of an inode, which has one.
pub fn walk(view: View<'_>, number: InodeNumber, inode: InodeView<'_>, visitor: &mut impl Visitor) {
    if inode.flags().contains(InodeFlags::EXTENTS) {
        walk_extents(view, number, inode, visitor);
    } else {
        walk_block_map(view, number, inode, visitor);
    }
}

/// A node that is still to be entered: its block, its depth, the logical range it may map, and where it begins.
struct Pending {
    block: BlockNumber,
    depth: u16,
    end: u64,
    start: u64,
}

fn walk_extents(view: View<'_>, number: InodeNumber, inode: InodeView<'_>, visitor: &mut impl Visitor) {
    let mut pending: Vec<Pending> = Vec::new();
    let mut buffer = Vec::new();
    let place = |block| Place::ExtentNode { inode: number, block };
    enter(inode.map(), None, 0..u64::from(u32::MAX), (&mut pending, &place(None), visitor));
    while let Some(next) = pending.pop() {
        let place = place(Some(next.block));
        if !view.layout.geometry.contains(next.block) {
            visitor.problem(place, MapProblem::BlockInvalid { logical: next.start, block: next.block });
            continue;
        }
        if !visitor.node(next.block) {
            continue;
        }
        let bytes = match view.source.read_block(next.block, &mut buffer) {
            Ok(bytes) => bytes,
            Err(error) => {
                visitor.problem(place, MapProblem::Unreadable { why: error.to_string() });
                continue;
            }
        };
        let owner = Owner { inode: number, generation: inode.generation() };
        let range = next.start..next.end;
        let seed = view.layout.inode_seed(owner);
        let sum = seed.map_or(Ok(()), |seed| extent::verify_checksum(bytes, seed));
        let whole = Node::parse(bytes).is_ok_and(|node| node.depth() == next.depth);
        if (sum.is_err() || !whole)
            && let Some(seed) = seed
            && let Some(fixed) = proof::node(bytes, next.depth, seed)
        {
            visitor.problem(place.clone(), MapProblem::NodeProven {});
            enter(&fixed, Some(next.depth), range, (&mut pending, &place, visitor));
            continue;
        }
        if let Err(defect @ Defect::Checksum { .. }) = sum {
            visitor.problem(place.clone(), MapProblem::ChecksumWrong { defect });
        }
        let capacity = extent::block_capacity(view.layout.geometry.block_size());
        let stored = le16(bytes, 4).unwrap_or(0);
        if whole && stored < capacity.saturating_sub(2) {
            visitor.problem(place.clone(), MapProblem::CapacityWrong { stored, wanted: capacity });
        }
        enter(bytes, Some(next.depth), range, (&mut pending, &place, visitor));
    }
}

/// Takes a node apart: extents go to the visitor, children to the stack in reverse, so that they come in order.
fn enter(
    bytes: &[u8],
    depth: Option<u16>,
    range: Range<u64>,
    (pending, place, visitor): (&mut Vec<Pending>, &Place, &mut impl Visitor),
) {
    let node = match Node::parse(bytes) {
        Ok(node) => node,
        Err(defect) => return visitor.problem(place.clone(), MapProblem::NodeDamaged { defect }),
    };
    if let Some(wanted) = depth
        && node.depth() != wanted
    {
        let problem = MapProblem::DepthWrong { stored: node.depth(), wanted };
        return visitor.problem(place.clone(), problem);
    }
    let taken = matches!(node.slots(), Slots::Leaf(leaves) if visitor.plain_leaf(leaves, &range));
    if !taken {
        for (_, defect) in node.check_order(range.clone()).into_iter().take(8) {
            visitor.problem(place.clone(), MapProblem::OrderWrong { defect });
        }
    }
    let first = match node.slots() {
        Slots::Leaf(leaves) => leaves.first().map(|leaf| leaf.ee_block.get()),
        Slots::Index(indexes) => indexes.first().map(|slot| slot.ei_block.get()),
    };
    if let (Some(first), Some(_)) = (first, depth)
        && u64::from(first) > range.start
    {
        let problem = MapProblem::IndexStartWrong { stored: range.start, wanted: first.into() };
        visitor.problem(place.clone(), problem);
    }
    for extent in node.extents().filter(|extent| extent.length > 0 && !taken) {
        visitor.data(Piece {
            logical: extent.logical.0.into(),
            physical: extent.physical.0,
            length: extent.length.into(),
            unwritten: extent.unwritten,
        });
    }
    let mut end = range.end;
    for slot in node.indexes().iter().rev() {
        let start = u64::from(slot.ei_block.get());
        let depth = node.depth().saturating_sub(1);
        pending.push(Pending { block: slot.child(), depth, end, start });
        end = start.min(end);
    }
}

/// A block of pointers that is still to be entered: how many levels lie below, and its first logical block.
struct Pointers {
    block: u32,
    level: u32,
    logical: u64,
}

fn walk_block_map(view: View<'_>, number: InodeNumber, inode: InodeView<'_>, visitor: &mut impl Visitor) {
    let geometry = &view.layout.geometry;
    let per_block_bits = geometry.block_bits().saturating_sub(2);
    let word = |at: usize| le32(inode.map(), at.saturating_mul(4)).unwrap_or(0);
    let mut run = Joined { piece: None };
    for at in 0..12 {
        run.add(u64::try_from(at).unwrap_or(0), word(at), visitor);
    }
    let per_block = u64::from(geometry.pointers_per_block());
    let (double, triple) = (per_block.saturating_mul(per_block), per_block.saturating_add(12));
    let starts = [12, triple, triple.saturating_add(double)];
    let mut pending: Vec<Pointers> = Vec::new();
    let mut buffer = Vec::new();
    for level in (0u32..3).rev() {
        let at = usize::try_from(level).unwrap_or(0);
        let logical = starts.get(at).copied().unwrap_or(0);
        pending.push(Pointers { block: word(at.saturating_add(12)), level, logical });
    }
    while let Some(next) = pending.pop() {
        if next.block == 0 {
            continue;
        }
        run.flush(visitor);
        let block = BlockNumber(next.block.into());
        let place = Place::IndirectBlock { inode: number, block };
        if !geometry.contains(block) {
            visitor.problem(Place::Inode(number), MapProblem::BlockInvalid { logical: next.logical, block });
            continue;
        }
        if !visitor.node(block) {
            continue;
        }
        let bytes = match view.source.read_block(block, &mut buffer) {
            Ok(bytes) => bytes,
            Err(error) => {
                visitor.problem(place, MapProblem::Unreadable { why: error.to_string() });
                continue;
            }
        };
        let (words, _) = bytes.as_chunks::<4>();
        if next.level == 0 {
            for (at, word) in (0u64..).zip(words) {
                run.add(next.logical.saturating_add(at), u32::from_le_bytes(*word), visitor);
            }
            continue;
        }
        let span = 1u64 << per_block_bits.saturating_mul(next.level);
        for (at, word) in words.iter().enumerate().rev() {
            let block = u32::from_le_bytes(*word);
            if block != 0 {
                let logical = next.logical.saturating_add(ext4kit_format::num::wide(at).saturating_mul(span));
                pending.push(Pointers { block, level: next.level.saturating_sub(1), logical });
            }
        }
    }
    run.flush(visitor);
}

/// Joins single blocks to pieces.
struct Joined {
    piece: Option<Piece>,
}

impl Joined {
    fn add(&mut self, logical: u64, block: u32, visitor: &mut impl Visitor) {
        if block == 0 {
            return;
        }
        let physical = u64::from(block);
        if let Some(piece) = &mut self.piece
            && piece.logical.saturating_add(piece.length) == logical
            && piece.physical.saturating_add(piece.length) == physical
        {
            piece.length = piece.length.saturating_add(1);
            return;
        }
        self.flush(visitor);
        self.piece = Some(Piece { logical, physical, length: 1, unwritten: false });
    }

    fn flush(&mut self, visitor: &mut impl Visitor) {
        if let Some(piece) = self.piece.take() {
            visitor.data(piece);
        }
    }
}
