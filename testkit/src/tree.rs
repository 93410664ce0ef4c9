//! What a tree of files looks like, so that two can be compared: a source folder and the image made of it, our
//! view of an image and the kernel's.
//!
//! Left out is what two faithful copies differ in: inode numbers, sizes and link counts of folders, access
//! and change times, and which blocks are holes; [`data_map`] tells of those.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The most that Linux lets a list of attribute names, or one value, take.
const ATTRIBUTE_LIMIT: usize = 64 << 10;

/// A tree: each file by its path below the root, and the root under the empty path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<PathBuf, Entry>);

/// A file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// When the contents were changed last: seconds and nanoseconds.
    pub modified: (i64, i64),
    /// Extended attributes by name.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What is in it.
    pub content: Content,
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A regular file.
    File {
        /// Its size in bytes.
        size: u64,
        /// CRC32C of its bytes.
        checksum: u32,
        /// How many names it has.
        links: u64,
        /// Another name of the same file: the first of them, if this is a later one.
        same_as: Option<PathBuf>,
    },
    /// A folder.
    Folder,
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// A device and its number.
    Device(u64),
    /// A pipe or socket; the mode says which.
    Other,
}

impl Tree {
    /// Reads a folder and all below it on the same filesystem.
    pub fn of(root: &Path) -> io::Result<Self> {
        let device = fs::symlink_metadata(root)?.dev();
        let mut entries = BTreeMap::new();
        let mut seen = BTreeMap::new();
        let mut left = vec![PathBuf::new()];
        while let Some(name) = left.pop() {
            let path = root.join(&name);
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.dev() != device {
                continue;
            }
            if metadata.is_dir() {
                let mut children = Vec::new();
                for child in fs::read_dir(&path)? {
                    children.push(name.join(child?.file_name()));
                }
                // In order from the stack's top, so that the first name of a file is the same in every run.
                children.sort_by(|one, other| other.cmp(one));
                left.append(&mut children);
            }
            let first = seen.entry(metadata.ino()).or_insert_with(|| name.clone()).clone();
            let same_as = Some(first).filter(|first| *first != name);
            entries.insert(name, Entry::of(&path, &metadata, same_as)?);
        }
        Ok(Self(entries))
    }

    /// Takes out a file and all below it, such as `lost+found`, which a source folder does not have.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|path, _| !path.starts_with(name));
        self
    }

    /// What differs, one line for each file; empty for equal trees.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let line = |name: &PathBuf| match (self.0.get(name), other.0.get(name)) {
            (Some(one), Some(two)) if one == two => None,
            (Some(one), Some(two)) => Some(format!("{}: {one:?} is not {two:?}", name.display())),
            (Some(_), None) => Some(format!("{}: only in the first", name.display())),
            _ => Some(format!("{}: only in the second", name.display())),
        };
        names.into_iter().filter_map(line).collect()
    }
}

/// The stretches of a file's bytes that are not holes, as the kernel tells them.
pub fn data_map(path: &Path) -> io::Result<Vec<Range<u64>>> {
    use rustix::fs::{SeekFrom, seek};
    let file = File::open(path)?;
    let size = file.metadata()?.size();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < size {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        at = seek(&file, SeekFrom::Hole(start))?;
        found.push(start..at);
    }
    Ok(found)
}

impl Entry {
    fn of(path: &Path, metadata: &Metadata, same_as: Option<PathBuf>) -> io::Result<Self> {
        let kind = metadata.file_type();
        let content = if kind.is_dir() {
            Content::Folder
        } else if kind.is_file() {
            let links = metadata.nlink();
            Content::File { size: metadata.size(), checksum: checksum(path)?, links, same_as }
        } else if kind.is_symlink() {
            Content::Symlink(fs::read_link(path)?.into_os_string().as_bytes().to_vec())
        } else if kind.is_char_device() || kind.is_block_device() {
            Content::Device(metadata.rdev())
        } else {
            Content::Other
        };
        Ok(Self {
            mode: metadata.mode(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            attributes: attributes(path)?,
            content,
        })
    }
}

fn checksum(path: &Path) -> io::Result<u32> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 64 << 10];
    let mut checksum = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(checksum),
            count => checksum = crc32c::crc32c_append(checksum, &buffer[..count]),
        }
    }
}

fn attributes(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; ATTRIBUTE_LIMIT];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        // Not every filesystem knows attributes.
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut found = BTreeMap::new();
    let mut value = vec![0; ATTRIBUTE_LIMIT];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..])?;
        found.insert(name.to_vec(), value[..length].to_vec());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn sample(folder: &Path) {
        fs::create_dir(folder.join("dir")).unwrap();
        fs::write(folder.join("dir/b"), b"contents").unwrap();
        fs::hard_link(folder.join("dir/b"), folder.join("a")).unwrap();
        symlink("dir/b", folder.join("link")).unwrap();
    }

    #[test]
    fn every_file_is_seen_once_with_what_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        sample(folder.path());
        let tree = Tree::of(folder.path()).unwrap();
        let names: Vec<_> = tree.0.keys().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, ["", "a", "dir", "dir/b", "link"]);
        let file =
            |same_as| Content::File { size: 8, checksum: crc32c::crc32c(b"contents"), links: 2, same_as };
        assert_eq!(tree.0[Path::new("a")].content, file(None));
        assert_eq!(tree.0[Path::new("dir/b")].content, file(Some("a".into())));
        assert_eq!(tree.0[Path::new("link")].content, Content::Symlink(b"dir/b".to_vec()));
        assert_eq!(tree.without("dir").0.len(), 3);
    }

    #[test]
    fn holes_are_told() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(3 << 20).unwrap();
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        let map = data_map(&path).unwrap();
        assert!(map.iter().any(|data| data.contains(&(1 << 20))), "{map:?}");
        assert!(map.iter().all(|data| data.end <= 3 << 20));
    }

    #[test]
    fn each_difference_is_a_line() {
        let folder = tempfile::tempdir().unwrap();
        sample(folder.path());
        let before = Tree::of(folder.path()).unwrap();
        assert_eq!(before.differences(&before), [] as [String; 0]);
        fs::set_permissions(folder.path().join("dir/b"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(folder.path().join("link")).unwrap();
        let after = Tree::of(folder.path()).unwrap();
        let lines = before.differences(&after);
        // The folder itself changed its time as well, if the clock moved on.
        let lines: Vec<_> = lines.iter().filter(|line| !line.starts_with(':')).collect();
        assert!(lines[0].starts_with("a: ") && lines[1].starts_with("dir/b: "), "{lines:?}");
        assert_eq!(lines[2..], ["link: only in the first"]);
    }
}
