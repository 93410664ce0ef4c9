//! Extent trees: header, leaf and index records, and the checksum tail of a node.
//!
//! A node is a header and slots of 12 bytes. The root lies in the inode's 60 bytes of `i_block`, all others fill a
//! block and end in a checksum. Both are read by [`Node::parse`] and changed in place by [`NodeMut`], which works on
//! the bytes that a transaction hands to an edit. Whether the slots are in order and stay inside what the parent
//! promised is a question of its own, [`Node::check_order`]: a reader can do without, fsck cannot.
//!
//! What a node says is never believed further than the slice reaches: `eh_max` above the slice's capacity,
//! `eh_entries` above `eh_max` and a depth above [`MAX_DEPTH`] are refused.

use std::mem::{offset_of, size_of};
use std::ops::Range;

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::{le32, put_le32, span};
use crate::disk::crc::crc32c;
use crate::error::Defect;
use crate::ids::{BlockNumber, LogicalBlock};
use crate::num::{high32, index, join16, join32, low16, low32, wide};

/// First field of every node.
pub const MAGIC: u16 = 0xf30a;
/// The deepest root that can be; a leaf has depth 0.
pub const MAX_DEPTH: u16 = 5;
/// Size of the root in `i_block`, in bytes.
pub const ROOT_SIZE: usize = 60;
/// The longest written extent, in blocks.
pub const MAX_WRITTEN_LENGTH: u32 = 32768;
/// The longest unwritten extent, in blocks.
pub const MAX_UNWRITTEN_LENGTH: u32 = 32767;
/// The first physical block number that a record cannot hold.
pub const PHYSICAL_LIMIT: u64 = 1 << 48;

/// Size of the header and of each slot, in bytes.
const SLOT: usize = 12;
const TAIL: usize = 4;
const UNWRITTEN: u16 = 0x8000;

/// The head of a node.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ExtentHeader {
    /// [`MAGIC`].
    pub eh_magic: U16,
    /// Slots in use.
    pub eh_entries: U16,
    /// Slots that there are.
    pub eh_max: U16,
    /// Levels below this node: 0 for a leaf.
    pub eh_depth: U16,
    /// Unused by the kernel; kept as found.
    pub eh_generation: U32,
}

/// A slot of a leaf: a run of the file and where it lies.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ExtentLeaf {
    /// First logical block.
    pub ee_block: U32,
    /// Length in blocks; above 0x8000 the extent is unwritten and the length is what exceeds 0x8000.
    pub ee_len: U16,
    /// Bits 32..48 of the first physical block.
    pub ee_start_hi: U16,
    /// Bits 0..32 of the first physical block.
    pub ee_start_lo: U32,
}

/// A slot of an inner node: which node maps the file from here on.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ExtentIndex {
    /// First logical block that the child may map.
    pub ei_block: U32,
    /// Bits 0..32 of the child's block.
    pub ei_leaf_lo: U32,
    /// Bits 32..48 of the child's block.
    pub ei_leaf_hi: U16,
    /// Unused; kept as found.
    pub ei_unused: U16,
}

const _: () = assert!(size_of::<ExtentHeader>() == SLOT && offset_of!(ExtentHeader, eh_generation) == 8);
const _: () = assert!(size_of::<ExtentLeaf>() == SLOT && offset_of!(ExtentLeaf, ee_start_lo) == 8);
const _: () = assert!(size_of::<ExtentIndex>() == SLOT && offset_of!(ExtentIndex, ei_leaf_hi) == 8);

/// What a leaf slot means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The first block of the file that it maps.
    pub logical: LogicalBlock,
    /// Where that block lies.
    pub physical: BlockNumber,
    /// How many blocks, 1..=32768 (32767 if unwritten); 0 only as read from a damaged slot.
    pub length: u32,
    /// Allocated but never written: reads as zeroes.
    pub unwritten: bool,
}

