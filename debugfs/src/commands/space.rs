//! What is in use, and what is free.

use std::io::{self, Write};

use ext4kit_format::disk::bitmap::Bits;
use ext4kit_format::txn::Transaction;
use ext4kit_format::{BlockNumber, GroupNumber};
use serde::Serialize;

use crate::answer::{Answer, Outcome, Report};
use crate::bitmaps;
use crate::paths;
use crate::table::Call;
use crate::words::number_or;

#[derive(Serialize)]
struct InodeUse {
    inode: u32,
    in_use: bool,
}

impl Report for InodeUse {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let text = if self.in_use { "marked" } else { "not" };
        writeln!(to, "Inode {} is {text} in use", self.inode)
    }
}

/// `testi`.
pub fn testi(call: &mut Call<'_>) -> Outcome {
    let word = &call.words(1, 1)?[0];
    let open = bitmaps::allowed(call)?;
    let number = paths::find(open, word).map_err(|error| call.not_found(word, &error))?;
    let in_use = bitmaps::inode_in_use(&open.txn, number).map_err(|error| call.failed(&error))?;
    Ok(Answer::of(InodeUse { inode: number.get(), in_use: in_use == Some(true) }))
}

#[derive(Serialize)]
struct BlockUse {
    block: u64,
    in_use: bool,
}

#[derive(Serialize)]
struct BlocksUse {
    blocks: Vec<BlockUse>,
}

impl Report for BlocksUse {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        self.blocks.iter().try_for_each(|BlockUse { block, in_use }| {
            writeln!(to, "Block {block} {} in use", if *in_use { "marked" } else { "not" })
        })
    }
}

/// `testb`.
pub fn testb(call: &mut Call<'_>) -> Outcome {
    let words = call.words(1, 2)?;
    let first = number_or(&call.name, "block", &words[0])?;
    let count = words.get(1).map_or(Ok(1), |word| number_or(&call.name, "count", word))?;
    let txn = &bitmaps::allowed(call)?.txn;
    let mut blocks = Vec::new();
    let mut held: Option<(GroupNumber, Vec<u8>)> = None;
    for block in first..first.saturating_add(count) {
        let Some((group, bit)) = txn.layout().geometry.bit_of(BlockNumber(block)) else {
            let what = format!("block {block} does not lie in a group of the filesystem");
            let problem = call.refuse(what);
            return Ok(Answer::of(BlocksUse { blocks }).with([problem]));
        };
        if held.as_ref().is_none_or(|(number, _)| *number != group) {
            let bitmap = bitmaps::of_blocks(txn, group).map_err(|error| call.failed(&error))?;
            held = Some((group, bitmap));
        }
        let in_use = held.as_ref().is_some_and(|(_, bitmap)| Bits(bitmap).is_set(bit));
        blocks.push(BlockUse { block, in_use });
    }
    Ok(Answer::of(BlocksUse { blocks }))
}

#[derive(Serialize)]
struct FreeBlocks {
    blocks: Vec<u64>,
}

impl Report for FreeBlocks {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        write!(to, "Free blocks found: ")?;
        self.blocks.iter().try_for_each(|block| write!(to, "{block} "))?;
        writeln!(to)
    }
}

/// `find_free_block`. The search goes from the goal to the end, then on from the beginning.
pub fn find_free_block(call: &mut Call<'_>) -> Outcome {
    let words = call.words(0, 2)?;
    let count = words.first().map_or(Ok(1), |word| number_or(&call.name, "count", word))?;
    let txn = &bitmaps::allowed(call)?.txn;
    let geometry = &txn.layout().geometry;
    let start = geometry.first_data_block().0;
    let goal = words.get(1).map_or(Ok(start), |word| number_or(&call.name, "goal", word))?;
    let goal = BlockNumber(if geometry.contains(BlockNumber(goal)) { goal } else { start });
    let (first, from) = geometry.bit_of(goal).unwrap_or((GroupNumber(0), 0));
    let groups = geometry.group_count();
    let mut blocks: Vec<u64> = Vec::new();
    'all: for step in 0..=groups {
        let group = nth_group(first.0, step, groups);
        let bitmap = bitmaps::of_blocks(txn, group).map_err(|error| call.failed(&error))?;
        let mut bit = if step == 0 { from } else { 0 };
        // The last step is the first group again, up to where the search began.
        let limit = if step == groups { from } else { geometry.group_clusters(group) };
        while let Some(free) = Bits(&bitmap).find_clear(bit, limit) {
            if blocks.len() as u64 >= count {
                break 'all;
            }
            let block = geometry.block_of_bit(group, free).0;
            for block in
                block..(block + u64::from(geometry.blocks_per_cluster())).min(geometry.blocks_count())
            {
                if (blocks.len() as u64) < count && (step != 0 || block >= goal.0) {
                    blocks.push(block);
                }
            }
            bit = free + 1;
        }
    }
    Ok(Answer::of(FreeBlocks { blocks }))
}

#[derive(Serialize)]
struct FreeInode {
    inode: u32,
}

impl Report for FreeInode {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "Free inode found: {}", self.inode)
    }
}

/// `find_free_inode`. The search begins in the directory's group. A mode is read, and makes no difference.
pub fn find_free_inode(call: &mut Call<'_>) -> Outcome {
    let words = call.words(0, 2)?;
    if let Some(mode) = words.get(1) {
        number_or(&call.name, "mode", mode)?;
    }
    let first = match words.first() {
        Some(word) => call.directory(word)?.number().get(),
        None => 1,
    };
    let txn = &bitmaps::allowed(call)?.txn;
    let geometry = &txn.layout().geometry;
    let groups = geometry.group_count();
    let first = (first - 1) / geometry.inodes_per_group();
    for step in 0..groups {
        let group = nth_group(first, step, groups);
        let bitmap = bitmaps::of_inodes(txn, group).map_err(|error| call.failed(&error))?;
        let mut from = 0;
        while let Some(place) = Bits(&bitmap).find_clear(from, geometry.inodes_per_group()) {
            match geometry.inode_at(group, place) {
                Some(inode) if inode.get() >= geometry.first_inode() => {
                    return Ok(Answer::of(FreeInode { inode: inode.get() }));
                }
                _ => from = place + 1,
            }
        }
    }
    Err(call.refuse("no inode is free"))
}

/// The group so many steps behind another, going round.
fn nth_group(first: u32, step: u32, groups: u32) -> GroupNumber {
    let group = (u64::from(first) + u64::from(step)) % u64::from(groups.max(1));
    GroupNumber(u32::try_from(group).unwrap_or(0))
}
