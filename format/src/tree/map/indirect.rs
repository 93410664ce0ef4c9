//! Block maps: twelve direct pointers in the inode, then a single, a double and a triple indirect block.
//!
//! A pointer of 0 is a hole. Blocks of pointers carry no checksum, so every pointer is checked against the
//! filesystem's size before it is followed.

use super::{Segment, State, give_tree_block, out_of_range, release_unmapped, take_tree_block};
use crate::bytes::{all_zero, le32, put_le32};
use crate::disk::inode::Inode;
use crate::error::{Defect, Error, Place, Result};
use crate::geometry::Geometry;
use crate::ids::{BlockNumber, BlockRun, LogicalBlock};
use crate::num::{index, index64, low32};
use crate::txn::{BlockKind, Transaction, create, modify};

/// Pointers in the inode that name blocks of the file.
const DIRECT: u64 = 12;
/// Metadata blocks that mapping one block can change: three blocks of pointers, each with bitmap, descriptor and
/// superblock.
const CREDITS: u32 = 12;

/// How many blocks a block map can reach, within 32-bit logical numbers.
pub(super) fn block_limit(geometry: &Geometry) -> u64 {
    let pointers = u64::from(geometry.pointers_per_block());
    let double = pointers.saturating_mul(pointers);
    let all = DIRECT
        .saturating_add(pointers)
        .saturating_add(double)
        .saturating_add(double.saturating_mul(pointers));
    all.min(u64::from(u32::MAX))
}

/// The way to a logical block: the slot in the inode, then the slots in each block of pointers.
struct Way {
    slots: Vec<usize>,
}

/// How many logical blocks one pointer stands for, `levels` blocks of pointers above the file's own.
fn reach(geometry: &Geometry, levels: usize) -> u64 {
    let bits = u64::from(geometry.block_bits().saturating_sub(2));
    1u64 << bits.saturating_mul(crate::num::wide(levels)).min(63)
}

fn way(geometry: &Geometry, logical: u64) -> Option<Way> {
    if logical < DIRECT {
        return Some(Way { slots: vec![index64(logical)] });
    }
    let mut rest = logical.saturating_sub(DIRECT);
    for levels in 1..=3 {
        let span = reach(geometry, levels);
        if rest < span {
            let mut slots = vec![levels.saturating_add(11)];
            for below in (0..levels).rev() {
                let size = reach(geometry, below);
                slots.push(index64(rest.checked_div(size)?));
                rest = rest.checked_rem(size)?;
            }
            return Some(Way { slots });
        }
        rest = rest.saturating_sub(span);
    }
    None
}

/// A pointer by its slot; 0 is a hole.
fn pointer(bytes: &[u8], slot: usize) -> u64 {
    le32(bytes, slot.saturating_mul(4)).unwrap_or(0).into()
}

fn check(txn: &dyn Transaction, inode: &Inode, block: u64) -> Result<BlockNumber> {
    let block = BlockNumber(block);
    if txn.layout().geometry.contains(block) {
        Ok(block)
    } else {
        Err(out_of_range(txn, "block pointer", block, Place::Inode(inode.number())))
    }
}

/// What the map says of a logical block, and of those behind it in the same block of pointers that are alike.
pub(super) fn lookup(txn: &dyn Transaction, inode: &Inode, logical: LogicalBlock) -> Result<Segment> {
    let geometry = &txn.layout().geometry;
    let hole = |length: u64| Segment { logical, length: length.max(1), state: State::Hole };
    let Some(way) = way(geometry, logical.0.into()) else {
        return Ok(hole((1u64 << 32).saturating_sub(logical.0.into())));
    };
    let kind = BlockKind::IndirectBlock(inode.number());
    let mut bytes: Vec<u8> = inode.view().map().to_vec();
    let mut left = way.slots.len();
    for slot in &way.slots {
        left = left.saturating_sub(1);
        let found = pointer(&bytes, *slot);
        if left == 0 {
            let end =
                if way.slots.len() == 1 { index64(DIRECT) } else { index(geometry.pointers_per_block()) };
            return alike(txn, inode, Pointers { bytes: &bytes, slot: *slot, end }, logical);
        }
        if found == 0 {
            // Nothing below this pointer: the hole reaches to the end of what it stands for.
            let size = reach(geometry, left);
            let first = first_logical(geometry, way.slots.len().saturating_sub(1));
            let within = u64::from(logical.0).saturating_sub(first).checked_rem(size).unwrap_or(0);
            return Ok(hole(size.saturating_sub(within)));
        }
        bytes = txn.read(check(txn, inode, found)?, kind)?.to_vec();
    }
    Ok(hole(1))
}

