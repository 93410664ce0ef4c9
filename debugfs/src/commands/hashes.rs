//! Hash trees of directories: `htree_dump` and `dx_hash`.

use std::io::{self, Write};

use ext4kit_format::bytes::le32;
use ext4kit_format::disk::dirhash::{self, HashVersion};
use ext4kit_format::disk::htree::Root;
use ext4kit_format::disk::inode::InodeFlags;
use ext4kit_format::disk::{dirent, htree};
use ext4kit_format::txn::Transaction;
use ext4kit_format::{Defect, LogicalBlock, Place};
use serde::Serialize;
use uuid::Uuid;

use crate::answer::{Answer, Bytes, Outcome, Report};
use crate::listing::{self, DirectoryBlock};
use crate::table::Call;
use crate::words::text;

/// Columns of a list of names.
const WIDTH: usize = 80;

#[derive(Serialize)]
struct Child {
    hash: u32,
    block: u32,
}

#[derive(Serialize)]
struct IndexNode {
    count: usize,
    limit: usize,
    checksum: Option<u32>,
    children: Vec<Child>,
}

#[derive(Serialize)]
struct LeafName {
    inode: u32,
    hash: Option<u32>,
    minor: Option<u32>,
    record_length: usize,
    name: Bytes,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
enum Step {
    Root {
        reserved_zero: u32,
        hash_version: u8,
        info_length: u8,
        levels: u8,
        flags: u8,
        node: IndexNode,
    },
    Entry {
        position: usize,
        hash: u32,
        block: u32,
    },
    Inner {
        block: u32,
        node: IndexNode,
    },
    /// The last child of a node was the one before.
    End,
    Leaf {
        block: u32,
        physical: u64,
        names: Vec<LeafName>,
        checksum: Option<u32>,
    },
}

#[derive(Serialize)]
struct HashTree {
    steps: Vec<Step>,
}

fn node_text(node: &IndexNode, to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "Number of entries (count): {}", node.count)?;
    writeln!(to, "Number of entries (limit): {}", node.limit)?;
    if let Some(checksum) = node.checksum {
        writeln!(to, "Checksum: 0x{checksum:08x}")?;
    }
    for (at, Child { hash, block }) in node.children.iter().enumerate() {
        writeln!(to, "Entry #{at}: Hash 0x{hash:08x}, block {block}")?;
    }
    writeln!(to)
}

fn leaf_text(names: &[LeafName], checksum: Option<u32>, to: &mut dyn Write) -> io::Result<()> {
    let mut texts = Vec::new();
    for name in names {
        let mut text = format!(
            "{} 0x{:08x}-{:08x} ({}) ",
            name.inode,
            name.hash.unwrap_or(0),
            name.minor.unwrap_or(0),
            name.record_length
        )
        .into_bytes();
        text.extend_from_slice(&name.name.0);
        text.extend_from_slice(b"   ");
        texts.push(text);
    }
    texts.extend(checksum.map(|checksum| format!("leaf block checksum: 0x{checksum:08x}  ").into_bytes()));
    let mut column = 0;
    for text in texts {
        if column + text.len() > WIDTH {
            writeln!(to)?;
            column = 0;
        }
        column += text.len();
        to.write_all(&text)?;
    }
    writeln!(to)
}

impl Report for HashTree {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for step in &self.steps {
            match step {
                Step::Root { reserved_zero, hash_version, info_length, levels, flags, node } => {
                    writeln!(to, "Root node dump:")?;
                    writeln!(to, "\t Reserved zero: {reserved_zero}")?;
                    writeln!(to, "\t Hash Version: {hash_version}")?;
                    writeln!(to, "\t Info length: {info_length}")?;
                    writeln!(to, "\t Indirect levels: {levels}")?;
                    writeln!(to, "\t Flags: {flags}")?;
                    node_text(node, to)?;
                }
                Step::Entry { position, hash, block } => {
                    writeln!(to, "Entry #{position}: Hash 0x{hash:08x}, block {block}")?;
                }
                Step::Inner { node, .. } => node_text(node, to)?,
                Step::End => writeln!(to, "---------------------")?,
                Step::Leaf { block, physical, names, checksum } => {
                    writeln!(to, "Reading directory block {block}, phys {physical}")?;
                    leaf_text(names, *checksum, to)?;
                }
            }
        }
        Ok(())
    }
}

