//! Filling a filesystem from a tree of files.
//!
//! A [`Source`] tells of the files one by one, a parent before what is in it: [`DirectorySource`] reads them from a
//! directory of the host, and [`ReadAhead`] lets a thread of its own do the reading. [`populate`] takes an inode for each, writes its contents at once, and keeps only names until
//! the end, when each directory is built in one go. So memory grows with the number of names, not with their contents.
//!
//! Where things go: directories at the top of the tree are spread over the groups of groups (flex_bg), everything else
//! lies near its directory; contents are laid one behind the other, and blocks of zeros stay holes. The same entries in
//! the same order give the same bytes.

mod contents;
mod directory;
mod entry;
mod read_ahead;
mod writer;

pub use directory::DirectorySource;
pub use entry::{Entry, Identity, Kind, Metadata, Source};
pub use read_ahead::ReadAhead;
pub use writer::{PopulateOptions, Summary, populate};