/// The first logical block that is reached over so many levels of pointers.
fn first_logical(geometry: &Geometry, levels: usize) -> u64 {
    (1..levels).fold(DIRECT, |sum, level| sum.saturating_add(reach(geometry, level)))
}

/// The pointers of one block, from a slot on.
#[derive(Clone, Copy)]
struct Pointers<'a> {
    bytes: &'a [u8],
    slot: usize,
    end: usize,
}

/// The segment that begins at a slot.
fn alike(txn: &dyn Transaction, inode: &Inode, from: Pointers<'_>, logical: LogicalBlock) -> Result<Segment> {
    let first = pointer(from.bytes, from.slot);
    let run = (from.slot..from.end).zip(0u64..).take_while(|(slot, distance)| {
        let wanted = if first == 0 { 0 } else { first.saturating_add(*distance) };
        pointer(from.bytes, *slot) == wanted
    });
    let length = crate::num::wide(run.count()).max(1);
    if first == 0 {
        return Ok(Segment { logical, length, state: State::Hole });
    }
    let start = check(txn, inode, first)?;
    check(txn, inode, first.saturating_add(length.saturating_sub(1)))?;
    Ok(Segment { logical, length, state: State::Written(start) })
}

/// The blocks of pointers, parents before children.
pub(super) fn own_blocks(txn: &dyn Transaction, inode: &Inode) -> Result<Vec<BlockNumber>> {
    let kind = BlockKind::IndirectBlock(inode.number());
    let mut seen = rustc_hash::FxHashSet::default();
    let mut blocks = Vec::new();
    for levels in 1..=3usize {
        let mut level: Vec<u64> = vec![pointer(inode.view().map(), levels.saturating_add(11))];
        for below in (0..levels).rev() {
            let mut next = Vec::new();
            for found in level.into_iter().filter(|found| *found != 0) {
                let block = check(txn, inode, found)?;
                if !seen.insert(block) {
                    return Err(Defect::Loop { what: "block map" }.at(Place::Inode(inode.number())));
                }
                blocks.push(block);
                if below > 0 {
                    let bytes = txn.read(block, kind)?;
                    let (words, _) = bytes.as_chunks::<4>();
                    next.extend(words.iter().map(|word| u64::from(u32::from_le_bytes(*word))));
                }
            }
            level = next;
        }
    }
    Ok(blocks)
}

/// Maps blocks of the file, which must be holes, to a run of blocks.
pub(super) fn insert(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    logical: LogicalBlock,
    run: BlockRun,
) -> Result<()> {
    let most = u64::from(u32::MAX);
    if run.end().is_none_or(|end| end.0 > most) {
        return Err(Error::Invalid(format!("a block map cannot hold block {}: it has 32 bits", run.start)));
    }
    let mut next = u64::from(logical.0);
    let (mut start, mut left) = (run.start.0, run.length);
    while left > 0 {
        txn.ensure_credits(CREDITS)?;
        let done =
            insert_in_one_block(txn, inode, next, BlockRun { start: BlockNumber(start), length: left })?;
        next = next.saturating_add(done);
        start = start.saturating_add(done);
        left = left.saturating_sub(done);
    }
    Ok(())
}

/// Sets as many pointers as one block of pointers (or the inode) holds; how many.
fn insert_in_one_block(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    logical: u64,
    run: BlockRun,
) -> Result<u64> {
    let geometry = txn.layout().geometry.clone();
    let Some(way) = way(&geometry, logical) else { return Err(Error::FileTooBig(inode.number())) };
    let mut parent: Option<BlockNumber> = None;
    let Some((last, upper)) = way.slots.split_last() else { return Err(Error::FileTooBig(inode.number())) };
    for slot in upper {
        let found = read_pointer(txn, inode, parent, *slot)?;
        let child = if found == 0 {
            let block = take_tree_block(txn, inode, run.start)?;
            create(txn, block, BlockKind::IndirectBlock(inode.number()), |_| ())?;
            write_pointers(txn, inode, parent, *slot, BlockRun::single(block))?;
            block
        } else {
            check(txn, inode, found)?
        };
        parent = Some(child);
    }
    let end = if upper.is_empty() { index64(DIRECT) } else { index(geometry.pointers_per_block()) };
    let room = crate::num::wide(end.saturating_sub(*last));
    let part = BlockRun { start: run.start, length: run.length.min(room) };
    for slot in *last..last.saturating_add(index64(part.length)) {
        if read_pointer(txn, inode, parent, slot)? != 0 {
            return Err(Defect::Contradiction(format!(
                "block {logical} of the file or one behind it is mapped already"
            ))
            .at(Place::Inode(inode.number())));
        }
    }
    write_pointers(txn, inode, parent, *last, part)?;
    Ok(part.length.max(1))
}

