//! Pass 2: the hash trees of directories.

use rustc_hash::{FxHashMap, FxHashSet};

use ext4kit_format::disk::dirhash::HashVersion;
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::htree::{self, Index, Root};
use ext4kit_format::disk::inode::InodeFlags;
use ext4kit_format::{BlockNumber, LogicalBlock, Place};

use super::context::Context;
use super::directories::Current;
use crate::finding::DirectoryProblem as Problem;

/// Where each block of a directory lies.
pub type Blocks = FxHashMap<u32, BlockNumber>;

/// What a tree says of the blocks of its directory.
#[derive(Debug, Default)]
pub struct Tree {
    /// Blocks of the tree itself, the root included.
    pub nodes: FxHashSet<u32>,
    /// Leaves with the least and the largest hash that may be in them.
    pub leaves: FxHashMap<u32, (u32, u32)>,
    /// The hash, where it can be computed.
    pub version: Option<HashVersion>,
}

/// A child that is still to be entered.
struct Pending {
    block: LogicalBlock,
    levels: u8,
    least: u32,
    most: u32,
}

/// Walks the tree of a directory; `None` where its root cannot be used.
pub fn read(context: &mut Context<'_>, current: &Current<'_>, blocks: &Blocks) -> Option<Tree> {
    let root_block = *blocks.get(&0)?;
    let place = |logical: u32, block| Place::DirectoryBlock {
        inode: current.number,
        logical: Some(LogicalBlock(logical)),
        block,
    };
    let bytes = context.source.block(root_block).ok()?;
    let checksummed = current.seed.is_some();
    let root = match Root::parse(&bytes, checksummed) {
        Ok(root) => root,
        Err(defect) => {
            context.find(place(0, root_block), Problem::IndexRootDamaged { why: defect.to_string() });
            return None;
        }
    };
    if let Err(why) = check_root(context, current, &root) {
        context.find(place(0, root_block), Problem::IndexRootDamaged { why });
        return None;
    }
    let flags = current.view.flags();
    let stored_hash = flags.contains(InodeFlags::ENCRYPTED | InodeFlags::CASEFOLD);
    let computable = !flags.contains(InodeFlags::CASEFOLD);
    let version = root.hash_version().with_unsigned(context.layout.directory_hash.unsigned);
    let mut tree = Tree { version: (computable && !stored_hash).then_some(version), ..Tree::default() };
    tree.nodes.insert(0);
    check_sum(context, current, &bytes, place(0, root_block));
    let mut pending = Vec::new();
    push(context, &root.index, (root.info.indirect_levels, u32::MAX), &place(0, root_block), &mut pending);
    while let Some(next) = pending.pop() {
        let logical = next.block.0;
        let Some(block) = blocks.get(&logical).copied() else {
            let why = format!("block {logical} is not in the directory");
            context.find(place(0, root_block), Problem::IndexNodeDamaged { why });
            continue;
        };
        if tree.nodes.contains(&logical) || tree.leaves.contains_key(&logical) {
            context.find(place(logical, block), Problem::LeafReferencedTwice { logical });
            continue;
        }
        if next.levels == 0 {
            tree.leaves.insert(logical, (next.least, next.most));
            continue;
        }
        tree.nodes.insert(logical);
        let Ok(bytes) = context.source.block(block) else { continue };
        match Index::parse(&bytes, checksummed) {
            Ok(index) if !index.is_root() => {
                check_sum(context, current, &bytes, place(logical, block));
                let below = (next.levels.saturating_sub(1), next.most);
                push(context, &index, below, &place(logical, block), &mut pending);
            }
            Ok(_) => {
                let why = "it is a root".to_owned();
                context.find(place(logical, block), Problem::IndexNodeDamaged { why });
            }
            Err(defect) => {
                context.find(place(logical, block), Problem::IndexNodeDamaged { why: defect.to_string() });
            }
        }
    }
    Some(tree)
}

fn check_root(context: &Context<'_>, current: &Current<'_>, root: &Root<'_>) -> Result<(), String> {
    let large = context.features().incompat.contains(Incompat::LARGE_DIR);
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

fn check_sum(context: &mut Context<'_>, current: &Current<'_>, bytes: &[u8], place: Place) {
    if let Some(seed) = current.seed
        && let Err(defect) = htree::verify_checksum(bytes, seed)
    {
        context.find(place, Problem::IndexChecksumWrong { defect });
    }
}

/// Puts a node's children on the stack, each with the hashes that it may hold.
fn push(
    context: &mut Context<'_>,
    index: &Index<'_>,
    (levels, most): (u8, u32),
    place: &Place,
    pending: &mut Vec<Pending>,
) {
    if !index.check_order().is_empty() {
        context.find(place.clone(), Problem::IndexNodeDamaged { why: "hashes are out of order".to_owned() });
    }
    let mut end = most;
    for (hash, block) in index.children().rev() {
        pending.push(Pending { block, levels, least: hash & !1, most: end });
        end = hash | 1;
    }
}
