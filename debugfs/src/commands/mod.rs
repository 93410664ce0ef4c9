//! The handlers, by area.

pub mod blocks;
pub mod contents;
pub mod directories;
pub mod dumps;
pub mod files;
pub mod hashes;
pub mod journal;
mod journal_text;
pub mod places;
pub mod quotas;
pub mod search;
pub mod space;
pub mod stats;
pub mod status;
pub mod trees;
pub mod xattrs;