impl Extent {
    /// The first logical block past the extent, as a wide number: the last block of a file may be the last there is.
    pub fn logical_end(&self) -> u64 {
        u64::from(self.logical.0).saturating_add(u64::from(self.length))
    }

    /// Whether the logical block lies in the extent.
    pub fn contains(&self, block: LogicalBlock) -> bool {
        block >= self.logical && u64::from(block.0) < self.logical_end()
    }

    /// Where a logical block of this extent lies.
    pub fn physical_of(&self, block: LogicalBlock) -> Option<BlockNumber> {
        let distance = block.0.checked_sub(self.logical.0)?;
        if distance < self.length { self.physical.checked_add(u64::from(distance)) } else { None }
    }

    /// The most blocks that an extent of this state may have.
    pub const fn longest(unwritten: bool) -> u32 {
        if unwritten { MAX_UNWRITTEN_LENGTH } else { MAX_WRITTEN_LENGTH }
    }
}

impl ExtentLeaf {
    /// The slot of an extent. Refuses a length or a physical block that the slot cannot hold.
    pub fn new(extent: Extent) -> Result<Self, Defect> {
        let longest = Extent::longest(extent.unwritten);
        Defect::check_range("ee_len", u64::from(extent.length), 1, u64::from(longest))?;
        let last = u64::from(u32::MAX);
        Defect::check_range("ee_block", extent.logical_end(), 1, last)?;
        check_physical("ee_start", extent.physical)?;
        // 1..=0x8000 as it is; an unwritten length has at most 15 bits, so the mark is one more bit.
        let length = low16(extent.length) | if extent.unwritten { UNWRITTEN } else { 0 };
        Ok(Self {
            ee_block: extent.logical.0.into(),
            ee_len: length.into(),
            ee_start_hi: low16(high32(extent.physical.0)).into(),
            ee_start_lo: low32(extent.physical.0).into(),
        })
    }

    /// What the slot means. A length of 0 is passed on as it is; [`Node::check_order`] reports it.
    pub fn extent(&self) -> Extent {
        let stored = self.ee_len.get();
        let unwritten = stored > UNWRITTEN;
        let length = if unwritten { stored & !UNWRITTEN } else { stored };
        Extent {
            logical: LogicalBlock(self.ee_block.get()),
            physical: join48(self.ee_start_lo, self.ee_start_hi),
            length: u32::from(length),
            unwritten,
        }
    }
}

impl ExtentIndex {
    /// The slot of a child node that maps the file from `logical` on.
    pub fn new(logical: LogicalBlock, child: BlockNumber) -> Result<Self, Defect> {
        check_physical("ei_leaf", child)?;
        Ok(Self {
            ei_block: logical.0.into(),
            ei_leaf_lo: low32(child.0).into(),
            ei_leaf_hi: low16(high32(child.0)).into(),
            ei_unused: 0.into(),
        })
    }

    /// The first logical block that the child may map.
    pub fn logical(&self) -> LogicalBlock {
        LogicalBlock(self.ei_block.get())
    }

    /// The child's block.
    pub fn child(&self) -> BlockNumber {
        join48(self.ei_leaf_lo, self.ei_leaf_hi)
    }
}

fn join48(low: U32, high: U16) -> BlockNumber {
    BlockNumber(join32(low.get(), join16(high.get(), 0)))
}

fn check_physical(field: &'static str, block: BlockNumber) -> Result<(), Defect> {
    Defect::check_range(field, block.0, 0, PHYSICAL_LIMIT.wrapping_sub(1))
}

/// The slots of a node.
#[derive(Clone, Copy, Debug)]
pub enum Slots<'a> {
    /// Of a leaf: extents.
    Leaf(&'a [ExtentLeaf]),
    /// Of an inner node: children, at least one.
    Index(&'a [ExtentIndex]),
}

/// A node whose header has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    header: &'a ExtentHeader,
    slots: Slots<'a>,
}