/// A tree on its way; children come from a table of the directory's blocks.
struct Walk<'a> {
    blocks: &'a [DirectoryBlock],
    checksummed: bool,
    hash: (HashVersion, [u32; 4]),
    steps: Vec<Step>,
    left: usize,
}

impl Walk<'_> {
    fn block(&self, logical: u32) -> Result<&DirectoryBlock, Defect> {
        let at = self.blocks.binary_search_by_key(&u64::from(logical), |block| block.logical);
        at.ok().and_then(|at| self.blocks.get(at)).ok_or_else(|| {
            Defect::Contradiction(format!("the hash tree names block {logical}, which cannot be read"))
        })
    }

    fn node(&self, index: htree::Index<'_>, bytes: &[u8]) -> IndexNode {
        let children = index.children().map(|(hash, block)| Child { hash, block: block.0 }).collect();
        let at = htree::entries_offset(bytes).unwrap_or(htree::NODE_ENTRIES);
        let limit = usize::from(htree::limit(bytes.len(), at, self.checksummed));
        let checksum = self.checksummed.then(|| le32(bytes, at + limit * 8 + 4)).flatten();
        IndexNode { count: index.count(), limit, checksum, children }
    }

    /// The children of a node, `levels` of inner nodes above the leaves. Each block is read at most once in all, so the
    /// directory's size bounds the walk.
    fn children(&mut self, children: &[(u32, u32)], levels: u8) -> Result<(), Defect> {
        for (position, (hash, block)) in children.iter().copied().enumerate() {
            self.left = self.left.checked_sub(1).ok_or(Defect::Loop { what: "hash tree" })?;
            self.steps.push(Step::Entry { position, hash, block });
            if levels == 0 {
                let leaf = self.leaf(block)?;
                self.steps.push(leaf);
                continue;
            }
            let found = self.block(block)?;
            let index = htree::Index::parse(&found.bytes, self.checksummed)?;
            let node = self.node(index, &found.bytes);
            let inner: Vec<_> = node.children.iter().map(|child| (child.hash, child.block)).collect();
            self.steps.push(Step::Inner { block, node });
            self.children(&inner, levels - 1)?;
        }
        self.steps.push(Step::End);
        Ok(())
    }

    fn leaf(&self, block: u32) -> Result<Step, Defect> {
        let found = self.block(block)?;
        let area = dirent::leaf_area(&found.bytes, found.has_tail);
        let mut names = Vec::new();
        for entry in found.format.entries(area) {
            let entry = entry.map_err(|bad| bad.defect)?;
            let (version, seed) = self.hash;
            let stored = entry.hash.map(|hash| (hash.hash, hash.minor));
            let hash = stored
                .or_else(|| dirhash::hash(version, seed, entry.name).map(|hash| (hash.major, hash.minor)));
            names.push(LeafName {
                inode: entry.inode.map_or(0, ext4kit_format::InodeNumber::get),
                hash: hash.map(|hash| hash.0),
                minor: hash.map(|hash| hash.1),
                record_length: entry.rec_len,
                name: entry.name.into(),
            });
        }
        let tail = if found.has_tail { dirent::tail_offset(&found.bytes) } else { None };
        let checksum = tail.and_then(|at| le32(&found.bytes, at + 8));
        Ok(Step::Leaf { block, physical: found.at.0, names, checksum })
    }
}

