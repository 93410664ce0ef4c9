//! Repairs carried out: one file per area, each a match over its problems.
//!
//! Nothing here writes to the device. Every change goes to an overlay, which is committed or dropped as a whole.

pub mod groups;
pub mod superblock;
