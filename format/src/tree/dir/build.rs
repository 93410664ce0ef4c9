//! Making a directory of many names in one go: packed leaves, and the hash tree over them written once.
//!
//! Inserting names one by one looks each of them up, and splits leaves until they are half full. Here names are sorted by
//! their hash and packed; the time is that of the sort.

use super::blocks::{self, Shape};
use super::index::{self, Hasher};
use super::{check_name, inline};
use crate::disk::dirent::{self, FileType, NewEntry};
use crate::disk::dirhash::{self, HashVersion, NameHash};
use crate::disk::htree::{DxEntry, IndexMut, NODE_ENTRIES, NewRoot, ROOT_ENTRIES, limit};
use crate::disk::inode::{Inode, InodeFlags};
use crate::error::{Error, Result};
use crate::ids::{InodeNumber, LogicalBlock};
use crate::txn::{BlockKind, Transaction, create};

/// A name of a directory to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name, as [`check_name`] wants it.
    pub name: Vec<u8>,
    /// The inode that it names.
    pub inode: InodeNumber,
    /// The kind of file.
    pub file_type: FileType,
}

impl Name {
    fn entry(&self) -> NewEntry<'_> {
        NewEntry { inode: self.inode, file_type: self.file_type, name: &self.name, hash: None }
    }
}

/// Metadata blocks that adding one block may change.
const CREDITS: u32 = 16;

/// Fills a new directory, whose map is initialised and empty, with `.`, `..` and these names, in any order.
///
/// Inside the inode if `allow_inline` and they fit there. The same names give the same blocks, whatever their order.
pub fn build(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    parent: InodeNumber,
    (names, allow_inline): (&mut [Name], bool),
) -> Result<()> {
    let shape = blocks::shape(txn, dir)?;
    names.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    for name in &*names {
        check_name(&name.name)?;
    }
    if let Some([twice, _]) = names.array_windows().find(|[one, other]| one.name == other.name) {
        return Err(Error::AlreadyExists(String::from_utf8_lossy(&twice.name).into_owned()));
    }
    if allow_inline && build_inline(dir, &shape, parent, names)? {
        return Ok(());
    }
    let tail = if shape.checksummed { dirent::TAIL_SIZE } else { 0 };
    let area = txn.layout().geometry.block_length().saturating_sub(tail);
    let dots = shape.format.needed(b".").saturating_add(shape.format.needed(b".."));
    let total = names.iter().fold(dots, |sum, name| sum.saturating_add(shape.format.needed(&name.name)));
    match new_hasher(txn, dir).filter(|_| total > area) {
        Some(hasher) => build_indexed(txn, dir, &shape, (parent, hasher, area), names),
        None => build_linear(txn, dir, &shape, (parent, area), names),
    }
}

/// How a new directory hashes names; `None` if it gets no tree.
fn new_hasher(txn: &dyn Transaction, dir: &Inode) -> Option<Hasher> {
    let hash = txn.layout().directory_hash;
    let version = HashVersion(hash.version).with_unsigned(hash.unsigned);
    let usable = txn.layout().has_directory_index() && !dir.view().flags().contains(InodeFlags::CASEFOLD);
    (usable && dirhash::hash(version, hash.seed, b"x").is_some())
        .then_some(Hasher { version, seed: hash.seed })
}

/// Builds the directory inside its inode; `false` (and nothing changed) if it does not fit.
fn build_inline(dir: &mut Inode, shape: &Shape, parent: InodeNumber, names: &[Name]) -> Result<bool> {
    // No inode has room for more, so that no time is lost on large directories.
    if names.len() > dir.bytes().len() / dirent::MIN_RECORD {
        return Ok(false);
    }
    let mut trial = dir.clone();
    if !inline::create(&mut trial, shape, parent)? {
        return Ok(false);
    }
    for name in names {
        if !inline::insert(&mut trial, shape, &name.entry())? {
            return Ok(false);
        }
    }
    *dir = trial;
    Ok(true)
}

fn build_linear(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    shape: &Shape,
    (parent, area): (InodeNumber, usize),
    names: &[Name],
) -> Result<()> {
    let dot = |inode, name| NewEntry { inode, file_type: FileType::DIRECTORY, name, hash: None };
    let dots = [dot(dir.number(), b".".as_slice()), dot(parent, b"..")];
    let mut left: Vec<NewEntry<'_>> = dots.into_iter().chain(names.iter().map(Name::entry)).collect();
    let mut rest = left.as_mut_slice();
    while !rest.is_empty() {
        let count = packed(shape, area, rest.iter().map(|entry| entry.name));
        let (block, behind) = rest.split_at_mut(count);
        txn.ensure_credits(CREDITS)?;
        blocks::append_leaf(txn, dir, shape, |area| shape.format.pack(area, block.iter().copied()))?;
        rest = behind;
    }
    Ok(())
}

