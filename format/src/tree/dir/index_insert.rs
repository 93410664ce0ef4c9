//! Putting names into indexed directories: making an index, splitting leaves and nodes.
//!
//! Each step leaves a tree in which every name is found: a new root level takes all children of the root; a node is
//! split before its leaf is; a leaf is split by the hashes of its names, and the index learns of the new leaf in the
//! same step.

use super::blocks::{self, Shape};
use super::index::{self, Frame, Hasher};
use super::linear;
use crate::disk::dirent::{self, NewEntry};
use crate::disk::dirhash::{self, HashVersion, NameHash};
use crate::disk::htree::{DxEntry, IndexMut, NewRoot};
use crate::disk::inode::{Inode, InodeFlags};
use crate::error::{Defect, Error, Result};
use crate::ids::{BlockNumber, InodeNumber, LogicalBlock};
use crate::txn::{BlockKind, Transaction, create, modify};

/// Metadata blocks that one step can change: leaf, new leaf, node, parent, and for the new block the map, bitmap,
/// descriptor, superblock and inode.
const CREDITS: u32 = 48;

/// Whether a full directory can be given an index: the filesystem has them, it has a single block, and its names can be
/// hashed.
pub(super) fn can_become_indexed(txn: &dyn Transaction, dir: &Inode, shape: &Shape) -> bool {
    let hash = txn.layout().directory_hash;
    txn.layout().has_directory_index()
        && dir.view().size() >> shape.block_bits == 1
        && !dir.view().flags().intersects(InodeFlags::INDEX | InodeFlags::CASEFOLD)
        && dirhash::hash(HashVersion(hash.version), hash.seed, b"x").is_some()
}

/// Moves the entries of a directory's only block into a leaf of its own, and makes the block the root of a tree.
pub(super) fn make_indexed(txn: &mut dyn Transaction, dir: &mut Inode, shape: &Shape) -> Result<()> {
    let root = LogicalBlock(0);
    let Some((block, bytes)) = blocks::read_leaf(txn, dir, shape, root)? else {
        return Err(Defect::Contradiction("the directory's first block is a hole".to_owned())
            .at(crate::Place::Inode(dir.number())));
    };
    let (dots, entries) = collect(dir, shape, root, block, &bytes)?;
    let parent = dots.unwrap_or(InodeNumber::ROOT);
    txn.ensure_credits(CREDITS)?;
    let packed: Vec<NewEntry<'_>> = entries.iter().map(Owned::borrow).collect();
    let (leaf, _) = blocks::append_leaf(txn, dir, shape, |area| shape.format.pack(area, packed))?;
    let hash_version = HashVersion(txn.layout().directory_hash.version);
    let new_root = NewRoot { own: dir.number(), parent, hash_version, child: leaf };
    create(txn, block, BlockKind::DirectoryIndex(dir.owner(), root), |bytes| {
        IndexMut::create_root(bytes, shape.format, shape.checksummed, new_root).map(|_| ())
    })?
    .map_err(|defect| defect.at(blocks::place(dir, root, block)))?;
    let flags = dir.view().flags().union(InodeFlags::INDEX);
    dir.set_flags(flags);
    Ok(())
}

/// An entry taken out of its block.
struct Owned {
    name: Vec<u8>,
    inode: InodeNumber,
    file_type: dirent::FileType,
}

impl Owned {
    fn borrow(&self) -> NewEntry<'_> {
        NewEntry { inode: self.inode, file_type: self.file_type, name: &self.name, hash: None }
    }
}

/// The entries of a leaf, without `.` and `..`, and what `..` names.
fn collect(
    dir: &Inode,
    shape: &Shape,
    logical: LogicalBlock,
    block: BlockNumber,
    bytes: &[u8],
) -> Result<(Option<InodeNumber>, Vec<Owned>)> {
    let mut parent = None;
    let mut entries = Vec::new();
    for entry in shape.format.entries(dirent::leaf_area(bytes, shape.checksummed)) {
        let entry = entry.map_err(|bad| bad.defect.at(blocks::place(dir, logical, block)))?;
        let Some(inode) = entry.inode else { continue };
        if entry.name == b".." {
            parent = Some(inode);
        }
        if !dirent::is_dot(entry.name) {
            entries.push(Owned { name: entry.name.to_vec(), inode, file_type: entry.file_type });
        }
    }
    Ok((parent, entries))
}

