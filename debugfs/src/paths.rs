//! From what was typed to an inode, and from an inode to its path.

use ext4kit_format::disk::dirent;
use ext4kit_format::disk::inode::{FileKind, Inode, InodeFlags, short_symlink_target};
use ext4kit_format::tree::{dir, file, inode};
use ext4kit_format::txn::Transaction;
use ext4kit_format::{Error, InodeNumber, Result};

use crate::listing::{self, Listed};
use crate::session::Open;
use crate::words::number;

/// How many symbolic links a path may lead through, as in the kernel.
const MOST_LINKS: u32 = 40;
/// How deep a directory may lie for its path to be told.
const MOST_DEPTH: usize = 4096;

/// The inode that a path or `<number>` stands for. A symbolic link at the end of the path is not followed.
pub fn find(open: &Open, typed: &[u8]) -> Result<InodeNumber> {
    if let Some(inner) = typed.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"))
        && let Some(wanted) = number(inner)
    {
        let wanted = u32::try_from(wanted).ok().and_then(InodeNumber::new);
        return wanted
            .filter(|wanted| open.txn.layout().geometry.inode_place(*wanted).is_some())
            .ok_or_else(|| Error::NotFound(String::from_utf8_lossy(typed).into_owned()));
    }
    resolve(open, typed)
}

/// Follows a path. Components wait on a stack, so that a link's target takes the link's place.
fn resolve(open: &Open, path: &[u8]) -> Result<InodeNumber> {
    let not_found = || Error::NotFound(String::from_utf8_lossy(path).into_owned());
    let mut waiting: Vec<Vec<u8>> = Vec::new();
    let push = |waiting: &mut Vec<Vec<u8>>, path: &[u8]| {
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        waiting.extend(parts.rev().map(<[u8]>::to_vec));
    };
    push(&mut waiting, path);
    let mut current = if path.first() == Some(&b'/') { open.root } else { open.current };
    let mut links = 0;
    while let Some(name) = waiting.pop() {
        // Unlike in debugfs, the user's root has nothing above it.
        if name == b"." || (name == b".." && current == open.root) {
            continue;
        }
        let directory = inode::read(&open.txn, current)?;
        let next = lookup(open, &directory, &name)?.ok_or_else(not_found)?;
        let followed = if waiting.is_empty() { None } else { link_target(open, next)? };
        let Some(target) = followed else {
            current = next;
            continue;
        };
        links += 1;
        if links > MOST_LINKS {
            return Err(Error::Invalid(format!(
                "{}: too many symbolic links",
                String::from_utf8_lossy(path)
            )));
        }
        push(&mut waiting, &target);
        if target.first() == Some(&b'/') {
            current = open.root;
        }
    }
    Ok(current)
}

/// The inode of a name. Where the hash tree of the directory is damaged, its blocks are looked through.
fn lookup(open: &Open, directory: &Inode, name: &[u8]) -> Result<Option<InodeNumber>> {
    match dir::lookup(&open.txn, directory, name) {
        Err(error) if error.is_corruption() && directory.view().flags().contains(InodeFlags::INDEX) => {}
        found => return Ok(found?.map(|found| found.inode)),
    }
    let (found, error) = first(open, directory, |entry| entry.name == name)?;
    match (found.and_then(|entry| entry.inode), error) {
        (None, Some(error)) => Err(error),
        (found, _) => Ok(found),
    }
}

/// The first entry in use that a test holds for, and the first thing that could not be read.
fn first(
    open: &Open,
    directory: &Inode,
    test: impl Fn(&Listed) -> bool,
) -> Result<(Option<Listed>, Option<Error>)> {
    let found = listing::entries(&open.txn, directory, false)?;
    let entry = found.entries.into_iter().find(|entry| entry.inode.is_some() && test(entry));
    Ok((entry, found.errors.into_iter().next()))
}

/// The target, if the inode is a symbolic link that can be followed.
fn link_target(open: &Open, number: InodeNumber) -> Result<Option<Vec<u8>>> {
    let inode = inode::read(&open.txn, number)?;
    if inode.view().kind() != Some(FileKind::Symlink) {
        return Ok(None);
    }
    target(open, &inode).map(Some)
}

/// The target of a symbolic link, in the inode or in a block.
pub fn target(open: &Open, inode: &Inode) -> Result<Vec<u8>> {
    if is_fast_link(open, inode) {
        return Ok(short_symlink_target(inode.view()).unwrap_or_default().to_vec());
    }
    file::read_all(&open.txn, inode, u64::from(open.txn.layout().geometry.block_size()))
}

/// Whether a symbolic link's target lies in its inode: it has no blocks but one of attributes.
pub fn is_fast_link(open: &Open, inode: &Inode) -> bool {
    let view = inode.view();
    view.kind() == Some(FileKind::Symlink)
        && !view.flags().intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
        && short_symlink_target(view).is_some()
        && (view.attribute_block().0 != 0 || inode::sectors(&open.txn, view) == 0)
}

/// The path of a directory from the root of the filesystem, also where the user's root is another, by its `..` entries.
pub fn path_of(open: &Open, directory: InodeNumber) -> Result<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut current = directory;
    while current != InodeNumber::ROOT {
        if names.len() >= MOST_DEPTH {
            return Err(Error::Invalid(format!("directory {directory} lies in a loop, or too deep")));
        }
        let inode = inode::read(&open.txn, current)?;
        let missing = || Error::NotFound(format!("the parent of directory {current}"));
        let parent = lookup(open, &inode, b"..")?.ok_or_else(missing)?;
        let own = |entry: &Listed| entry.inode == Some(current) && !dirent::is_dot(&entry.name);
        let (entry, _) = first(open, &inode::read(&open.txn, parent)?, own)?;
        let name = entry.map(|entry| entry.name);
        names.push(name.unwrap_or_else(|| format!("<{current}>").into_bytes()));
        current = parent;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    Ok(path)
}
