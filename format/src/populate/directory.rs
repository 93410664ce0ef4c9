//! A directory of the host as a source.
//!
//! Directories are opened component by component below the root's own descriptor, without following symbolic links: a
//! tree that changes meanwhile cannot lead outside of itself, no path grows too long for the system, and no more than a
//! few descriptors are open however deep the tree is. Names are sorted by their bytes.

use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Statx, StatxFlags};
use rustix::io::Errno;

use super::entry::{Entry, Identity, Kind, Metadata, Source};
use crate::disk::inode::Timestamp;
use crate::error::{Error, Place, Result};
use crate::num::{index64, low16};

/// The most that Linux lets a list of attribute names, or one value, take.
const ATTRIBUTE_LIMIT: usize = 64 << 10;
/// As long as most lists of attribute names are at most.
const USUAL_LIST: usize = 256;
/// Longest target of a symbolic link.
const LINK_LIMIT: usize = 4096;

/// A directory of the host and all below it, also on other filesystems that are mounted there.
pub struct DirectorySource {
    path: PathBuf,
    root: OwnedFd,
    copy_attributes: bool,
    /// A file that must not be in the tree.
    target: Option<Identity>,
    /// Whether the root was told.
    begun: bool,
    /// Directories whose names are still to be told; the last comes next.
    waiting: Vec<Vec<u8>>,
    current: Option<Listing>,
    /// The last entry, if it was a regular file.
    file: Option<OwnedFd>,
    file_path: Vec<u8>,
    file_size: u64,
    buffer: Vec<u8>,
}

/// A directory on the way.
struct Listing {
    path: Vec<u8>,
    directory: OwnedFd,
    /// Names not told yet, the next one last.
    names: Vec<CString>,
    /// Subdirectories that were told, in order.
    below: Vec<Vec<u8>>,
}

