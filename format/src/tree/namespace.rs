//! Files and names together: creating, linking, unlinking and renaming, with link counts and times kept.
//!
//! Each function takes directories as copies of their inodes, changes and writes back all inodes concerned, and leaves
//! the copies as they are on disk. Who may do what is for the caller.

use super::{dir, file, inode, map, xattr};
use crate::disk::dirent::FileType;
use crate::disk::features::{Incompat, RoCompat};
use crate::disk::inode::{EXTRA_SIZE, FileKind, Inode, InodeFlags, MAX_LINKS, Timestamp};
use crate::error::{Error, Result};
use crate::ids::{GroupNumber, InodeNumber};
use crate::num::index;
use crate::txn::Transaction;

/// What a new inode starts with.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewInode {
    /// Permissions: the low 12 bits of the mode.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All four times, and the time at which its directory changes.
    pub time: Timestamp,
    /// `i_generation`.
    pub generation: u32,
}

/// What is to be created.
#[derive(Clone, Copy, Debug)]
pub enum NewKind<'a> {
    /// An empty file.
    Regular,
    /// A directory with `.` and `..`.
    Directory,
    /// A symbolic link to a target.
    Symlink(&'a [u8]),
    /// A character device of a major and a minor number.
    CharacterDevice(u32, u32),
    /// A block device of a major and a minor number.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl NewKind<'_> {
    fn kind(self) -> FileKind {
        match self {
            Self::Regular => FileKind::Regular,
            Self::Directory => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::CharacterDevice(..) => FileKind::CharacterDevice,
            Self::BlockDevice(..) => FileKind::BlockDevice,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
        }
    }
}

/// Creates a file of any kind under a name that is not there yet. The inode is taken near the directory's.
pub fn create(
    txn: &mut dyn Transaction,
    parent: &mut Inode,
    name: &[u8],
    kind: NewKind<'_>,
    new: NewInode,
) -> Result<Inode> {
    dir::check_name(name)?;
    if dir::lookup(txn, parent, name)?.is_some() {
        return Err(Error::AlreadyExists(String::from_utf8_lossy(name).into_owned()));
    }
    let group = txn.layout().geometry.inode_place(parent.number()).map_or(GroupNumber(0), |(group, _)| group);
    let mut inode = create_unnamed(txn, group, parent.number(), kind, new)?;
    if kind.kind() == FileKind::Directory {
        add_subdirectory(txn, parent)?;
    }
    dir::insert(txn, parent, name, inode.number(), FileType::from_mode(inode.view().mode()))?;
    touch(txn, parent, new.time)?;
    inode.set_links(if kind.kind() == FileKind::Directory { 2 } else { 1 });
    inode::write_over(txn, &inode)?;
    Ok(inode)
}

/// Takes an inode in a group and makes it a file of a kind that no name leads to yet. A directory gets `..` for its
/// parent. The inode is not written: its link count is the caller's.
pub fn create_unnamed(
    txn: &mut dyn Transaction,
    group: GroupNumber,
    parent: InodeNumber,
    kind: NewKind<'_>,
    new: NewInode,
) -> Result<Inode> {
    let is_directory = kind.kind() == FileKind::Directory;
    let number = txn.allocate_inode(group, is_directory)?;
    let mut inode = Inode::fresh(number, index(txn.layout().geometry.inode_size()), EXTRA_SIZE);
    inode.set_mode(kind.kind().mode_bits() | (new.permissions & 0o7777));
    inode.set_owner_ids(new.uid, new.gid);
    inode.set_generation(new.generation);
    set_all_times(&mut inode, new.time);
    let extents = txn.layout().features().incompat.contains(Incompat::EXTENTS);
    match kind {
        NewKind::Regular => map::initialise(&mut inode, extents)?,
        NewKind::Directory => {
            map::initialise(&mut inode, extents)?;
            dir::create(txn, &mut inode, parent)?;
        }
        NewKind::Symlink(target) => file::write_symlink(txn, &mut inode, target, extents)?,
        NewKind::CharacterDevice(major, minor) | NewKind::BlockDevice(major, minor) => {
            if !inode.set_device(major, minor) {
                return Err(Error::Invalid(format!("device {major}:{minor} does not fit an inode")));
            }
        }
        NewKind::Fifo | NewKind::Socket => {}
    }
    Ok(inode)
}

fn set_all_times(inode: &mut Inode, time: Timestamp) {
    inode.set_access_time(time);
    inode.set_change_time(time);
    inode.set_modification_time(time);
    inode.set_creation_time(time);
}

/// Writes a directory back after its contents changed.
fn touch(txn: &mut dyn Transaction, dir: &mut Inode, time: Timestamp) -> Result<()> {
    dir.set_modification_time(time);
    dir.set_change_time(time);
    inode::write(txn, dir)
}

/// Counts one subdirectory more. Beyond the limit, `dir_nlink` lets the count be 1 for "many".
pub fn add_subdirectory(txn: &dyn Transaction, dir: &mut Inode) -> Result<()> {
    let links = dir.view().links();
    if links == 1 && has_many_links(txn) {
        return Ok(());
    }
    if links.saturating_add(1) < MAX_LINKS {
        dir.set_links(links.saturating_add(1));
    } else if has_many_links(txn) {
        dir.set_links(1);
    } else {
        return Err(Error::TooManyLinks(dir.number()));
    }
    Ok(())
}

