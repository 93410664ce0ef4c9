//! An empty filesystem, from parameters to blocks.
//!
//! In four steps, the first two pure and without a store:
//! 1. [`Plan::new`] turns [`Parameters`] into a superblock and a geometry, with the same arithmetic as mke2fs, so
//!    that the same options give the same counts;
//! 2. [`place_tables`] says where each group's bitmaps and inode table lie;
//! 3. [`write_skeleton`] writes the fixed parts through an overlay: superblock, descriptors, bitmaps, inode tables;
//! 4. [`create_filesystem`] adds what every filesystem has, through the same trees that everybody uses: root directory,
//!    `lost+found`, resize inode, journal, orphan file.
//!
//! The overlay that comes back can be populated before it is committed; [`write_backups`] copies superblock and
//! descriptors to their backup places as the last change of all.

mod backups;
mod files;
mod hidden;
mod parameters;
mod plan;
mod skeleton;
mod tables;
#[cfg(test)]
pub(crate) use plan::tests;

pub use backups::write_backups;
pub use files::create_filesystem;
pub use hidden::{create_journal, map_reserved_descriptors};
pub use parameters::{
    Identity, InodeCount, JournalParameters, Parameters, default_journal_blocks, default_orphan_file_blocks,
};
pub use plan::Plan;
pub use skeleton::write_skeleton;
pub use tables::{GroupTables, place_tables};
