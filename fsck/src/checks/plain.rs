//! Pass 1: the inodes that most inodes are like, recognised at a glance.
//!
//! A regular file that maps its blocks by at most four extents in the inode, has the usual flags and no attributes, and
//! whose every number is what it should be, needs none of the many questions of [`super::inodes`]: it is claimed and
//! counted here. Whatever is in any way else, wrong or only rare, goes the long way, which stays the one place that judges.

use std::ops::Range;

use ext4kit_format::bytes::le32;
use ext4kit_format::disk::extent::{ExtentLeaf, Node, Slots};
use ext4kit_format::disk::features::{Incompat, RoCompat};
use ext4kit_format::disk::inode::{EXTRA_SIZE, FileKind, InodeFlags, InodeView};
use ext4kit_format::disk::xattr;
use ext4kit_format::{BlockRun, InodeNumber};

use super::context::{Known, known};
use super::part::Part;

/// Files of this size and above need a feature.
const LARGE_FILE: u64 = 0x8000_0000;
/// The type of a regular file as directories store it.
const REGULAR: u8 = 1;

/// Whether inodes of this filesystem can be recognised at all: its features are the usual ones, and nobody is an orphan.
pub fn applies(known: &Known<'_>) -> bool {
    let features = known.features();
    features.incompat.contains(Incompat::EXTENTS)
        && features.ro_compat.contains(RoCompat::HUGE_FILE)
        && known.geometry().cluster_bits() == 0
        && known.orphans.is_empty()
}

/// Claims and counts an inode that is plainly sound; whether it is one.
pub fn take(part: &mut Part<'_, '_>, number: InodeNumber, view: InodeView<'_>) -> bool {
    if !has_plain_fields(part, number, view) {
        return false;
    }
    let Ok(Slots::Leaf(leaves)) = Node::parse(view.map()).map(|node| node.slots()) else { return false };
    let Some(Measure { blocks, end }) = measure(part, 0..u32::MAX.into(), leaves) else { return false };
    let bits = part.geometry().block_bits();
    let least = end.saturating_sub(1) << bits;
    let sized = view.size() >= least && view.size() < LARGE_FILE;
    if !sized || view.blocks_raw() != blocks << bits.saturating_sub(9) {
        return false;
    }
    part.states.set(number, known::USED | REGULAR);
    part.links.set(number, u8::try_from(view.links()).unwrap_or(u8::MAX));
    let fragmented = claim(part, leaves, None);
    let files = &mut part.found.files;
    files.regular = files.regular.saturating_add(1);
    files.fragmented = files.fragmented.saturating_add(fragmented.into());
    true
}

/// Whether every field but map, size and blocks is what it is in a plain file.
fn has_plain_fields(known: &Known<'_>, number: InodeNumber, view: InodeView<'_>) -> bool {
    let superblock = known.superblock;
    let hidden = [superblock.s_prj_quota_inum.get(), superblock.s_orphan_file_inum.get()];
    let head = view.head();
    let extra = view.extra_size();
    view.kind() == Some(FileKind::Regular)
        && view.flags() == InodeFlags::EXTENTS
        && view.links() > 0
        && view.deletion_time() == 0
        && head.i_faddr.get() == 0
        && view.attribute_block().0 == 0
        && (extra.is_none() || extra == Some(EXTRA_SIZE))
        && le32(view.attribute_area(), 0) != Some(xattr::MAGIC)
        && number.get() >= known.geometry().first_inode()
        && !hidden.contains(&number.get())
}

/// What some extents come to.
pub struct Measure {
    /// How many blocks they have.
    pub blocks: u64,
    /// The first block of the file behind the last of them.
    pub end: u64,
}

/// Measures extents that are in order within a range of the file, written and clear of metadata; `None` if any is not.
pub fn measure(part: &mut Part<'_, '_>, range: Range<u64>, leaves: &[ExtentLeaf]) -> Option<Measure> {
    let (mut blocks, mut end) = (0u64, range.start);
    for extent in leaves.iter().map(ExtentLeaf::extent) {
        let run = BlockRun { start: extent.physical, length: extent.length.into() };
        let start = u64::from(extent.logical.0);
        if extent.unwritten
            || run.length == 0
            || start < end
            || !part.geometry().contains_run(run)
            || part.in_metadata(run).is_some()
        {
            return None;
        }
        blocks = blocks.saturating_add(run.length);
        end = start.saturating_add(run.length);
    }
    (end <= range.end).then_some(Measure { blocks, end })
}

/// Claims extents, given where on disk those before end. Whether some do not lie right behind each other.
pub fn claim(part: &mut Part<'_, '_>, leaves: &[ExtentLeaf], before: Option<u64>) -> bool {
    let (mut fragmented, mut next) = (false, before);
    for extent in leaves.iter().map(ExtentLeaf::extent) {
        let end = extent.physical.0.saturating_add(extent.length.into());
        fragmented |= next.is_some_and(|next| next != extent.physical.0);
        next = Some(end);
        part.claim(extent.physical.0, end.saturating_sub(1));
    }
    fragmented
}
