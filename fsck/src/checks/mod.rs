//! The passes, one file per subject.

pub mod attributes;
pub mod bitmaps;
pub mod claims;
pub mod connect;
pub mod context;
pub mod directories;
pub mod disguise;
pub mod groups;
pub mod index;
pub mod inodes;
pub mod journal;
pub mod links;
pub mod maps;
pub mod shared;
pub mod special;
pub mod superblock;
