//! Hash trees that are sound but not as they should be.

use ext4kit_format::disk::dirent;
use ext4kit_format::disk::htree::{self, Index, Root};
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::tree::{dir, inode, map};
use ext4kit_format::{BlockNumber, InodeNumber, LogicalBlock, Place};

use super::Linter;
use crate::finding::LintProblem as Problem;
use crate::source::Bytes;

/// Nodes of a tree that are looked at; a directory has no more in four levels of the largest blocks that files reach.
const MOST_NODES: usize = 1 << 20;

/// Looks at the hash tree of a directory.
pub fn lint(linter: &mut Linter<'_>, number: InodeNumber) {
    let txn = &linter.opened.source.overlay;
    let Ok(directory) = inode::read_unverified(txn, number) else { return };
    let Ok(shape) = dir::shape(txn, &directory) else { return };
    let Some((bytes, block)) = block(linter, &directory, LogicalBlock(0)) else { return };
    let Ok(root) = Root::parse(&bytes, shape.checksummed) else { return };
    let place = |logical, block| Place::DirectoryBlock { inode: number, logical: Some(logical), block };
    let flags = root.info.unused_flags;
    if flags != 0 {
        linter.find(place(LogicalBlock(0), block), Problem::RootFlagsSet { flags });
    }
    let levels = root.info.indirect_levels;
    let room = htree::entries_offset(&bytes).map_or(0, |at| htree::limit(bytes.len(), at, shape.checksummed));
    // Children with the number of inner levels below them.
    let mut pending: Vec<(LogicalBlock, u8)> =
        root.index.children().map(|(_, child)| (child, levels)).collect();
    let mut below = 0usize;
    let mut nodes = 0usize;
    while let Some((logical, level)) = pending.pop() {
        nodes = nodes.saturating_add(1);
        let Some((bytes, block)) = self::block(linter, &directory, logical) else { continue };
        if nodes > MOST_NODES {
            return;
        }
        if level == 0 {
            let area = dirent::leaf_area(&bytes, shape.checksummed);
            let empty =
                shape.format.entries(area).all(|entry| entry.is_ok_and(|entry| entry.inode.is_none()));
            if empty {
                linter.find(place(logical, block), Problem::LeafEmpty { logical: logical.0 });
            }
            continue;
        }
        let Ok(index) = Index::parse(&bytes, shape.checksummed) else { continue };
        if level == levels {
            below = below.saturating_add(index.count());
        }
        let reserved = bytes.get(bytes.len().saturating_sub(8)..bytes.len().saturating_sub(4));
        if shape.checksummed && reserved.is_some_and(|tail| tail.iter().any(|byte| *byte != 0)) {
            linter.find(place(logical, block), Problem::NodeTailWrong { logical: logical.0 });
        }
        pending.extend(index.children().map(|(_, child)| (child, level.saturating_sub(1))));
    }
    if levels > 0 && below <= usize::from(room) {
        linter.find(place(LogicalBlock(0), block), Problem::LevelsTooMany { levels });
    }
}

/// A block of a directory.
fn block<'a>(
    linter: &Linter<'a>,
    directory: &Inode,
    logical: LogicalBlock,
) -> Option<(Bytes<'a>, BlockNumber)> {
    let opened = linter.opened;
    let segment = map::lookup(&opened.source.overlay, directory, logical).ok()?;
    let block = segment.run()?.start;
    opened.source.block(block).ok().map(|bytes| (bytes, block))
}
