//! The trees of an image, each implemented once over [`crate::txn::Transaction`].

pub mod alloc;
pub mod dir;
pub mod file;
pub mod group;
pub mod inline;
pub mod inode;
pub mod map;
pub mod namespace;
pub mod xattr;
