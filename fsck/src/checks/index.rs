//! Pass 2: the hash trees of directories.

use std::ops::Range;

use ext4kit_format::disk::dirhash::HashVersion;
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::htree::{self, Index, Root};
use ext4kit_format::disk::inode::InodeFlags;
use ext4kit_format::num::index;
use ext4kit_format::{BlockNumber, LogicalBlock, Place};

use super::context::Known;
use super::directories::Current;
use super::names::HashRange;
use super::part::Part;
use crate::finding::DirectoryProblem as Problem;

/// The blocks of a directory, in order of their place in it, and what its tree says of each.
#[derive(Debug, Default)]
pub struct Blocks {
    blocks: Vec<DirectoryBlock>,
}

/// A block of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryBlock {
    /// Its place in the directory.
    pub logical: u32,
    /// Where it lies.
    pub physical: BlockNumber,
    /// What the tree says of it.
    pub role: Role,
}

/// What the tree of a directory says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing, or there is no tree.
    Unknown,
    /// It is the root or an inner node.
    Node,
    /// It is a leaf for these hashes.
    Leaf(HashRange),
}

impl Blocks {
    /// These blocks, in any order.
    pub fn new(mut blocks: Vec<DirectoryBlock>) -> Self {
        blocks.sort_by_key(|block| block.logical);
        Self { blocks }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The blocks from one place of the list to another.
    pub fn range(&self, range: Range<usize>) -> impl Iterator<Item = (u32, DirectoryBlock)> {
        let start = u32::try_from(range.start).unwrap_or(u32::MAX);
        (start..).zip(self.blocks.get(range).unwrap_or_default().iter().copied())
    }

    /// The block at a place of the list.
    pub fn get(&self, at: u32) -> Option<DirectoryBlock> {
        self.blocks.get(index(at)).copied()
    }

    /// A block by its place in the directory; the last where a damaged map has several.
    fn find(&mut self, logical: u32) -> Option<&mut DirectoryBlock> {
        let after = self.blocks.partition_point(|block| block.logical <= logical);
        self.blocks.get_mut(after.checked_sub(1)?).filter(|block| block.logical == logical)
    }
}

/// A tree that was read: its hash, where that can be computed.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    /// The hash.
    pub version: Option<HashVersion>,
}

/// A child that is still to be entered.
struct Pending {
    block: LogicalBlock,
    levels: u8,
    least: u32,
    most: u32,
}

/// Walks the tree of a directory and notes what it says of each block; `None` where its root cannot be used.
pub fn read(part: &mut Part<'_, '_>, current: &Current<'_>, blocks: &mut Blocks) -> Option<Tree> {
    let root_block = blocks.find(0)?.physical;
    let place = |logical: u32, block| Place::DirectoryBlock {
        inode: current.number,
        logical: Some(LogicalBlock(logical)),
        block,
    };
    let bytes = part.source.block(root_block).ok()?;
    let checksummed = current.seed.is_some();
    let root = match Root::parse(&bytes, checksummed) {
        Ok(root) => root,
        Err(defect) => {
            part.find(place(0, root_block), Problem::IndexRootDamaged { why: defect.to_string() });
            return None;
        }
    };
    if let Err(why) = check_root(part, current, &root) {
        part.find(place(0, root_block), Problem::IndexRootDamaged { why });
        return None;
    }
    let flags = current.view.flags();
    let stored_hash = flags.contains(InodeFlags::ENCRYPTED | InodeFlags::CASEFOLD);
    let computable = !flags.contains(InodeFlags::CASEFOLD);
    let version = root.hash_version().with_unsigned(part.layout.directory_hash.unsigned);
    let tree = Tree { version: (computable && !stored_hash).then_some(version) };
    if let Some(root) = blocks.find(0) {
        root.role = Role::Node;
    }
    check_sum(part, current, &bytes, place(0, root_block));
    let mut pending = Vec::new();
    push(part, &root.index, (root.info.indirect_levels, u32::MAX), &place(0, root_block), &mut pending);
    while let Some(next) = pending.pop() {
        let logical = next.block.0;
        let Some(DirectoryBlock { physical: block, role, .. }) = blocks.find(logical) else {
            let why = format!("block {logical} is not in the directory");
            part.find(place(0, root_block), Problem::IndexNodeDamaged { why });
            continue;
        };
        let block = *block;
        if *role != Role::Unknown {
            part.find(place(logical, block), Problem::LeafReferencedTwice { logical });
            continue;
        }
        if next.levels == 0 {
            *role = Role::Leaf(HashRange { least: next.least, most: next.most });
            continue;
        }
        *role = Role::Node;
        let Ok(bytes) = part.source.block(block) else { continue };
        match Index::parse(&bytes, checksummed) {
            Ok(index) if !index.is_root() => {
                check_sum(part, current, &bytes, place(logical, block));
                let below = (next.levels.saturating_sub(1), next.most);
                push(part, &index, below, &place(logical, block), &mut pending);
            }
            Ok(_) => {
                let why = "it is a root".to_owned();
                part.find(place(logical, block), Problem::IndexNodeDamaged { why });
            }
            Err(defect) => {
                part.find(place(logical, block), Problem::IndexNodeDamaged { why: defect.to_string() });
            }
        }
    }
    Some(tree)
}

fn check_root(known: &Known<'_>, current: &Current<'_>, root: &Root<'_>) -> Result<(), String> {
    let large = known.features().incompat.contains(Incompat::LARGE_DIR);
    let most = if large { htree::MAX_INDIRECT_LEVELS_LARGE } else { htree::MAX_INDIRECT_LEVELS };
    if root.info.indirect_levels > most {
        return Err(format!("{} levels", root.info.indirect_levels));
    }
    if root.info.unused_flags & 1 != 0 {
        return Err(format!("flags {:#x}", root.info.unused_flags));
    }
    let version = root.hash_version();
    let needs_key = current.view.flags().contains(InodeFlags::ENCRYPTED | InodeFlags::CASEFOLD);
    let known = version.0 <= HashVersion::TEA_UNSIGNED.0 || version == HashVersion::SIPHASH;
    if !known || (version == HashVersion::SIPHASH) != needs_key {
        return Err(format!("hash version {}", version.0));
    }
    Ok(())
}

fn check_sum(part: &mut Part<'_, '_>, current: &Current<'_>, bytes: &[u8], place: Place) {
    if let Some(seed) = current.seed
        && let Err(defect) = htree::verify_checksum(bytes, seed)
    {
        part.find(place, Problem::IndexChecksumWrong { defect });
    }
}

/// Puts a node's children on the stack, each with the hashes that it may hold.
fn push(
    part: &mut Part<'_, '_>,
    node: &Index<'_>,
    (levels, most): (u8, u32),
    place: &Place,
    pending: &mut Vec<Pending>,
) {
    if !node.check_order().is_empty() {
        part.find(place.clone(), Problem::IndexNodeDamaged { why: "hashes are out of order".to_owned() });
    }
    let mut end = most;
    for (hash, block) in node.children().rev() {
        pending.push(Pending { block, levels, least: hash & !1, most: end });
        end = hash | 1;
    }
}