fn has_many_links(txn: &dyn Transaction) -> bool {
    txn.layout().features().ro_compat.contains(RoCompat::DIR_NLINK)
}

fn remove_subdirectory(dir: &mut Inode) {
    let links = dir.view().links();
    if links > 2 {
        dir.set_links(links.saturating_sub(1));
    }
}

/// Gives a file that is no directory another name.
pub fn link(
    txn: &mut dyn Transaction,
    parent: &mut Inode,
    name: &[u8],
    target: &mut Inode,
    time: Timestamp,
) -> Result<()> {
    if target.view().is_directory() {
        return Err(Error::IsADirectory(target.number()));
    }
    let links = target.view().links();
    if links >= MAX_LINKS {
        return Err(Error::TooManyLinks(target.number()));
    }
    dir::insert(txn, parent, name, target.number(), FileType::from_mode(target.view().mode()))?;
    touch(txn, parent, time)?;
    target.set_links(links.saturating_add(1));
    target.set_change_time(time);
    inode::write(txn, target)
}

/// Takes a name of a file that is no directory away. The file is freed with its last name.
pub fn unlink(txn: &mut dyn Transaction, parent: &mut Inode, name: &[u8], time: Timestamp) -> Result<()> {
    let found = dir::lookup(txn, parent, name)?.ok_or_else(|| not_found(name))?;
    let mut target = inode::read(txn, found.inode)?;
    if target.view().is_directory() {
        return Err(Error::IsADirectory(found.inode));
    }
    dir::remove(txn, parent, name)?;
    touch(txn, parent, time)?;
    let links = target.view().links().saturating_sub(1);
    target.set_links(links);
    target.set_change_time(time);
    if links == 0 { free(txn, target, time) } else { inode::write(txn, &target) }
}

/// Takes an empty directory away.
pub fn rmdir(txn: &mut dyn Transaction, parent: &mut Inode, name: &[u8], time: Timestamp) -> Result<()> {
    let found = dir::lookup(txn, parent, name)?.ok_or_else(|| not_found(name))?;
    let mut target = inode::read(txn, found.inode)?;
    if !target.view().is_directory() {
        return Err(Error::NotADirectory(found.inode));
    }
    if !dir::is_empty(txn, &target)? {
        return Err(Error::NotEmpty(found.inode));
    }
    dir::remove(txn, parent, name)?;
    remove_subdirectory(parent);
    touch(txn, parent, time)?;
    target.set_links(0);
    free(txn, target, time)
}

fn not_found(name: &[u8]) -> Error {
    Error::NotFound(String::from_utf8_lossy(name).into_owned())
}

/// Frees an inode that no name leads to: its blocks, then itself.
pub fn free(txn: &mut dyn Transaction, mut inode: Inode, time: Timestamp) -> Result<()> {
    let view = inode.view();
    let is_directory = view.is_directory();
    let has_map = matches!(view.kind(), Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink))
        && !view.flags().contains(InodeFlags::INLINE_DATA)
        && (view.flags().contains(InodeFlags::EXTENTS) || has_mapped_blocks(txn, &inode)?);
    if has_map {
        forget_contents(txn, &inode)?;
        map::remove(txn, &mut inode, 0, u64::MAX)?;
    }
    xattr::release_all(txn, &mut inode, &mut xattr::Change::at(time))?;
    inode.set_links(0);
    inode.set_size(0);
    inode.set_deletion_time(u32::try_from(time.seconds.clamp(1, u32::MAX.into())).unwrap_or(u32::MAX));
    inode::write(txn, &inode)?;
    txn.release_inode(inode.number(), is_directory)
}

/// Whether an inode has blocks besides those of its attributes: a short symbolic link has none.
fn has_mapped_blocks(txn: &dyn Transaction, inode: &Inode) -> Result<bool> {
    let unit = txn.layout().geometry.block_bits().saturating_sub(9);
    Ok(inode::sectors(txn, inode.view()) > xattr::charged_blocks(txn, inode)? << unit)
}

/// Blocks of directories and long symlinks are metadata: they leave the transaction before they are given back.
fn forget_contents(txn: &mut dyn Transaction, inode: &Inode) -> Result<()> {
    if inode.view().kind() == Some(FileKind::Regular) {
        return Ok(());
    }
    let runs: Vec<_> = map::segments(txn, inode, crate::LogicalBlock(0)).collect::<Result<_>>()?;
    for block in runs.iter().filter_map(map::Segment::run).flat_map(crate::BlockRun::iter) {
        txn.forget(block)?;
    }
    Ok(())
}

/// The inode that a path leads to from a directory, following every component but symbolic links. Empty components and
/// `.` stay, `..` goes up, but not above the root.
pub fn resolve(txn: &dyn Transaction, from: InodeNumber, path: &[u8]) -> Result<Inode> {
    let start = if path.first() == Some(&b'/') { InodeNumber::ROOT } else { from };
    let mut current = inode::read(txn, start)?;
    for name in path.split(|byte| *byte == b'/') {
        if name.is_empty() || name == b"." {
            continue;
        }
        let found = dir::lookup(txn, &current, name)?;
        let found = found.ok_or_else(|| Error::NotFound(String::from_utf8_lossy(path).into_owned()))?;
        current = inode::read(txn, found.inode)?;
    }
    Ok(current)
}

#[cfg(test)]
#[path = "namespace_tests.rs"]
mod tests;
