//! Everything that an inode maps, in the order of its map: tree nodes and blocks of pointers before what hangs from
//! them.
//!
//! Numbers are passed on as they are stored, for damage is what people look for. The walk is bounded: a block of the
//! map is entered once only, and each holds only so many slots.

use std::collections::HashSet;

use ext4kit_format::bytes::le32;
use ext4kit_format::disk::extent::{Extent, Node, Slots};
use ext4kit_format::disk::inode::{Inode, InodeFlags};
use ext4kit_format::txn::{Block, BlockKind, Transaction};
use ext4kit_format::{BlockNumber, Defect, Error, Place, Result};
use serde::Serialize;

/// A piece of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Piece {
    /// A block of an extent tree.
    ExtentNode {
        /// How deep: 0 for a child of the root.
        level: u16,
        /// Where it lies.
        block: u64,
    },
    /// A block of pointers.
    Pointers {
        /// How many levels of blocks hang from it: 1 to 3.
        levels: u8,
        /// Where it lies.
        block: u64,
    },
    /// Consecutive blocks of the file.
    Data {
        /// The first, in the file.
        logical: u64,
        /// Where it lies.
        block: u64,
        /// How many.
        length: u64,
        /// Mapped, but never written.
        unwritten: bool,
    },
}

/// What a walk found, and what stopped it.
#[derive(Debug, Default)]
pub struct Walked {
    /// The pieces in order.
    pub pieces: Vec<Piece>,
    /// What could not be read; the walk goes on beside it.
    pub errors: Vec<Error>,
}

/// A slot of an extent node, for listings of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSlot {
    /// Depth of its node: 0 for the root.
    pub level: u16,
    /// Depth of the whole tree.
    pub depth: u16,
    /// Number of the slot in its node, from 1.
    pub position: usize,
    /// Slots in use in its node.
    pub count: usize,
    /// What is in it.
    pub content: SlotContent,
}

/// What a slot of an extent node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotContent {
    /// A child node.
    Child {
        /// First block of the file that hangs from it.
        logical: u64,
        /// The first block of the file behind it.
        end: u64,
        /// Where it lies.
        block: u64,
    },
    /// Blocks of the file.
    Extent(Extent),
}

/// Whether the inode has a map: `i_block` may hold a link's target, a device number or contents instead.
pub fn has_map(inode: &Inode) -> bool {
    !inode.view().flags().contains(InodeFlags::INLINE_DATA)
}

/// What the root of an extent tree, in the inode itself, names. Nothing if it is no root.
pub fn root_pieces(inode: &Inode) -> Vec<Piece> {
    match Node::parse(inode.view().map()).map(|node| node.slots()) {
        Ok(Slots::Leaf(leaves)) => leaves.iter().map(|leaf| extent_piece(leaf.extent())).collect(),
        Ok(Slots::Index(children)) => {
            let pieces = children.iter().map(|child| Piece::ExtentNode { level: 0, block: child.child().0 });
            pieces.collect()
        }
        Err(_) => Vec::new(),
    }
}

/// What the words of a block map in the inode itself name, whatever the inode is.
pub fn pointer_pieces(inode: &Inode) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let words = inode.view().map().as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
    for (place, block) in (0u64..).zip(words).filter(|(_, block)| *block != 0) {
        if let Some(levels) =
            u8::try_from(place).ok().and_then(|place| place.checked_sub(11)).filter(|at| *at > 0)
        {
            pieces.push(Piece::Pointers { levels, block });
            continue;
        }
        match pieces.last_mut() {
            Some(Piece::Data { logical, block: start, length, .. })
                if *logical + *length == place && *start + *length == block =>
            {
                *length += 1;
            }
            _ => pieces.push(Piece::Data { logical: place, block, length: 1, unwritten: false }),
        }
    }
    pieces
}

fn extent_piece(extent: Extent) -> Piece {
    Piece::Data {
        logical: extent.logical.0.into(),
        block: extent.physical.0,
        length: extent.length.into(),
        unwritten: extent.unwritten,
    }
}

/// Everything that an inode maps.
pub fn pieces(txn: &dyn Transaction, inode: &Inode) -> Walked {
    if inode.view().flags().contains(InodeFlags::EXTENTS) {
        let (slots, errors) = extent_slots(txn, inode);
        let pieces = slots.into_iter().map(|slot| match slot.content {
            SlotContent::Child { block, .. } => Piece::ExtentNode { level: slot.level, block },
            SlotContent::Extent(extent) => extent_piece(extent),
        });
        return Walked { pieces: pieces.collect(), errors };
    }
    let mut walk = PointerWalk { txn, inode, seen: HashSet::new(), found: Walked::default(), logical: 0 };
    walk.all();
    walk.found
}

/// A node on the way down: its bytes, its depth below the root, the next slot, and where its part of the file ends.
struct Level {
    bytes: Block,
    next: usize,
    end: u64,
}

