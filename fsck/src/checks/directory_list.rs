//! All directories in order of inode, and where each hangs in the tree.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ext4kit_format::InodeNumber;

/// A directory, and what the passes learn of its place.
#[derive(Clone, Copy, Debug)]
pub struct Directory {
    /// Its inode.
    pub inode: InodeNumber,
    /// What `..` says; 0 if it is not there.
    pub dotdot: u32,
    /// The directory that names it; 0 if none does.
    pub parent: u32,
}

/// Directories, looked up by inode or by place in the list; their own places in the tree are filled in by many threads.
#[derive(Debug, Default)]
pub struct DirectoryList {
    entries: Vec<Entry>,
    /// Places in the list of those that are worth splitting, in order.
    large: Vec<usize>,
}

#[derive(Debug)]
struct Entry {
    inode: InodeNumber,
    dotdot: AtomicU32,
    parent: AtomicU32,
}

impl DirectoryList {
    /// The directories of these inodes, which come in order, and those of them that are worth splitting.
    pub fn new(inodes: Vec<InodeNumber>, large: &[InodeNumber]) -> Self {
        let entry = |inode| Entry { inode, dotdot: AtomicU32::new(0), parent: AtomicU32::new(0) };
        let entries = inodes.into_iter().map(entry).collect();
        let mut list = Self { entries, large: Vec::new() };
        list.large = large.iter().filter_map(|inode| list.find(*inode)).collect();
        list
    }

    /// Places in the list of those that are worth splitting, in order.
    pub fn large(&self) -> &[usize] {
        &self.large
    }

    /// Whether the directory at a place is one of these.
    pub fn is_large(&self, at: usize) -> bool {
        self.large.binary_search(&at).is_ok()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The place of an inode in the list.
    pub fn find(&self, inode: InodeNumber) -> Option<usize> {
        self.entries.binary_search_by_key(&inode, |entry| entry.inode).ok()
    }

    /// The directory at a place of the list.
    pub fn get(&self, at: usize) -> Option<Directory> {
        self.entries.get(at).map(Entry::directory)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Directory> {
        self.entries.iter().map(Entry::directory)
    }

    /// Notes what `..` of a directory says; whether nothing was noted before.
    pub fn set_dotdot(&self, at: usize, dotdot: InodeNumber) -> bool {
        self.entries.get(at).is_none_or(|entry| entry.dotdot.swap(dotdot.get(), Relaxed) == 0)
    }

    /// Notes which directory names a directory; whether it is the first to do so.
    pub fn set_parent(&self, at: usize, parent: InodeNumber) -> bool {
        self.entries
            .get(at)
            .is_none_or(|entry| entry.parent.compare_exchange(0, parent.get(), Relaxed, Relaxed).is_ok())
    }

    /// Forgets all places in the tree.
    pub fn restart(&mut self) {
        for entry in &mut self.entries {
            *entry.dotdot.get_mut() = 0;
            *entry.parent.get_mut() = 0;
        }
    }
}

impl Entry {
    fn directory(&self) -> Directory {
        Directory { inode: self.inode, dotdot: self.dotdot.load(Relaxed), parent: self.parent.load(Relaxed) }
    }
}
