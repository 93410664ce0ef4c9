//! Bytes of blocks and inodes.

use std::io::{self, Write};

use ext4kit_format::disk::xattr::{Area, BLOCK_HEADER, INODE_HEADER, MAGIC, Value, XattrHeader};
use ext4kit_format::tree::map::{self, State};
use ext4kit_format::txn::{BlockKind, Transaction};
use ext4kit_format::{BlockNumber, LogicalBlock, bytes};
use serde::Serialize;
use zerocopy::FromBytes;

use crate::answer::{Answer, Outcome, Report, hex};
use crate::table::Call;
use crate::words::number_or;

/// Bytes of a line.
const LINE: usize = 16;

/// Bytes, sixteen to a line; lines like the one before are left out.
pub fn hexdump(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let mut before: Option<&[u8]> = None;
    let mut left_out = false;
    for (number, line) in bytes.chunks(LINE).enumerate() {
        if before.is_some_and(|before| before.starts_with(line)) {
            if !left_out {
                writeln!(to, "*")?;
            }
            left_out = true;
            continue;
        }
        left_out = false;
        before = Some(line);
        write!(to, "{:04o}  ", number * LINE)?;
        for at in 0..LINE {
            match line.get(at) {
                Some(byte) => write!(to, "{byte:02x}")?,
                None => write!(to, "  ")?,
            }
            if at % 2 == 1 {
                write!(to, " ")?;
            }
        }
        writeln!(to, " {}", printable(line))?;
    }
    writeln!(to)
}

/// Bytes as `logdump -c` shows them: sixteen to a line, in little-endian words of four.
pub fn word_dump(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    for (number, line) in bytes.chunks(LINE).enumerate() {
        write!(to, "    {:04x}:  ", number * LINE)?;
        for word in line.as_chunks::<4>().0 {
            write!(to, "{:08x} ", u32::from_le_bytes(*word))?;
        }
        writeln!(to, "{}", printable(line))?;
    }
    Ok(())
}

/// Bytes as characters, with a dot for what cannot be printed.
fn printable(line: &[u8]) -> String {
    line.iter().map(|byte| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' }).collect()
}

#[derive(Serialize)]
struct Bytewise {
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    hex: String,
    #[serde(skip)]
    bytes: Vec<u8>,
    #[serde(skip)]
    attributes: Option<Kind>,
}

#[derive(Clone, Copy)]
enum Kind {
    Block,
    Inode,
}

impl Report for Bytewise {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        match self.attributes {
            None => hexdump(to, &self.bytes),
            Some(kind) => attributes(to, &self.bytes, kind),
        }
    }
}

/// An area of extended attributes, field by field.
fn attributes(to: &mut dyn Write, area: &[u8], kind: Kind) -> io::Result<()> {
    let magic = bytes::le32(area, 0).unwrap_or(0);
    write!(to, "magic = {magic:08x}, length = {}", area.len())?;
    let (parsed, base) = match kind {
        Kind::Block => {
            writeln!(to)?;
            (Area::of_block(area).ok(), 0)
        }
        Kind::Inode => {
            writeln!(to, ", value_start ={INODE_HEADER} \n")?;
            (Area::of_inode(area), INODE_HEADER)
        }
    };
    if magic != MAGIC {
        return Ok(());
    }
    if let (Kind::Block, Ok((header, _))) = (kind, XattrHeader::read_from_prefix(area)) {
        writeln!(to, "refcount = {}, blocks = {}", header.h_refcount, header.h_blocks)?;
        writeln!(to, "hash = {:08x}, checksum = {:08x}", header.h_hash.get(), header.h_checksum.get())?;
        let [a, b, c] = header.h_reserved.map(zerocopy::little_endian::U32::get);
        writeln!(to, "reserved: {a:08x} {b:08x} {c:08x}\n")?;
    }
    let Some(parsed) = parsed else { return Ok(()) };
    let mut end = if base == 0 { BLOCK_HEADER } else { base };
    for entry in parsed.entries() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(bad) => return writeln!(to, "offset = {} ({0:04o}): {}", bad.offset + base, bad.defect),
        };
        let (offset, length) = (entry.offset + base, entry.name.len());
        writeln!(
            to,
            "offset = {offset} ({offset:04o}), hash = {}, name_len = {length}, name_index = {}",
            entry.hash, entry.index.0
        )?;
        let stored = usize::from(bytes::le16(area, offset + 2).unwrap_or(0));
        let (holder, size) = match entry.value {
            Value::Here(value) => (0, value.len()),
            Value::Inode { inode, size } => (inode.get(), size as usize),
        };
        let at = stored + base;
        writeln!(to, "value_offset = {stored} ({at:04o}), value_inum = {holder}, value_size = {size}")?;
        write!(to, "name = ")?;
        to.write_all(entry.name)?;
        writeln!(to)?;
        match entry.value {
            Value::Inode { inode, .. } => writeln!(to, "value = <ino {inode}>")?,
            Value::Here([]) => {}
            Value::Here(value) if value.iter().all(|byte| (b' '..=b'~').contains(byte)) => {
                write!(to, "value = ")?;
                to.write_all(value)?;
                writeln!(to)?;
            }
            Value::Here(value) => {
                writeln!(to, "value = <hexdump>")?;
                hexdump(to, value)?;
                writeln!(to)?;
            }
        }
        writeln!(to)?;
        end = offset + (16 + length).next_multiple_of(4);
    }
    writeln!(to, "last entry found at offset {end} ({end:04o})")
}

/// `block_dump`. The block is taken as it is, whatever it may be.
pub fn block_dump(call: &mut Call<'_>) -> Outcome {
    let flags = call.flags("xf:", 1, 1)?;
    let wanted = number_or(&call.name, "block", &flags.rest[0])?;
    let open = call.open()?;
    let block = match flags.value('f') {
        None => BlockNumber(wanted),
        Some(file) => {
            let inode = call.inode(file)?;
            if !crate::walk::has_map(&inode) {
                return Err(call.refuse("the file's contents lie inside the inode, it has no blocks"));
            }
            let logical = u32::try_from(wanted).map_err(|_| call.refuse("a file has no such block"))?;
            let segment =
                map::lookup(&open.txn, &inode, LogicalBlock(logical)).map_err(|error| call.failed(&error))?;
            let skipped = u64::from(logical - segment.logical.0.min(logical));
            match segment.state {
                State::Hole => return Err(call.refuse(format!("block {wanted} of the file is a hole"))),
                State::Written(start) | State::Unwritten(start) => BlockNumber(start.0 + skipped),
            }
        }
    };
    let bytes = open.txn.read(block, BlockKind::Plain).map_err(|error| call.failed(&error))?.to_vec();
    let attributes = flags.has('x').then_some(Kind::Block);
    Ok(Answer::of(Bytewise { block: Some(block.0), inode: None, hex: hex(&bytes), bytes, attributes }))
}

/// `inode_dump`.
pub fn inode_dump(call: &mut Call<'_>) -> Outcome {
    let flags = call.flags("bex", 1, 1)?;
    let inode = call.inode(&flags.rest[0])?;
    let view = inode.view();
    let bytes = if flags.has('b') {
        view.map().to_vec()
    } else if flags.has('e') || flags.has('x') {
        view.attribute_area().to_vec()
    } else {
        inode.bytes().to_vec()
    };
    let attributes = (flags.has('x') && !flags.has('b')).then_some(Kind::Inode);
    let number = Some(inode.number().get());
    Ok(Answer::of(Bytewise { block: None, inode: number, hex: hex(&bytes), bytes, attributes }))
}
