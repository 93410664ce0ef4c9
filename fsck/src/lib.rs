//! Checks ext2, ext3 and ext4 filesystems.
//!
//! | room | what it is for |
//! | --- | --- |
//! | [`finding`] | every problem there is: its code, how bad it is, its text, and the repair as data |
//! | [`repair`] | what a repair would do |
//! | [`repairs`] | doing it: the driver, and an applier for each area |
//! | [`opening`] | from a store to a superblock that can be used, and a journal replayed in memory |
//! | [`lost`] | all superblocks of a device, and a filesystem rebuilt from them |
//! | [`source`] | the blocks of the image as the check sees them |
//! | [`checks`] | the five passes, one file per subject |
//! | [`check`](mod@check) | all passes in order: start reading here |
//! | [`policy`] | what is repaired unasked |
//! | [`writing`] | recovering the journal, committing a repair |
//! | [`lint`](mod@lint) | oddities that no check counts as errors |
//! | [`plan`] | a repair in two steps: written down, and later done exactly so or not at all |
//! | [`options`], [`report`], [`run`](mod@run) | the program: its command line, its words, all of it in order |
//!
//! The library is silent: findings go to a callback, in an order that depends on the image alone.

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

pub mod check;
pub mod checks;
pub mod finding;
pub mod lint;
pub mod lost;
pub mod opening;
pub mod options;
pub mod plan;
pub mod policy;
pub mod repair;
pub mod repairs;
pub mod report;
pub mod run;
pub mod source;
pub mod writing;

pub use check::{Options, Summary, check};
pub use finding::{Finding, Grade, Verdict};
pub use repair::Repair;
pub use run::run;
