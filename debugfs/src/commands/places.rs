//! Where an inode lies.

use std::io::{self, Write};

use ext4kit_format::tree::inode;
use ext4kit_format::txn::Transaction;
use serde::Serialize;

use crate::answer::{Answer, Outcome, Report};
use crate::paths;
use crate::table::Call;

#[derive(Serialize)]
struct InodePlace {
    inode: u32,
    group: u32,
    block: u64,
    offset: usize,
}

impl Report for InodePlace {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "Inode {} is part of block group {}", self.inode, self.group)?;
        writeln!(to, "\tlocated at block {}, offset {:#06x}", self.block, self.offset)
    }
}

/// `imap`. The inode itself is not read, so that the place of a damaged one can be told.
pub fn imap(call: &mut Call<'_>) -> Outcome {
    let word = &call.words(1, 1)?[0];
    let open = call.open()?;
    let number = paths::find(open, word).map_err(|error| call.not_found(word, &error))?;
    let (block, offset) = inode::locate(&open.txn, number).map_err(|error| call.failed(&error))?;
    let group = open.txn.layout().geometry.inode_place(number).map_or(0, |(group, _)| group.0);
    Ok(Answer::of(InodePlace { inode: number.get(), group, block: block.0, offset }))
}