/// `htree_dump`.
pub fn htree_dump(call: &mut Call<'_>) -> Outcome {
    let inode = call.inode(&call.words(1, 1)?[0])?;
    if !inode.view().is_directory() {
        return Err(call.refuse("Not a directory"));
    }
    if !inode.view().flags().contains(InodeFlags::INDEX) {
        return Err(call.refuse("Not a hash-indexed directory"));
    }
    let txn = &call.open()?.txn;
    let mut blocks = Vec::new();
    let collected = listing::blocks(txn, &inode, &mut |block| {
        let DirectoryBlock { logical, at, ref bytes, format, has_tail, is_index } = *block;
        blocks.push(DirectoryBlock { logical, at, bytes: bytes.clone(), format, has_tail, is_index });
        Ok(())
    });
    let errors = collected.map_err(|error| call.failed(&error))?;
    let mut problems: Vec<_> = errors.iter().map(|error| call.failed(error)).collect();
    blocks.sort_by_key(|block| block.logical);
    let place = |defect: Defect| {
        let block = blocks.first().map_or(ext4kit_format::BlockNumber(0), |block| block.at);
        let logical = Some(LogicalBlock(0));
        defect.at(Place::DirectoryBlock { inode: inode.number(), logical, block })
    };
    let Some(first) = blocks.first().filter(|block| block.logical == 0) else {
        problems.push(call.refuse("the first block of the directory cannot be read"));
        return Ok(Answer::silent().with(problems));
    };
    let checksummed = txn.layout().checksum_seed.is_some();
    let root = Root::parse(&first.bytes, checksummed).map_err(|defect| call.failed(&place(defect)))?;
    let hash = txn.layout().directory_hash;
    let mut walk = Walk {
        blocks: &blocks,
        checksummed,
        hash: (root.hash_version().with_unsigned(hash.unsigned), hash.seed),
        steps: Vec::new(),
        left: blocks.len(),
    };
    let node = walk.node(root.index, &first.bytes);
    let children: Vec<_> = node.children.iter().map(|child| (child.hash, child.block)).collect();
    walk.steps.push(Step::Root {
        reserved_zero: root.info.reserved_zero.get(),
        hash_version: root.info.hash_version,
        info_length: root.info.info_length,
        levels: root.info.indirect_levels,
        flags: root.info.unused_flags,
        node,
    });
    if let Err(defect) = walk.children(&children, root.info.indirect_levels) {
        problems.push(call.failed(&place(defect)));
    }
    Ok(Answer::of(HashTree { steps: walk.steps }).with(problems))
}

#[derive(Serialize)]
struct Hash {
    name: Bytes,
    hash: u32,
    minor: u32,
}

impl Report for Hash {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        write!(to, "Hash of ")?;
        to.write_all(&self.name.0)?;
        writeln!(to, " is {:#x} (minor {:#x})", self.hash, self.minor)
    }
}

/// `dx_hash`. The seed is zero unless given, as in debugfs.
pub fn dx_hash(call: &mut Call<'_>) -> Outcome {
    let flags = call.flags("h:s:ce:", 1, 1)?;
    if flags.has('c') || flags.has('e') {
        return Err(call.refuse("names are not folded yet, so -c and -e cannot be honoured"));
    }
    let version = match flags.value('h').map(|name| text(name)).as_deref() {
        None | Some("legacy") => HashVersion::LEGACY,
        Some("half_md4") => HashVersion::HALF_MD4,
        Some("tea") => HashVersion::TEA,
        Some("legacy_unsigned") => HashVersion::LEGACY_UNSIGNED,
        Some("half_md4_unsigned") => HashVersion::HALF_MD4_UNSIGNED,
        Some("tea_unsigned") => HashVersion::TEA_UNSIGNED,
        Some(other) => return Err(call.refuse(format!("{other} is no hash; use legacy, half_md4 or tea"))),
    };
    let mut seed = [0; 4];
    if let Some(word) = flags.value('s') {
        let parsed = Uuid::parse_str(&text(word));
        let bytes = parsed.map_err(|_| call.refuse(format!("{} is no seed: it is a UUID", text(word))))?;
        for (word, bytes) in seed.iter_mut().zip(bytes.as_bytes().as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
    }
    let name = &flags.rest[0];
    let hash =
        dirhash::hash(version, seed, name).ok_or_else(|| call.refuse("this hash cannot be computed"))?;
    Ok(Answer::of(Hash { name: Bytes(name.clone()), hash: hash.major, minor: hash.minor }))
}