impl<'a> Node<'a> {
    /// Reads a node that fills the slice: the 60 bytes of `i_block`, or a whole block.
    ///
    /// Neither the checksum nor the slots are looked at.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Defect> {
        let (header, rest) =
            ExtentHeader::ref_from_prefix(bytes).map_err(|_| Defect::Truncated { what: "extent node" })?;
        check_header(header, capacity(bytes))?;
        let cut = || Defect::Truncated { what: "extent node" };
        let used = usize::from(header.eh_entries.get()).checked_mul(SLOT).ok_or_else(cut)?;
        let body = rest.get(..used).ok_or_else(cut)?;
        let slots = if header.eh_depth.get() == 0 {
            Slots::Leaf(<[ExtentLeaf]>::ref_from_bytes(body).map_err(|_| cut())?)
        } else {
            Slots::Index(<[ExtentIndex]>::ref_from_bytes(body).map_err(|_| cut())?)
        };
        Ok(Self { header, slots })
    }

    /// The header.
    pub fn header(&self) -> &'a ExtentHeader {
        self.header
    }

    /// Levels below this node: 0 for a leaf.
    pub fn depth(&self) -> u16 {
        self.header.eh_depth.get()
    }

    /// Slots in use.
    pub fn entries(&self) -> u16 {
        self.header.eh_entries.get()
    }

    /// Whether no slot is left.
    pub fn is_full(&self) -> bool {
        self.header.eh_entries.get() >= self.header.eh_max.get()
    }

    /// The slots in use, typed by the node's depth.
    pub fn slots(&self) -> Slots<'a> {
        self.slots
    }

    /// The extents of a leaf; nothing for an inner node.
    pub fn extents(&self) -> impl DoubleEndedIterator<Item = Extent> + ExactSizeIterator + use<'a> {
        let leaves: &'a [ExtentLeaf] = match self.slots {
            Slots::Leaf(leaves) => leaves,
            Slots::Index(_) => &[],
        };
        leaves.iter().map(ExtentLeaf::extent)
    }

    /// The children of an inner node; nothing for a leaf.
    pub fn indexes(&self) -> &'a [ExtentIndex] {
        match self.slots {
            Slots::Leaf(_) => &[],
            Slots::Index(indexes) => indexes,
        }
    }

    /// The position of the last slot that begins at or before the logical block; `None` if all begin after it.
    ///
    /// In an inner node that is the child to descend to; in a leaf, the only extent that may contain the block.
    pub fn position(&self, block: LogicalBlock) -> Option<usize> {
        let after = match self.slots {
            Slots::Leaf(leaves) => leaves.partition_point(|leaf| leaf.ee_block.get() <= block.0),
            Slots::Index(indexes) => indexes.partition_point(|slot| slot.ei_block.get() <= block.0),
        };
        after.checked_sub(1)
    }

    /// Everything wrong with the slots, each with its position: order, overlap, empty extents, runs past 2^32 or
    /// 2^48, and slots outside the logical range that the parent leaves to this node (the whole range for a root).
    pub fn check_order(&self, range: Range<u64>) -> Vec<(usize, Defect)> {
        match self.slots {
            Slots::Leaf(leaves) => check_spans("ee_block", leaves.iter().map(leaf_span), &range),
            Slots::Index(indexes) => check_spans("ei_block", indexes.iter().map(index_span), &range),
        }
    }
}