/// Puts an entry into an indexed directory.
pub(super) fn insert(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    shape: &Shape,
    entry: &NewEntry<'_>,
) -> Result<()> {
    let Some(hasher) = index::hasher(txn, dir, shape)? else {
        return Err(Error::Unsupported(format!("directory {}: the hash of its index", dir.number())));
    };
    if index::lookup(txn, dir, shape, hasher, entry.name)?.is_some() {
        return Err(Error::AlreadyExists(String::from_utf8_lossy(entry.name).into_owned()));
    }
    let hash = hasher.hash(entry.name).major;
    // Each round but the last gives one node room or splits the leaf; a leaf of long names may need two splits.
    for _ in 0..8 {
        let frames = index::probe(txn, dir, shape, hash)?;
        let leaf = index::child(dir, shape, &frames)?;
        if linear::insert_in(txn, dir, shape, leaf, entry)? {
            return Ok(());
        }
        txn.ensure_credits(CREDITS)?;
        if make_room(txn, dir, shape, &frames)? {
            split_leaf(txn, dir, shape, hasher, &frames)?;
        }
    }
    Err(Error::NoSpace)
}

/// Gives the lowest node of the way room for another child; `true` if it had room.
fn make_room(txn: &mut dyn Transaction, dir: &mut Inode, shape: &Shape, frames: &[Frame]) -> Result<bool> {
    let mut with_room = None;
    for (level, frame) in frames.iter().enumerate().rev() {
        if !frame.index(dir, shape)?.is_full() {
            with_room = Some(level);
            break;
        }
    }
    let Some(level) = with_room else {
        grow(txn, dir, shape, frames)?;
        return Ok(false);
    };
    match (frames.get(level), frames.get(level.saturating_add(1))) {
        (Some(parent), Some(full)) => {
            split_node(txn, dir, shape, parent, full)?;
            Ok(false)
        }
        _ => Ok(true),
    }
}

/// Moves all children of the root into a new node below it.
fn grow(txn: &mut dyn Transaction, dir: &mut Inode, shape: &Shape, frames: &[Frame]) -> Result<()> {
    let Some(root) = frames.first() else { return Err(Error::NoSpace) };
    let levels = index::levels(txn, dir, shape, root)?;
    if levels >= index::most_levels(txn) {
        return Err(Error::NoSpace);
    }
    let children = entries_from(dir, shape, root, 0)?;
    let (logical, _) = append_node(txn, dir, shape, &children)?;
    edit_node(txn, dir, shape, root, |node| {
        node.fill(&[DxEntry::new(0, logical)?])?;
        node.set_levels(levels.saturating_add(1))
    })
}

/// Moves the upper half of a full node's children into a new node behind it; the parent has room.
fn split_node(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    shape: &Shape,
    parent: &Frame,
    full: &Frame,
) -> Result<()> {
    let view = full.index(dir, shape)?;
    let middle = view.count() / 2;
    let hash = view.hash(middle).unwrap_or_default();
    let upper = entries_from(dir, shape, full, middle)?;
    let (logical, _) = append_node(txn, dir, shape, &upper)?;
    let behind = parent.position.saturating_add(1);
    edit_node(txn, dir, shape, parent, |node| node.insert(behind, &DxEntry::new(hash, logical)?))?;
    edit_node(txn, dir, shape, full, |node| node.truncate(middle))
}

fn entries_from(dir: &Inode, shape: &Shape, frame: &Frame, position: usize) -> Result<Vec<DxEntry>> {
    let mut bytes = frame.bytes.to_vec();
    IndexMut::parse(&mut bytes, shape.checksummed)
        .and_then(|node| node.entries_from(position))
        .map_err(|defect| defect.at(blocks::place(dir, frame.logical, frame.block)))
}