/// How many names from the first on fit into one leaf: at least one.
fn packed<'n>(shape: &Shape, area: usize, names: impl Iterator<Item = &'n [u8]>) -> usize {
    let mut taken = 0usize;
    let fitting = names.take_while(|name| {
        taken = taken.saturating_add(shape.format.needed(name));
        taken <= area
    });
    fitting.count().max(1)
}

fn build_indexed(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    shape: &Shape,
    (parent, hasher, area): (InodeNumber, Hasher, usize),
    names: &[Name],
) -> Result<()> {
    let mut hashed: Vec<(NameHash, &Name)> =
        names.iter().map(|name| (hasher.hash(&name.name), name)).collect();
    hashed.sort_by_key(|(hash, _)| *hash);
    let (root, block) = blocks::append(txn, dir, shape)?;
    let mut children: Vec<(u32, LogicalBlock)> = Vec::new();
    let (mut rest, mut last_hash) = (hashed.as_slice(), None);
    while let Some((first, _)) = rest.first() {
        let count = packed(shape, area, rest.iter().map(|(_, name)| name.name.as_slice()));
        let (leaf, behind) = rest.split_at(count);
        txn.ensure_credits(CREDITS)?;
        let entries = leaf.iter().map(|(_, name)| name.entry());
        let (logical, _) = blocks::append_leaf(txn, dir, shape, |area| shape.format.pack(area, entries))?;
        // The lowest bit says that names of the hash before go on here.
        let continues = last_hash == Some(first.major);
        children.push((first.major | u32::from(continues), logical));
        last_hash = leaf.last().map(|(hash, _)| hash.major);
        rest = behind;
    }
    let (children, levels) = build_nodes(txn, dir, shape, children)?;
    let first = children.first().map_or(root, DxEntry::child);
    let hash_version = HashVersion(txn.layout().directory_hash.version);
    let new_root = NewRoot { own: dir.number(), parent, hash_version, child: first };
    create(txn, block, BlockKind::DirectoryIndex(dir.owner(), root), |bytes| {
        let mut node = IndexMut::create_root(bytes, shape.format, shape.checksummed, new_root)?;
        node.fill(&children)?;
        node.set_levels(levels)
    })?
    .map_err(|defect| defect.at(blocks::place(dir, root, block)))?;
    let flags = dir.view().flags().union(InodeFlags::INDEX);
    dir.set_flags(flags);
    Ok(())
}

/// Puts inner nodes over children until the rest fits into the root; the root's children, and the levels between it and
/// the leaves.
fn build_nodes(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    shape: &Shape,
    mut children: Vec<(u32, LogicalBlock)>,
) -> Result<(Vec<DxEntry>, u8)> {
    let length = txn.layout().geometry.block_length();
    let root_limit = usize::from(limit(length, ROOT_ENTRIES, shape.checksummed));
    let node_limit = usize::from(limit(length, NODE_ENTRIES, shape.checksummed)).max(2);
    let entries = |dir: &Inode, children: &[(u32, LogicalBlock)]| {
        let entries = children.iter().map(|(hash, child)| DxEntry::new(*hash, *child));
        entries.collect::<Result<Vec<_>, _>>().map_err(|defect| defect.at(crate::Place::Inode(dir.number())))
    };
    let mut levels = 0u8;
    while children.len() > root_limit {
        if levels >= index::most_levels(txn) {
            return Err(Error::FileTooBig(dir.number()));
        }
        let mut above = Vec::new();
        for part in children.chunks(node_limit) {
            let Some((hash, _)) = part.first() else { break };
            let part = entries(dir, part)?;
            txn.ensure_credits(CREDITS)?;
            let (logical, block) = blocks::append(txn, dir, shape)?;
            create(txn, block, BlockKind::DirectoryIndex(dir.owner(), logical), |bytes| {
                IndexMut::create_node(bytes, shape.format, shape.checksummed, &part).map(|_| ())
            })?
            .map_err(|defect| defect.at(blocks::place(dir, logical, block)))?;
            above.push((*hash, logical));
        }
        children = above;
        levels = levels.saturating_add(1);
    }
    Ok((entries(dir, &children)?, levels))
}
