//! Lists and replays the journals of ext3 and ext4 filesystems.
//!
//! | room | what it is for |
//! | --- | --- |
//! | [`options`] | the command line, as typed values |
//! | [`open`] | from a device to its journal, inside it or on another device |
//! | [`listing`] | what a log holds, as values |
//! | [`naming`] | what a block of the filesystem is |
//! | [`outcome`] | what a replay came to, and the exit code of that |
//! | [`mod@run`] | all of it in order |
//!
//! The engine is [`ext4kit_format::journal`]. Exit codes: 0 nothing to do, 1 recovered, 4 the journal was damaged and
//! the image is recovered to its last good transaction, 8 it could not be done.

pub mod listing;
pub mod naming;
pub mod open;
pub mod options;
pub mod outcome;
pub mod run;

pub use run::run;
