//! What the ext4kit programs share at the command line.
//!
//! | room | what it is for |
//! | --- | --- |
//! | [`arguments`] | from a program's arguments to typed options, or to an exit code |
//! | [`size`] | numbers with a unit, as e2fsprogs reads them |
//! | [`device`] | from what the user typed to an open store: offsets, labels, UUIDs |
//! | [`exit`] | exit codes, and what went wrong as one line |
//! | [`json`] | the envelope around every JSON answer |
//! | [`progress`] | a bar on a terminal, protocol lines on a descriptor, nothing in a pipe |
//! | [`time`] | what time it is, and how the classic tools write one |
//! | [`argv0`] | which tool a program name means |
//! | [`report`] | the only room that prints |
//!
//! Clock, environment and terminal enter here and become values, so that the libraries below need none of them.

#![cfg_attr(
    not(test),
    deny(
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::exit
    )
)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod arguments;
pub mod argv0;
pub mod device;
pub mod exit;
pub mod json;
pub mod progress;
pub mod report;
pub mod size;
pub mod time;
