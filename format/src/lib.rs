//! Everything that is true of an ext2/3/4 image at rest.
//!
//! The crate prints nothing and asks nothing: it returns values and typed errors. Its rooms, lower ones knowing
//! nothing of upper ones:
//!
//! | room | what it is for |
//! | --- | --- |
//! | [`ids`], [`num`], [`bytes`], [`error`] | numbers that name things, checked conversions, errors that say where |
//! | [`disk`] | one file per on-disk structure: bytes and meaning, no I/O |
//! | [`geometry`] | where everything lives; the only place that converts between numbers |
//! | [`store`] | bytes at offsets, with a flush as the barrier |
//! | [`txn`] | changes as transactions over blocks: the trait, the overlay, the atomic commit |
//! | [`tree`] | extents, indirect maps, directories, extended attributes, allocation: one implementation of each |
//! | [`image`] | an opened filesystem |
//! | [`journal`] | JBD2 logs: scan, list, replay |
//! | [`commit`] | changes to an existing filesystem, as a whole or not at all |
//! | [`undo`] | undo files: what was overwritten, and putting it back |
//! | [`create`] | an empty filesystem, from geometry to blocks |
//! | [`populate`] | filling a filesystem from a tree of files |
//!
//! Start with [`image::Image::open`], then [`txn::Transaction`], which everything that changes an image is written
//! against.

// Whatever parses an image must not panic on it: no unchecked arithmetic, index or cast outside of tests.
#![cfg_attr(
    not(test),
    deny(
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::exit
    )
)]

pub mod bytes;
pub mod commit;
pub mod create;
pub mod disk;
pub mod error;
pub mod geometry;
pub mod ids;
pub mod image;
pub mod journal;
pub mod layout;
pub mod num;
pub mod populate;
pub mod store;
pub mod tree;
pub mod txn;
pub mod undo;

pub use error::{Defect, Error, Place, Result};
pub use ids::{BlockNumber, BlockRun, GroupNumber, InodeNumber, LogicalBlock, TransactionId};
