//! Which blocks a file has.

use std::io::{self, Write};

use ext4kit_format::LogicalBlock;
use ext4kit_format::tree::map::{self, State};
use ext4kit_format::txn::Transaction;
use serde::Serialize;

use crate::answer::{Answer, Outcome, Report};
use crate::table::Call;
use crate::walk::{self, Piece, SlotContent, TreeSlot};
use crate::words::{number, text};

#[derive(Serialize)]
struct Blocks {
    pieces: Vec<Piece>,
}

impl Report for Blocks {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for piece in &self.pieces {
            let (start, length) = match *piece {
                Piece::ExtentNode { block, .. } | Piece::Pointers { block, .. } => (block, 1),
                Piece::Data { block, length, .. } => (block, length),
            };
            for block in start..start.saturating_add(length) {
                write!(to, "{block} ")?;
            }
        }
        writeln!(to)
    }
}

/// `blocks`.
pub fn blocks(call: &mut Call<'_>) -> Outcome {
    let inode = call.inode(&call.words(1, 1)?[0])?;
    if !walk::has_map(&inode) {
        return Ok(Answer::of(Blocks { pieces: Vec::new() }));
    }
    let walked = walk::pieces(&call.open()?.txn, &inode);
    let problems: Vec<_> = walked.errors.iter().map(|error| call.failed(error)).collect();
    Ok(Answer::of(Blocks { pieces: walked.pieces }).with(problems))
}

#[derive(Serialize)]
struct Mapped {
    logical: u64,
    block: u64,
    unwritten: bool,
}

impl Report for Mapped {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "{}{}", self.block, if self.unwritten { " (uninit)" } else { "" })
    }
}

/// `bmap`.
pub fn bmap(call: &mut Call<'_>) -> Outcome {
    let words = call.words(2, 2)?;
    let inode = call.inode(&words[0])?;
    let logical = number(&words[1]).and_then(|logical| u32::try_from(logical).ok());
    let Some(logical) = logical else {
        return Err(call.refuse(format!("Bad logical block - {}", text(&words[1]))));
    };
    if !walk::has_map(&inode) {
        return Err(call.refuse("the file's contents lie inside the inode, it has no blocks"));
    }
    let segment =
        map::lookup(&call.open()?.txn, &inode, LogicalBlock(logical)).map_err(|error| call.failed(&error))?;
    let skipped = u64::from(logical.saturating_sub(segment.logical.0));
    let (block, unwritten) = match segment.state {
        State::Hole => (0, false),
        State::Written(start) => (start.0 + skipped, false),
        State::Unwritten(start) => (start.0 + skipped, true),
    };
    Ok(Answer::of(Mapped { logical: logical.into(), block, unwritten }))
}

#[derive(Serialize)]
struct Slot {
    level: u16,
    depth: u16,
    position: usize,
    count: usize,
    logical: u64,
    block: u64,
    length: u64,
    leaf: bool,
    unwritten: bool,
}

impl Slot {
    fn of(slot: &TreeSlot) -> Self {
        let (logical, block, length, leaf, unwritten) = match slot.content {
            SlotContent::Child { logical, end, block } => {
                (logical, block, end.saturating_sub(logical), false, false)
            }
            SlotContent::Extent(extent) => {
                (extent.logical.0.into(), extent.physical.0, extent.length.into(), true, extent.unwritten)
            }
        };
        let TreeSlot { level, depth, position, count, .. } = *slot;
        Self { level, depth, position, count, logical, block, length, leaf, unwritten }
    }
}

#[derive(Serialize)]
struct Extents {
    slots: Vec<Slot>,
    /// Widths of the columns: as wide as the last block of the file, and of the filesystem.
    #[serde(skip)]
    widths: (usize, usize),
}

fn width(number: u64) -> usize {
    number.to_string().len().max(5)
}

impl Report for Extents {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let last = |start: u64, length: u64| start.saturating_add(length).saturating_sub(1);
        let (wide, far) = self.widths;
        writeln!(
            to,
            "Level Entries {:>1$} {2:>3$} Length Flags",
            "Logical",
            wide * 2 + 3,
            "Physical",
            far * 2 + 3
        )?;
        for slot in &self.slots {
            let Slot { level, depth, position, count, logical, block, length, .. } = *slot;
            write!(to, "{level:2}/{depth:2} {position:3}/{count:3} ")?;
            write!(to, "{logical:wide$} - {:wide$} ", last(logical, length))?;
            if slot.leaf {
                let flags = if slot.unwritten { "Uninit" } else { "" };
                writeln!(to, "{block:far$} - {:far$} {length:6} {flags}", last(block, length))?;
            } else {
                writeln!(to, "{block:far$}{:>1$} {length:6}", "", far + 3)?;
            }
        }
        Ok(())
    }
}

/// `dump_extents`.
pub fn extents(call: &mut Call<'_>) -> Outcome {
    let flags = call.flags("nl", 1, 1)?;
    let inode = call.inode(&flags.rest[0])?;
    if !map::uses_extents(&inode) {
        return Err(ext4kit_cli::exit::Failure {
            place: text(&flags.rest[0]),
            ..call.refuse("does not uses extent block maps")
        });
    }
    let txn = &call.open()?.txn;
    let (slots, errors) = walk::extent_slots(txn, &inode);
    let geometry = &txn.layout().geometry;
    let widths =
        (width(inode.view().size().div_ceil(geometry.block_size().into())), width(geometry.blocks_count()));
    let is_leaf = |slot: &TreeSlot| matches!(slot.content, SlotContent::Extent(_));
    let wanted = |slot: &&TreeSlot| !(flags.has('n') && is_leaf(slot) || flags.has('l') && !is_leaf(slot));
    let slots = slots.iter().filter(wanted).map(Slot::of).collect();
    Ok(Answer::of(Extents { slots, widths }).with(errors.iter().map(|error| call.failed(error))))
}