fn read_pointer(
    txn: &dyn Transaction,
    inode: &Inode,
    parent: Option<BlockNumber>,
    slot: usize,
) -> Result<u64> {
    match parent {
        None => Ok(pointer(inode.view().map(), slot)),
        Some(block) => Ok(pointer(&txn.read(block, BlockKind::IndirectBlock(inode.number()))?, slot)),
    }
}

/// Writes consecutive block numbers into consecutive slots of a block of pointers, or of the inode.
fn write_pointers(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    parent: Option<BlockNumber>,
    slot: usize,
    run: BlockRun,
) -> Result<()> {
    let fill = |bytes: &mut [u8]| {
        for (block, slot) in run.iter().zip(slot..) {
            put_le32(bytes, slot.saturating_mul(4), low32(block.0))?;
        }
        Some(())
    };
    let written = match parent {
        None => fill(inode.map_mut()),
        Some(block) => modify(txn, block, BlockKind::IndirectBlock(inode.number()), fill)?,
    };
    written.ok_or_else(|| Defect::Truncated { what: "block map" }.at(Place::Inode(inode.number())))
}

/// Unmaps and gives back the blocks from one logical block up to another.
pub(super) fn remove(txn: &mut dyn Transaction, inode: &mut Inode, from: u64, to: u64) -> Result<()> {
    let mut next = from;
    while next < to {
        let Ok(logical) = u32::try_from(next) else { break };
        let segment = lookup(txn, inode, LogicalBlock(logical))?;
        let length = segment.length.min(to.saturating_sub(next));
        if let State::Written(start) = segment.state {
            txn.ensure_credits(CREDITS)?;
            clear_pointers(txn, inode, next, length)?;
            release_unmapped(txn, inode, segment.logical, BlockRun { start, length })?;
        }
        next = next.saturating_add(length.max(1));
    }
    Ok(())
}

/// Zeroes pointers that lie in one block of pointers, and gives back each block of pointers that this leaves empty.
fn clear_pointers(txn: &mut dyn Transaction, inode: &mut Inode, logical: u64, length: u64) -> Result<()> {
    let geometry = txn.layout().geometry.clone();
    let Some(way) = way(&geometry, logical) else { return Ok(()) };
    let Some((last, upper)) = way.slots.split_last() else { return Ok(()) };
    let mut parents: Vec<(Option<BlockNumber>, usize)> = Vec::new();
    let mut at: Option<BlockNumber> = None;
    for slot in upper {
        parents.push((at, *slot));
        at = Some(check(txn, inode, read_pointer(txn, inode, at, *slot)?)?);
    }
    zero_slots(txn, inode, at, *last..last.saturating_add(index64(length)))?;
    while let (Some(block), Some((parent, slot))) = (at, parents.pop()) {
        if !all_zero(&txn.read(block, BlockKind::IndirectBlock(inode.number()))?) {
            break;
        }
        zero_slots(txn, inode, parent, slot..slot.saturating_add(1))?;
        give_tree_block(txn, inode, block)?;
        at = parent;
    }
    Ok(())
}

fn zero_slots(
    txn: &mut dyn Transaction,
    inode: &mut Inode,
    block: Option<BlockNumber>,
    slots: std::ops::Range<usize>,
) -> Result<()> {
    let bytes = slots.start.saturating_mul(4)..slots.end.saturating_mul(4);
    let zero = |map: &mut [u8]| map.get_mut(bytes).map(|slots| slots.fill(0));
    let zeroed = match block {
        None => zero(inode.map_mut()),
        Some(block) => modify(txn, block, BlockKind::IndirectBlock(inode.number()), zero)?,
    };
    zeroed.ok_or_else(|| Defect::Truncated { what: "block map" }.at(Place::Inode(inode.number())))
}