fn check_spans(
    field: &'static str,
    spans: impl Iterator<Item = (u64, u64, u64)>,
    range: &Range<u64>,
) -> Vec<(usize, Defect)> {
    let mut found = Vec::new();
    let mut least = range.start;
    for (position, (start, end, physical_end)) in spans.enumerate() {
        if start == end {
            let most = u64::from(MAX_WRITTEN_LENGTH);
            found.push((position, Defect::Range { field: "ee_len", value: 0, least: 1, most }));
        }
        // `least` may stand past the range's end after an earlier slot ran over; that slot was reported.
        if start < least || start >= range.end {
            let most = range.end.saturating_sub(1);
            found.push((position, Defect::Range { field, value: start, least, most }));
        } else if end > range.end {
            let text = format!("extent at logical block {start} ends at {end}, its node at {}", range.end);
            found.push((position, Defect::Contradiction(text)));
        }
        if physical_end > PHYSICAL_LIMIT {
            let most = PHYSICAL_LIMIT;
            found.push((position, Defect::Range { field: "ee_start", value: physical_end, least: 0, most }));
        }
        least = least.max(end).max(start.saturating_add(1));
    }
    found
}

/// Logical start and end, and physical end.
fn leaf_span(leaf: &ExtentLeaf) -> (u64, u64, u64) {
    let extent = leaf.extent();
    let physical_end = extent.physical.0.saturating_add(u64::from(extent.length));
    (u64::from(extent.logical.0), extent.logical_end(), physical_end)
}

/// The same of a child, of which only the start is known.
fn index_span(slot: &ExtentIndex) -> (u64, u64, u64) {
    let start = u64::from(slot.ei_block.get());
    (start, start.saturating_add(1), slot.child().0)
}

/// How many slots fit into a node of these bytes. A block leaves at least 4 bytes for the tail, as its size is a power of
/// two; the root has no tail.
pub fn capacity(bytes: &[u8]) -> u16 {
    let slots = bytes.len().saturating_sub(SLOT).checked_div(SLOT).unwrap_or(0);
    u16::try_from(slots).unwrap_or(u16::MAX)
}

fn check_header(header: &ExtentHeader, capacity: u16) -> Result<(), Defect> {
    let found = header.eh_magic.get();
    if found != MAGIC {
        return Err(Defect::Magic { found: u32::from(found), wanted: u32::from(MAGIC) });
    }
    let (entries, max, depth) = (header.eh_entries.get(), header.eh_max.get(), header.eh_depth.get());
    Defect::check_range("eh_depth", u64::from(depth), 0, u64::from(MAX_DEPTH))?;
    Defect::check_range("eh_max", u64::from(max), 1, u64::from(capacity))?;
    let least = u64::from(depth.min(1));
    Defect::check_range("eh_entries", u64::from(entries), least, u64::from(max))
}

/// A record that fills a slot.
pub trait Slot: IntoBytes + Immutable {
    /// Whether the record belongs into a leaf.
    const LEAF: bool;
}

impl Slot for ExtentLeaf {
    const LEAF: bool = true;
}

impl Slot for ExtentIndex {
    const LEAF: bool = false;
}