fn append_node(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    shape: &Shape,
    children: &[DxEntry],
) -> Result<(LogicalBlock, BlockNumber)> {
    let (logical, block) = blocks::append(txn, dir, shape)?;
    create(txn, block, BlockKind::DirectoryIndex(dir.owner(), logical), |bytes| {
        IndexMut::create_node(bytes, shape.format, shape.checksummed, children).map(|_| ())
    })?
    .map_err(|defect| defect.at(blocks::place(dir, logical, block)))?;
    Ok((logical, block))
}

fn edit_node(
    txn: &mut dyn Transaction,
    dir: &Inode,
    shape: &Shape,
    frame: &Frame,
    edit: impl FnOnce(&mut IndexMut<'_>) -> Result<(), Defect>,
) -> Result<()> {
    modify(txn, frame.block, BlockKind::DirectoryIndex(dir.owner(), frame.logical), |bytes| {
        IndexMut::parse(bytes, shape.checksummed).and_then(|mut node| edit(&mut node))
    })?
    .map_err(|defect| defect.at(blocks::place(dir, frame.logical, frame.block)))
}

/// Moves the names of the upper hashes of a leaf into a new leaf behind it; the lowest node has room.
fn split_leaf(
    txn: &mut dyn Transaction,
    dir: &mut Inode,
    shape: &Shape,
    hasher: Hasher,
    frames: &[Frame],
) -> Result<()> {
    let logical = index::child(dir, shape, frames)?;
    let Some(((block, bytes), parent)) = blocks::read_leaf(txn, dir, shape, logical)?.zip(frames.last())
    else {
        return Err(Defect::Contradiction(format!("leaf {logical} of the index is a hole or a node"))
            .at(crate::Place::Inode(dir.number())));
    };
    let (_, entries) = collect(dir, shape, logical, block, &bytes)?;
    let mut hashed: Vec<(NameHash, Owned)> =
        entries.into_iter().map(|entry| (hasher.hash(&entry.name), entry)).collect();
    hashed.sort_by_key(|(hash, _)| *hash);
    let middle = middle_by_size(shape, &hashed);
    let Some((first_upper, last_lower)) = middle
        .checked_sub(1)
        .and_then(|before| Some((hashed.get(middle)?.0.major, hashed.get(before)?.0.major)))
    else {
        return Err(Error::NoSpace);
    };
    // Where the cut falls between names of one hash, the lowest bit says that they go on.
    let key = first_upper | u32::from(first_upper == last_lower);
    let (lower, upper) = hashed.split_at(middle);
    let pack = |part: &[(NameHash, Owned)], area: &mut [u8]| {
        shape.format.pack(area, part.iter().map(|(_, entry)| entry.borrow()))
    };
    let (new_leaf, _) = blocks::append_leaf(txn, dir, shape, |area| pack(upper, area))?;
    let behind = parent.position.saturating_add(1);
    edit_node(txn, dir, shape, parent, |node| node.insert(behind, &DxEntry::new(key, new_leaf)?))?;
    modify(txn, block, BlockKind::DirectoryLeaf(dir.owner(), logical), |bytes| {
        blocks::write_leaf(bytes, shape, |area| pack(lower, area))
    })?
    .map_err(|defect| defect.at(blocks::place(dir, logical, block)))
}

/// The number of entries, in order of their hash, that fill about half of what all of them take.
fn middle_by_size(shape: &Shape, entries: &[(NameHash, Owned)]) -> usize {
    let size = |entry: &(NameHash, Owned)| shape.format.needed(&entry.1.name);
    let half = entries.iter().map(size).sum::<usize>() / 2;
    let mut sum = 0usize;
    let within = entries.iter().take_while(|entry| {
        sum = sum.saturating_add(size(entry));
        sum <= half
    });
    within.count().clamp(1, entries.len().saturating_sub(1).max(1))
}