/// Every slot of an extent tree, each child before what hangs from it.
pub fn extent_slots(txn: &dyn Transaction, inode: &Inode) -> (Vec<TreeSlot>, Vec<Error>) {
    let (mut slots, mut errors) = (Vec::new(), Vec::new());
    let bits = txn.layout().geometry.block_bits();
    let file_end = inode.view().size().div_ceil(1 << bits);
    let root = Block::new(inode.view().map().as_slice().into());
    let mut seen = HashSet::new();
    let mut depth = None;
    let mut stack = vec![Level { bytes: root, next: 0, end: file_end }];
    loop {
        let level = u16::try_from(stack.len().saturating_sub(1)).unwrap_or(u16::MAX);
        let Some(top) = stack.last_mut() else { break };
        let bytes = top.bytes.clone();
        let node = match Node::parse(&bytes) {
            Ok(node) => node,
            Err(defect) => {
                errors.push(defect.at(Place::ExtentNode { inode: inode.number(), block: None }));
                stack.pop();
                continue;
            }
        };
        let depth = *depth.get_or_insert(node.depth());
        let position = top.next;
        top.next += 1;
        let slot = |count, content| TreeSlot { level, depth, position: position + 1, count, content };
        match node.slots() {
            Slots::Leaf(leaves) => {
                slots.extend(leaves.iter().enumerate().map(|(at, leaf)| TreeSlot {
                    position: at + 1,
                    ..slot(leaves.len(), SlotContent::Extent(leaf.extent()))
                }));
                stack.pop();
            }
            Slots::Index(children) => {
                let Some(child) = children.get(position) else {
                    stack.pop();
                    continue;
                };
                let logical = u64::from(child.logical().0);
                let end = children.get(position + 1).map_or(top.end, |next| u64::from(next.logical().0));
                let block = child.child();
                slots.push(slot(children.len(), SlotContent::Child { logical, end, block: block.0 }));
                let wanted = depth.saturating_sub(level).saturating_sub(1);
                match read_node(txn, inode, block, wanted, &mut seen) {
                    Ok(bytes) => stack.push(Level { bytes, next: 0, end }),
                    Err(error) => errors.push(error),
                }
            }
        }
    }
    (slots, errors)
}

/// A node that has to be so deep, and was not met before.
fn read_node(
    txn: &dyn Transaction,
    inode: &Inode,
    at: BlockNumber,
    depth: u16,
    seen: &mut HashSet<u64>,
) -> Result<Block> {
    let place = Place::ExtentNode { inode: inode.number(), block: Some(at) };
    if !seen.insert(at.0) {
        return Err(Defect::Loop { what: "extent tree" }.at(place));
    }
    let bytes = txn.read(at, BlockKind::ExtentNode(inode.owner()))?;
    let found = Node::parse(&bytes).map_err(|defect| defect.at(place.clone()))?.depth();
    Defect::check_range("eh_depth", found.into(), depth.into(), depth.into())
        .map_err(|defect| defect.at(place))?;
    Ok(bytes)
}

/// A walk over a block map.
struct PointerWalk<'a> {
    txn: &'a dyn Transaction,
    inode: &'a Inode,
    seen: HashSet<u64>,
    found: Walked,
    logical: u64,
}

impl PointerWalk<'_> {
    fn all(&mut self) {
        let inode = self.inode;
        let word = |slot: usize| le32(inode.view().map(), slot * 4).unwrap_or(0);
        for slot in 0..12 {
            self.data(word(slot));
        }
        for levels in 1..=3u8 {
            self.pointers(word(11 + usize::from(levels)), levels);
        }
    }

    /// One block of the file, added to the run before it if it continues that.
    fn data(&mut self, block: u32) {
        let logical = self.logical;
        self.logical += 1;
        if block == 0 {
            return;
        }
        let block = u64::from(block);
        if let Some(Piece::Data { logical: first, block: start, length, .. }) = self.found.pieces.last_mut()
            && *first + *length == logical
            && *start + *length == block
        {
            *length += 1;
            return;
        }
        self.found.pieces.push(Piece::Data { logical, block, length: 1, unwritten: false });
    }

    /// A block of pointers and what hangs from it. The depth is three at most, so this may call itself.
    fn pointers(&mut self, block: u32, levels: u8) {
        let bits = self.txn.layout().geometry.block_bits() - 2;
        let reach = 1u64 << (u32::from(levels) * bits).min(63);
        if block == 0 {
            self.logical = self.logical.saturating_add(reach);
            return;
        }
        self.found.pieces.push(Piece::Pointers { levels, block: block.into() });
        let at = BlockNumber(block.into());
        let place = Place::IndirectBlock { inode: self.inode.number(), block: at };
        let bytes = if self.seen.insert(at.0) {
            self.txn.read(at, BlockKind::IndirectBlock(self.inode.number()))
        } else {
            Err(Defect::Loop { what: "block map" }.at(place))
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => {
                self.found.errors.push(error);
                self.logical = self.logical.saturating_add(reach);
                return;
            }
        };
        for word in bytes.as_chunks::<4>().0 {
            let word = u32::from_le_bytes(*word);
            if levels == 1 {
                self.data(word);
            } else {
                self.pointers(word, levels - 1);
            }
        }
    }
}