/// A node to change in place. Slots of the other kind than the node's are refused, and so are positions outside.
#[derive(Debug)]
pub struct NodeMut<'a> {
    bytes: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    /// A node that is there already; the header is checked as in [`Node::parse`].
    pub fn parse(bytes: &'a mut [u8]) -> Result<Self, Defect> {
        Node::parse(bytes)?;
        Ok(Self { bytes })
    }

    /// Makes the whole slice an empty node of this depth. An inner node needs a slot before it can be parsed.
    pub fn create(bytes: &'a mut [u8], depth: u16) -> Result<Self, Defect> {
        Defect::check_range("eh_depth", u64::from(depth), 0, u64::from(MAX_DEPTH))?;
        let max = capacity(bytes);
        Defect::check_range("eh_max", u64::from(max), 1, u64::from(u16::MAX))?;
        bytes.fill(0);
        let mut node = Self { bytes };
        let header = node.header_mut()?;
        header.eh_magic = MAGIC.into();
        header.eh_max = max.into();
        header.eh_depth = depth.into();
        Ok(node)
    }

    /// The node for reading.
    pub fn view(&self) -> Result<Node<'_>, Defect> {
        Node::parse(self.bytes)
    }

    /// Puts a record at a position, moving those from there on up by one.
    pub fn insert<S: Slot>(&mut self, position: usize, slot: &S) -> Result<(), Defect> {
        let (entries, max) = self.counts::<S>()?;
        Defect::check_range("slot position", wide(position), 0, u64::from(entries))?;
        let more = entries.saturating_add(1);
        Defect::check_range("eh_entries", u64::from(more), 0, u64::from(max))?;
        let area = self.slot_bytes(position, usize::from(more))?;
        let end = area.len().saturating_sub(SLOT);
        area.copy_within(..end, SLOT);
        self.write(position, slot)?;
        self.header_mut()?.eh_entries = more.into();
        Ok(())
    }

    /// Puts a record over the one at a position.
    pub fn replace<S: Slot>(&mut self, position: usize, slot: &S) -> Result<(), Defect> {
        let (entries, _) = self.counts::<S>()?;
        check_position(position, entries)?;
        self.write(position, slot)
    }

    /// Takes records out and closes the gap; the slots that become free are zeroed.
    pub fn remove(&mut self, positions: Range<usize>) -> Result<(), Defect> {
        let entries = self.entries()?;
        Defect::check_range("slot position", wide(positions.end), wide(positions.start), u64::from(entries))?;
        let gone = positions.end.saturating_sub(positions.start);
        let shift = gone.saturating_mul(SLOT);
        let area = self.slot_bytes(positions.start, usize::from(entries))?;
        let kept = area.len().saturating_sub(shift);
        area.copy_within(shift.., 0);
        area.get_mut(kept..).unwrap_or_default().fill(0);
        let left = usize::from(entries).saturating_sub(gone);
        self.header_mut()?.eh_entries = u16::try_from(left).unwrap_or(0).into();
        Ok(())
    }

    /// Appends records of the same kind as the node's, given as the bytes of whole slots: how a split or a
    /// deepening moves slots from [`slot_area`] of one node to another.
    pub fn append_raw(&mut self, slots: &[u8]) -> Result<(), Defect> {
        let (entries, max) = (self.entries()?, self.header()?.eh_max.get());
        let count = slots.len().checked_div(SLOT).unwrap_or(0);
        if slots.len() != count.saturating_mul(SLOT) {
            return Err(Defect::Truncated { what: "extent slot" });
        }
        let total = usize::from(entries).saturating_add(count);
        Defect::check_range("eh_entries", wide(total), 0, u64::from(max))?;
        self.slot_bytes(usize::from(entries), total)?.copy_from_slice(slots);
        self.header_mut()?.eh_entries = u16::try_from(total).unwrap_or(max).into();
        Ok(())
    }

    /// Sets the depth: how a root grows by a level or shrinks by one. The caller replaces the slots with it.
    pub fn set_depth(&mut self, depth: u16) -> Result<(), Defect> {
        Defect::check_range("eh_depth", u64::from(depth), 0, u64::from(MAX_DEPTH))?;
        self.header_mut()?.eh_depth = depth.into();
        Ok(())
    }

    /// Sets the first logical block of the slot at a position, of either kind.
    pub fn set_logical(&mut self, position: usize, block: LogicalBlock) -> Result<(), Defect> {
        check_position(position, self.entries()?)?;
        let slot = self.slot_bytes(position, position.saturating_add(1))?;
        put_le32(slot, 0, block.0).ok_or(Defect::Truncated { what: "extent slot" })
    }

    fn header(&self) -> Result<&ExtentHeader, Defect> {
        let (header, _) = ExtentHeader::ref_from_prefix(self.bytes)
            .map_err(|_| Defect::Truncated { what: "extent node" })?;
        Ok(header)
    }

    fn header_mut(&mut self) -> Result<&mut ExtentHeader, Defect> {
        let (header, _) = ExtentHeader::mut_from_prefix(self.bytes)
            .map_err(|_| Defect::Truncated { what: "extent node" })?;
        Ok(header)
    }

    fn entries(&self) -> Result<u16, Defect> {
        Ok(self.header()?.eh_entries.get())
    }

    /// Slots in use and slots there are, once the record's kind is that of the node.
    fn counts<S: Slot>(&self) -> Result<(u16, u16), Defect> {
        let header = self.header()?;
        if (header.eh_depth.get() == 0) != S::LEAF {
            let text = format!("slot of the wrong kind for a node of depth {}", header.eh_depth);
            return Err(Defect::Contradiction(text));
        }
        Ok((header.eh_entries.get(), header.eh_max.get()))
    }

    fn write<S: Slot>(&mut self, position: usize, slot: &S) -> Result<(), Defect> {
        let target = self.slot_bytes(position, position.saturating_add(1))?;
        slot.write_to(target).map_err(|_| Defect::Truncated { what: "extent slot" })
    }

    fn slot_bytes(&mut self, from: usize, to: usize) -> Result<&mut [u8], Defect> {
        let range = slot_range(from, to);
        self.bytes.get_mut(range).ok_or(Defect::Truncated { what: "extent node" })
    }
}