impl DirectorySource {
    /// Opens a directory. Without `copy_attributes`, extended attributes are left behind.
    pub fn open(path: &Path, copy_attributes: bool) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty())
            .map_err(|error| failed(path.as_os_str().as_bytes(), error))?;
        Ok(Self {
            path: path.to_owned(),
            root,
            copy_attributes,
            target: None,
            begun: false,
            waiting: Vec::new(),
            current: None,
            file: None,
            file_path: Vec::new(),
            file_size: 0,
            buffer: vec![0; ATTRIBUTE_LIMIT],
        })
    }

    /// Names the file that the tree is copied into, by device and inode number: finding it in the tree is an error.
    pub fn set_target(&mut self, target: Identity) {
        self.target = Some(target);
    }

    /// The path on the host, for errors.
    fn host_path(&self, path: &[u8]) -> Vec<u8> {
        let mut whole = self.path.as_os_str().as_bytes().to_vec();
        if !path.is_empty() {
            whole.push(b'/');
            whole.extend_from_slice(path);
        }
        whole
    }

    fn failed(&self, path: &[u8], error: Errno) -> Error {
        failed(&self.host_path(path), error)
    }

    /// Opens a directory of the tree by its path, one name at a time.
    fn open_below(&self, path: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut open = self
            .root
            .try_clone()
            .map_err(|source| Error::Io { place: place(&self.host_path(path)), source })?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            open = fs::openat(&open, name, flags, Mode::empty()).map_err(|error| self.failed(path, error))?;
        }
        Ok(open)
    }

    /// Reads the names of a directory.
    fn list(&self, path: Vec<u8>) -> Result<Listing> {
        let directory = self.open_below(&path)?;
        let entries = Dir::read_from(&directory).map_err(|error| self.failed(&path, error))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| self.failed(&path, error))?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(entry.file_name().to_owned());
            }
        }
        names.sort_unstable_by(|one, other| other.cmp(one));
        Ok(Listing { path, directory, names, below: Vec::new() })
    }

    /// Tells of a file in an open directory; an empty name means the directory itself.
    fn describe(&mut self, directory: &OwnedFd, name: &CString, path: Vec<u8>) -> Result<Entry> {
        let is_root = name.as_bytes().is_empty();
        let flags = if is_root { AtFlags::EMPTY_PATH } else { AtFlags::SYMLINK_NOFOLLOW };
        let found = fs::statx(directory, name, flags, StatxFlags::BASIC_STATS)
            .map_err(|error| self.failed(&path, error))?;
        let device = fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        let identity = Identity { device, inode: found.stx_ino };
        if self.target == Some(identity) {
            let text = String::from_utf8_lossy(&self.host_path(&path)).into_owned();
            return Err(Error::Invalid(format!("{text}: this is the file that the tree is copied into")));
        }
        let kind = self.kind(directory, name, &path, &found)?;
        self.file = None;
        if let Kind::Regular(size) = kind {
            self.file_size = size;
            if size > 0 {
                self.file = Some(self.open_file(directory, name, &path)?);
            }
            self.file_path.clone_from(&path);
        }
        let attributes =
            if self.copy_attributes { self.attributes(directory, name, &path)? } else { Vec::new() };
        let linked = found.stx_nlink > 1 && kind != Kind::Directory;
        let identity = linked.then_some(identity);
        Ok(Entry { path, kind, metadata: metadata(&found), attributes, identity })
    }

    fn kind(&self, directory: &OwnedFd, name: &CString, path: &[u8], found: &Statx) -> Result<Kind> {
        let (major, minor) = (found.stx_rdev_major, found.stx_rdev_minor);
        Ok(match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::Directory => Kind::Directory,
            FileType::RegularFile => Kind::Regular(found.stx_size),
            FileType::Symlink => {
                let target = fs::readlinkat(directory, name, Vec::with_capacity(LINK_LIMIT))
                    .map_err(|error| self.failed(path, error))?;
                Kind::Symlink(target.into_bytes())
            }
            FileType::CharacterDevice => Kind::CharacterDevice(major, minor),
            FileType::BlockDevice => Kind::BlockDevice(major, minor),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::Unknown => {
                let text = String::from_utf8_lossy(&self.host_path(path)).into_owned();
                return Err(Error::Unsupported(format!("{text}: a kind of file that is not known")));
            }
        })
    }

    /// Opens a regular file, without leaving a trace in its access time where that is allowed.
    fn open_file(&self, directory: &OwnedFd, name: &CString, path: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = match fs::openat(directory, name, flags | OFlags::NOATIME, Mode::empty()) {
            Err(Errno::PERM) => fs::openat(directory, name, flags, Mode::empty()),
            opened => opened,
        };
        opened.map_err(|error| self.failed(path, error))
    }

    /// The extended attributes, sorted by name.
    fn attributes(
        &mut self,
        directory: &OwnedFd,
        name: &CString,
        path: &[u8],
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let target = Target::new(self.file.as_ref(), directory, name);
        // The kernel clears as much memory as the buffer is long, for each file, so the first try is a short one.
        let short = self.buffer.get_mut(..USUAL_LIST).unwrap_or_default();
        let listed = match target.list(short) {
            Err(Errno::RANGE) => target.list(&mut self.buffer),
            listed => listed,
        };
        let length = match listed {
            Ok(length) => length,
            // Not every filesystem knows attributes.
            Err(Errno::OPNOTSUPP) => 0,
            Err(error) => return Err(self.failed(path, error)),
        };
        if length == 0 {
            return Ok(Vec::new());
        }
        let list = self.buffer.get(..length).unwrap_or_default().to_vec();
        let mut found = Vec::new();
        for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match target.get(name, &mut self.buffer) {
                Ok(length) => {
                    found.push((name.to_vec(), self.buffer.get(..length).unwrap_or_default().to_vec()));
                }
                // It went away meanwhile, or is only listed.
                Err(Errno::NODATA) => {}
                Err(error) => return Err(self.failed(path, error)),
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn changed(&self) -> Error {
        let text = "the file became shorter while it was read";
        let source = io::Error::new(io::ErrorKind::UnexpectedEof, text);
        Error::Io { place: place(&self.host_path(&self.file_path)), source }
    }
}

impl Source for DirectorySource {
    fn next_entry(&mut self) -> Result<Option<Entry>> {
        if !self.begun {
            self.begun = true;
            self.waiting.push(Vec::new());
            let root = self.open_below(b"")?;
            return self.describe(&root, &CString::default(), Vec::new()).map(Some);
        }
        loop {
            let Some(mut listing) = self.current.take() else {
                let Some(path) = self.waiting.pop() else { return Ok(None) };
                self.current = Some(self.list(path)?);
                continue;
            };
            let Some(name) = listing.names.pop() else {
                self.waiting.extend(listing.below.into_iter().rev());
                continue;
            };
            let mut path = listing.path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            let entry = self.describe(&listing.directory, &name, path)?;
            if entry.kind == Kind::Directory {
                listing.below.push(entry.path.clone());
            }
            self.current = Some(listing);
            return Ok(Some(entry));
        }
    }

    fn next_data(&mut self, offset: u64) -> Result<Option<Range<u64>>> {
        let Some(file) = self.file.as_ref().filter(|_| offset < self.file_size) else { return Ok(None) };
        // A small file is sooner read than asked about its holes.
        if self.file_size <= crate::num::wide(ATTRIBUTE_LIMIT) {
            return Ok(Some(offset..self.file_size));
        }
        let start = match fs::seek(file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // Not every filesystem tells.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(offset..self.file_size)),
            Err(error) => return Err(self.failed(&self.file_path, error)),
        };
        let end = fs::seek(file, SeekFrom::Hole(start)).unwrap_or(self.file_size).min(self.file_size);
        Ok((start < end).then_some(start..end))
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let wanted = index64(self.file_size.saturating_sub(offset)).min(buffer.len());
        let mut done = 0;
        while done < wanted {
            let at = offset.saturating_add(crate::num::wide(done));
            let rest = buffer.get_mut(done..wanted).unwrap_or_default();
            match rustix::io::pread(file, rest, at) {
                Ok(0) => return Err(self.changed()),
                Ok(count) => done = done.saturating_add(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed(&self.file_path, error)),
            }
        }
        Ok(())
    }
}

/// By what to ask for attributes: the open file, or a name in an open directory.
enum Target<'a> {
    Open(&'a OwnedFd),
    Path(CString),
}

impl<'a> Target<'a> {
    /// There is no call for a name below a descriptor, so the descriptor is named by its path in `/proc`; the last name
    /// is not followed.
    fn new(file: Option<&'a OwnedFd>, directory: &'a OwnedFd, name: &CString) -> Self {
        if let Some(file) = file {
            return Self::Open(file);
        }
        if name.as_bytes().is_empty() {
            return Self::Open(directory);
        }
        let mut path = format!("/proc/self/fd/{}/", directory.as_fd().as_raw_fd()).into_bytes();
        path.extend_from_slice(name.as_bytes());
        Self::Path(CString::new(path).unwrap_or_default())
    }

    fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => fs::flistxattr(file, buffer),
            Self::Path(path) => fs::llistxattr(path, buffer),
        }
    }

    fn get(&self, name: &[u8], buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => fs::fgetxattr(file, name, buffer),
            Self::Path(path) => fs::lgetxattr(path, name, buffer),
        }
    }
}

fn metadata(found: &Statx) -> Metadata {
    let time = |time: fs::StatxTimestamp| Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    Metadata {
        permissions: low16(u32::from(found.stx_mode) & 0o7777),
        uid: found.stx_uid,
        gid: found.stx_gid,
        accessed: time(found.stx_atime),
        changed: time(found.stx_ctime),
        modified: time(found.stx_mtime),
    }
}

fn place(path: &[u8]) -> Place {
    Place::File(String::from_utf8_lossy(path).into_owned())
}

fn failed(path: &[u8], error: Errno) -> Error {
    Error::Io { place: place(path), source: error.into() }
}
