//! Makes ext2, ext3 and ext4 filesystems.
//!
//! | room | what it is for |
//! | --- | --- |
//! | [`options`] | the command line, as typed values |
//! | [`features`] | lists of features such as `^resize_inode,quota` |
//! | [`extended`] | the values of `-E` and `-J` |
//! | [`defaults`] | what mke2fs would choose: by kind of filesystem, size and usage |
//! | [`choose`] | options and defaults made into [`ext4kit_format::create::Parameters`] |
//! | [`target`] | the file or device that the filesystem goes to |
//! | [`report`] | what the user is told |
//! | [`mod@run`] | all of it in order |
//!
//! The filesystem itself is made by [`ext4kit_format::create`].

pub mod choose;
pub mod defaults;
pub mod extended;
pub mod features;
mod fill;
pub mod options;
pub mod report;
pub mod run;
pub mod target;

pub use run::run;
