//! For tests of ext4kit, never for its programs.
//!
//! | room | what it is for |
//! | --- | --- |
//! | [`seed`] | randomness that a failing test can repeat |
//! | [`damage`] | damage with checksums put right |
//! | [`busy`] | filesystems with a little of everything in them, a dozen kinds |
//! | [`mutation`] | seeded damage to any structure, checksums put right or not |
//! | [`filesystem`] | filesystems in memory, made for a test |
//! | [`fixture`] | images kept in `testdata/` |
//! | [`image`] | a store as a temporary file, for programs that want a path |
//! | [`oracle`] | e2fsck, debugfs, dumpe2fs and mke2fs, asked about a store |
//! | [`kernel`] | the machine's kernel, asked through a loop mount |
//! | [`tree`] | what a tree of files looks like, so that two can be compared |
//!
//! An oracle that is not there is a visible skip on a person's machine, and a failure where `CI=true`: see [`skip`].
//! The failing, recording and slow devices of [`ext4kit_format::store`] are named here again, for they are what
//! most tests come for.

pub mod busy;
pub mod damage;
pub mod filesystem;
pub mod fixture;
pub mod image;
pub mod kernel;
pub mod mutation;
pub mod oracle;
pub mod seed;
pub mod skip;
pub mod tree;

pub use ext4kit_format::store::{
    Counts, Effect, Fault, FaultyOperation, Latency, MemoryStore, Operation, ReadOnly, Record, Recorder,
    Rule, ServiceTimes, When,
};
