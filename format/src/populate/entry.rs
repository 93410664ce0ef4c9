//! What a source tells of a file.

use std::ops::Range;

use crate::disk::inode::Timestamp;
use crate::error::Result;

/// A tree of files, told one by one.
pub trait Source {
    /// The next file; the first is the root, with an empty path. A directory comes before what is in it.
    fn next_entry(&mut self) -> Result<Option<Entry>>;

    /// The next stretch of the last file's contents, at or behind an offset, that may hold something other than zeros;
    /// `None` if only zeros follow. Only for a regular file that was the last entry.
    fn next_data(&mut self, offset: u64) -> Result<Option<Range<u64>>>;

    /// Fills the buffer from the last file's contents; what lies behind their end is left as it is.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()>;
}

/// A file of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Names from the root down, with a slash between each two; empty for the root.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Owner, permissions and times.
    pub metadata: Metadata,
    /// Extended attributes: whole names, and values in the form of the system calls.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// What tells the file from others, where it may come again under other names.
    pub identity: Option<Identity>,
}

/// Tells a file from all others of its source: device and inode number, both of them whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The device.
    pub device: u64,
    /// The number on it.
    pub inode: u64,
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file of so many bytes.
    Regular(u64),
    /// A symbolic link to a target.
    Symlink(Vec<u8>),
    /// A character device of a major and a minor number.
    CharacterDevice(u32, u32),
    /// A block device of a major and a minor number.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// Owner, permissions and times of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The low 12 bits of the mode.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last access.
    pub accessed: Timestamp,
    /// Time of the last change of the inode.
    pub changed: Timestamp,
    /// Time of the last change of the contents.
    pub modified: Timestamp,
}

impl Entry {
    /// The path of the directory that it is in, and its name there; `None` for the root.
    pub fn parent_and_name(&self) -> Option<(&[u8], &[u8])> {
        match self.path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => Some((self.path.get(..slash)?, self.path.get(slash.saturating_add(1)..)?)),
            None if self.path.is_empty() => None,
            None => Some((&[], &self.path)),
        }
    }

    /// The path as people read it.
    pub fn path_text(&self) -> String {
        format!("/{}", String::from_utf8_lossy(&self.path))
    }
}