fn check_position(position: usize, entries: u16) -> Result<(), Defect> {
    if position < usize::from(entries) {
        return Ok(());
    }
    let most = u64::from(entries).saturating_sub(1);
    Err(Defect::Range { field: "slot position", value: wide(position), least: 0, most })
}

fn slot_range(from: usize, to: usize) -> Range<usize> {
    let start = from.saturating_add(1).saturating_mul(SLOT);
    start..to.saturating_add(1).saturating_mul(SLOT)
}

/// The bytes of the slots at these positions, for [`NodeMut::append_raw`]; `None` if they leave the slice.
pub fn slot_area(bytes: &[u8], positions: Range<usize>) -> Option<&[u8]> {
    bytes.get(slot_range(positions.start, positions.end))
}

/// Where a block's checksum lies: after all slots, used or not, in bytes.
///
/// It follows `eh_max` as stored, so a node that was made for fewer slots has its checksum earlier.
pub fn tail_offset(block: &[u8]) -> Result<usize, Defect> {
    let node = Node::parse(block)?;
    let offset = slot_range(0, usize::from(node.header.eh_max.get())).end;
    match span(block, offset, TAIL) {
        Some(_) => Ok(offset),
        None => Err(Defect::Truncated { what: "checksum of the extent node" }),
    }
}

/// The checksum that the contents of a block give, from the owner's seed.
pub fn checksum(block: &[u8], inode_seed: u32) -> Result<u32, Defect> {
    let offset = tail_offset(block)?;
    Ok(crc32c(inode_seed, block.get(..offset).unwrap_or_default()))
}

/// Compares a block's stored checksum with its contents.
pub fn verify_checksum(block: &[u8], inode_seed: u32) -> Result<(), Defect> {
    let computed = checksum(block, inode_seed)?;
    let stored = le32(block, tail_offset(block)?).unwrap_or(0);
    if stored == computed { Ok(()) } else { Err(Defect::Checksum { stored, computed }) }
}

/// Writes the checksum that a block's contents give.
pub fn refresh_checksum(block: &mut [u8], inode_seed: u32) -> Result<(), Defect> {
    let (offset, computed) = (tail_offset(block)?, checksum(block, inode_seed)?);
    put_le32(block, offset, computed).ok_or(Defect::Truncated { what: "checksum of the extent node" })
}

/// How many extents fit into a block of this size, in bytes.
pub fn block_capacity(block_size: u32) -> u16 {
    let slots = index(block_size).saturating_sub(SLOT).checked_div(SLOT).unwrap_or(0);
    u16::try_from(slots).unwrap_or(u16::MAX)
}

#[cfg(test)]
#[path = "extent_tests.rs"]
mod tests;
