//! Looks into ext2, ext3 and ext4 filesystems: one command at a time, from a script, or at a prompt.
//!
//! | room | what it is for |
//! | --- | --- |
//! | [`options`] | the command line, as typed values |
//! | [`mod@run`] | all of it in order, and the exit code |
//! | [`session`] | the open filesystem, and where in it the user stands |
//! | [`words`] | a command line taken apart: words, flags, numbers |
//! | [`table`] | every command: names, arguments, help, handler |
//! | [`answer`] | what a command gives back: a value that is printed as text or as JSON |
//! | [`commands`] | the handlers, by area |
//! | [`paths`] | from what was typed to an inode, and from an inode to its path |
//! | [`walk`] | everything that an inode maps, in the order of its map |
//! | [`listing`] | entries of a directory, unused and removed ones included |
//! | [`inodes`] | every inode in use, group by group |
//! | [`bitmaps`] | which blocks and inodes are in use |
//! | [`attributes`] | extended attributes of an inode |
//! | [`prompt`] | lines from a terminal, with history and completion |
//! | [`history`] | where the lines of earlier sessions are kept |
//! | [`pager`] | answers that are longer than the screen |
//!
//! A command's handler ([`table::Handler`]) takes a [`table::Call`] and returns an [`answer::Answer`]: a value that
//! knows how to be text, together with the failures met on the way. Nothing is written to the image.
//!
//! Text is that of e2fsprogs' debugfs 1.47, which scripts read; where that is wrong, the difference is noted beside
//! the code.

pub mod answer;
pub mod attributes;
pub mod bitmaps;
pub mod commands;
pub mod history;
pub mod inodes;
pub mod listing;
pub mod options;
pub mod pager;
pub mod paths;
pub mod prompt;
pub mod run;
pub mod session;
pub mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod walk;
pub mod words;

pub use run::run;
