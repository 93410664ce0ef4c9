//! One file per on-disk structure: bytes and meaning, no I/O.

pub mod acl;
pub mod bitmap;
pub mod crc;
pub mod dirent;
pub mod dirhash;
pub mod extent;
pub mod fast_commit;
pub mod features;
pub mod group_desc;
pub mod htree;
pub mod inode;
pub mod jbd2;
pub mod mmp;
pub mod one_bit;
pub mod orphan;
pub mod quota;
pub mod superblock;
pub mod timestamp;
pub mod undo;
pub mod xattr;
