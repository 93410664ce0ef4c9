//! What a block of the filesystem is, as far as its place tells.

use ext4kit_format::BlockNumber;
use ext4kit_format::disk::group_desc::GroupDescriptor;
use ext4kit_format::geometry::Geometry;
use ext4kit_format::image::Image;
use ext4kit_format::tree::group;
use ext4kit_format::txn::OverlayOptions;

/// Names blocks by their place: superblock, descriptors, bitmaps, inode tables.
pub struct Names {
    geometry: Geometry,
    /// First block, length and name of each range, sorted.
    ranges: Vec<(u64, u64, String)>,
}

impl Names {
    /// Learns the places from the descriptors of an image. Descriptors that cannot be read name nothing.
    pub fn new(image: &Image) -> Self {
        let geometry = image.layout().geometry.clone();
        let txn = image.overlay(OverlayOptions::default());
        let mut ranges = vec![(geometry.superblock_block().0, 1, "superblock".to_owned())];
        for table_block in 0..geometry.descriptor_blocks() {
            ranges.push((geometry.descriptor_table_block(table_block).0, 1, "group descriptors".to_owned()));
        }
        for group in geometry.groups() {
            let Ok(descriptor) = group::read_descriptor(&txn, group) else { continue };
            let GroupDescriptor { block_bitmap, inode_bitmap, inode_table, .. } = descriptor;
            ranges.push((block_bitmap.0, 1, format!("block bitmap of group {group}")));
            ranges.push((inode_bitmap.0, 1, format!("inode bitmap of group {group}")));
            let length = geometry.inode_table_blocks().into();
            ranges.push((inode_table.0, length, format!("inode table of group {group}")));
        }
        ranges.sort();
        Self { geometry, ranges }
    }

    /// What lies at a block; `None` where only the block's owner could tell.
    pub fn of(&self, block: BlockNumber) -> Option<&str> {
        if !self.geometry.contains(block) && block.0 != 0 {
            return Some("outside the filesystem");
        }
        let behind = self.ranges.partition_point(|(start, ..)| *start <= block.0);
        let (start, length, name) = self.ranges.get(behind.checked_sub(1)?)?;
        (block.0.saturating_sub(*start) < *length).then_some(name)
    }
}
