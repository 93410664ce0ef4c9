//! Free inodes, reserved fields, and extents that could be joined.

use ext4kit_format::Place;
use ext4kit_format::disk::extent::{Extent, Node};
use ext4kit_format::disk::inode::{FileKind, Inode, InodeFlags};
use ext4kit_format::tree::map;

use super::Linter;
use crate::finding::LintProblem as Problem;

/// Blocks that an extent can have at most, written or not.
const MOST_WRITTEN: u64 = 32_768;
const MOST_UNWRITTEN: u64 = 32_767;

/// Looks at every inode that was ever used, and tells of the directories with a hash tree.
pub fn lint(linter: &mut Linter<'_>, indexed: &mut dyn FnMut(&Inode)) {
    for (group, descriptor) in linter.groups() {
        linter.each_inode((group, descriptor), &mut |linter, inode, in_use| {
            if !in_use {
                free(linter, &inode);
                return;
            }
            let view = inode.view();
            if view.head().i_reserved.get() != 0 {
                linter.find(Place::Inode(inode.number()), Problem::InodeReservedSet {});
            }
            if linter.is_reserved(inode.number()) {
                return;
            }
            if view.is_directory() && view.flags().contains(InodeFlags::INDEX) {
                indexed(&inode);
            }
            extents(linter, &inode);
        });
    }
}

/// A free inode that was used once: a kernel leaves it with a time of deletion and without links and blocks.
fn free(linter: &mut Linter<'_>, inode: &Inode) {
    let view = inode.view();
    if view.mode() == 0 && view.links() == 0 {
        return;
    }
    let place = Place::Inode(inode.number());
    if view.links() != 0 || view.deletion_time() == 0 {
        linter.find(place, Problem::FreeInodeAlive {});
    } else if view.blocks_raw() != 0 {
        linter.find(place, Problem::FreeInodeBlocks {});
    }
}

/// Counts extents of one leaf that continue the one before and would fit into it.
fn extents(linter: &mut Linter<'_>, inode: &Inode) {
    let view = inode.view();
    let mapped = matches!(view.kind(), Some(FileKind::Regular | FileKind::Directory));
    if !mapped || !map::uses_extents(inode) || view.flags().contains(InodeFlags::INLINE_DATA) {
        return;
    }
    let opened = linter.opened;
    let Ok(nodes) = map::own_blocks(&opened.source.overlay, inode) else { return };
    let mut count = joinable(view.map());
    for block in nodes {
        let Ok(bytes) = opened.source.block(block) else { continue };
        count = count.saturating_add(joinable(&bytes));
    }
    if count > 0 {
        linter.find(Place::Inode(inode.number()), Problem::ExtentsMergeable { count });
    }
}

fn joinable(bytes: &[u8]) -> u64 {
    let Ok(node) = Node::parse(bytes) else { return 0 };
    if node.depth() != 0 {
        return 0;
    }
    let mut before: Option<Extent> = None;
    let mut count = 0u64;
    for extent in node.extents() {
        if let Some(before) = before
            && before.unwritten == extent.unwritten
            && before.logical_end() == u64::from(extent.logical.0)
            && before.physical.0.checked_add(before.length.into()) == Some(extent.physical.0)
            && u64::from(before.length).saturating_add(extent.length.into())
                <= (if extent.unwritten { MOST_UNWRITTEN } else { MOST_WRITTEN })
        {
            count = count.saturating_add(1);
        }
        before = Some(extent);
    }
    count
}
