//! Where each group's bitmaps and inode table lie. Pure arithmetic.
//!
//! Groups of one flex group have theirs together, at its start: first all block bitmaps, then all inode bitmaps, then
//! all tables. What does not fit there goes on into the next groups, around the copies of superblock and
//! descriptors. Without flex_bg each group has its own.

use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::ids::{BlockNumber, BlockRun, GroupNumber};

/// Where a group's bitmaps and inode table lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTables {
    /// The block bitmap.
    pub block_bitmap: BlockNumber,
    /// The inode bitmap.
    pub inode_bitmap: BlockNumber,
    /// The first block of the inode table.
    pub inode_table: BlockNumber,
}

impl GroupTables {
    /// The three as runs of blocks.
    pub fn runs(&self, geometry: &Geometry) -> [BlockRun; 3] {
        [
            BlockRun::single(self.block_bitmap),
            BlockRun::single(self.inode_bitmap),
            BlockRun { start: self.inode_table, length: geometry.inode_table_blocks().into() },
        ]
    }
}

/// Places the bitmaps and tables of every group, in the order of the groups.
pub fn place_tables(geometry: &Geometry) -> Result<Vec<GroupTables>> {
    let mut tables = Vec::with_capacity(crate::num::index(geometry.group_count()));
    let mut first = 0;
    while first < geometry.group_count() {
        let end = first.saturating_add(geometry.groups_per_flex()).min(geometry.group_count());
        place_flex_group(geometry, first..end, &mut tables)?;
        first = end;
    }
    Ok(tables)
}

fn place_flex_group(
    geometry: &Geometry,
    groups: std::ops::Range<u32>,
    tables: &mut Vec<GroupTables>,
) -> Result<()> {
    let mut cursor = Cursor::new(geometry, groups.clone());
    let count = groups.len();
    let take = |cursor: &mut Cursor<'_>, length: u32| {
        (0..count).map(|_| cursor.take(length)).collect::<Result<Vec<BlockNumber>>>()
    };
    let block_bitmaps = take(&mut cursor, 1)?;
    let inode_bitmaps = take(&mut cursor, 1)?;
    let inode_tables = take(&mut cursor, geometry.inode_table_blocks())?;
    let places = block_bitmaps.into_iter().zip(inode_bitmaps).zip(inode_tables);
    tables.extend(places.map(|((block_bitmap, inode_bitmap), inode_table)| GroupTables {
        block_bitmap,
        inode_bitmap,
        inode_table,
    }));
    Ok(())
}

/// Walks the blocks of a flex group from its start, around the metadata at the start of each of its groups.
struct Cursor<'a> {
    geometry: &'a Geometry,
    group: u32,
    end: u32,
    /// The next free block of the current group.
    next: BlockNumber,
}

impl<'a> Cursor<'a> {
    fn new(geometry: &'a Geometry, groups: std::ops::Range<u32>) -> Self {
        let next = free_start(geometry, groups.start);
        Self { geometry, group: groups.start, end: groups.end, next }
    }

    /// Takes consecutive blocks, which lie in one group or run on into one without metadata at its start.
    fn take(&mut self, length: u32) -> Result<BlockNumber> {
        while self.group < self.end {
            let start = self.next;
            if let Some(last_group) = self.reaches(start, length) {
                self.next = BlockNumber(start.0.saturating_add(length.into()));
                if last_group != self.group {
                    self.group = last_group;
                }
                return Ok(start);
            }
            self.group = self.group.saturating_add(1);
            self.next = free_start(self.geometry, self.group);
        }
        Err(Error::Invalid(format!(
            "inode tables of {} blocks do not fit their groups; fewer inodes or larger groups would",
            self.geometry.inode_table_blocks()
        )))
    }

    /// The group in which a run of blocks ends, if it crosses no metadata and stays in the flex group.
    fn reaches(&self, start: BlockNumber, length: u32) -> Option<u32> {
        let end = start.0.saturating_add(length.into());
        let mut group = self.group;
        loop {
            let blocks = self.geometry.group_blocks(GroupNumber(group));
            if end <= blocks.start.0.saturating_add(blocks.length) {
                return Some(group);
            }
            group = group.saturating_add(1);
            let clear = group < self.end
                && free_start(self.geometry, group) == self.geometry.group_start(GroupNumber(group));
            if !clear {
                return None;
            }
        }
    }
}

/// The first block of a group behind the metadata at its start.
fn free_start(geometry: &Geometry, group: u32) -> BlockNumber {
    let group = GroupNumber(group);
    let start = geometry.group_start(group);
    geometry.base_metadata(group).runs().filter_map(BlockRun::end).fold(start, BlockNumber::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::Plan;
    use crate::create::plan::tests::ext4;
    use std::collections::BTreeSet;

    fn check(geometry: &Geometry) {
        let tables = place_tables(geometry).unwrap();
        assert_eq!(tables.len(), geometry.group_count() as usize);
        let mut used = BTreeSet::new();
        let base =
            geometry.groups().flat_map(|group| geometry.base_metadata(group).runs().collect::<Vec<_>>());
        for run in base.chain(tables.iter().flat_map(|tables| tables.runs(geometry))) {
            assert!(geometry.contains_run(run), "{run:?} leaves the filesystem");
            for block in run.iter() {
                assert!(used.insert(block), "block {block} is used twice");
            }
        }
    }

    #[test]
    fn nothing_overlaps() {
        for (blocks, size, flex, feature) in [
            (262_144, 4096, 16, true),
            (102_400, 1024, 16, true),
            (102_400, 1024, 16, false),
            (262_144, 1024, 1, true),
            (1_048_576, 1024, 128, true),
            (1_000_000, 2048, 64, true),
        ] {
            let mut parameters = ext4(blocks, size);
            parameters.flex_groups = flex;
            parameters.features.incompat.set(crate::disk::features::Incompat::FLEX_BG, feature);
            check(&Plan::new(&parameters).unwrap().layout.geometry);
        }
    }

    #[test]
    fn flex_groups_keep_theirs_in_front() {
        let plan = Plan::new(&ext4(262_144, 4096)).unwrap();
        let tables = place_tables(&plan.layout.geometry).unwrap();
        assert_eq!(tables[0].block_bitmap, BlockNumber(129));
        assert_eq!(tables[7].inode_bitmap, BlockNumber(144));
        assert_eq!(tables[1].inode_table, BlockNumber(657));
    }
}
