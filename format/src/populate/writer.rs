//! From the entries of a source to inodes, contents and directories.

use rustc_hash::FxHashMap;

use super::contents::Contents;
use super::entry::{Entry, Identity, Kind, Metadata, Source};
use crate::disk::dirent::FileType;
use crate::disk::features::Incompat;
use crate::disk::inode::{EXTRA_SIZE, FileKind, Inode, MAX_LINKS, Timestamp};
use crate::error::{Error, Result};
use crate::ids::{GroupNumber, InodeNumber, LogicalBlock};
use crate::num::index;
use crate::tree::xattr::{self, Change, Sharing};
use crate::tree::{dir, file, inline, inode, map, namespace};
use crate::txn::Transaction;

/// The directory that every filesystem has from the start.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Metadata blocks that one entry may change, contents and directories apart.
const CREDITS: u32 = 48;

/// How a filesystem is filled.
#[derive(Clone, Copy, Debug, Default)]
pub struct PopulateOptions {
    /// When the files are said to be created.
    pub created: Timestamp,
    /// No time is later than this. Times of access and of inode changes, which a copy of a tree does not keep, are taken
    /// from the contents' times then, so that equal trees give equal bytes.
    pub latest: Option<Timestamp>,
    /// Whether the root keeps the owner that it has.
    pub keep_root_owner: bool,
    /// Whether the root keeps the permissions that it has.
    pub keep_root_mode: bool,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Inodes that were made.
    pub inodes: u64,
    /// Names beyond the first of a file.
    pub hard_links: u64,
    /// Bytes of regular files, holes included.
    pub bytes: u64,
}

/// Fills a filesystem that holds a root with `lost+found` and nothing more. Errors name the path in the source.
pub fn populate(
    txn: &mut dyn Transaction,
    source: &mut dyn Source,
    options: &PopulateOptions,
) -> Result<Summary> {
    let mut writer = Writer::new(txn, *options);
    while let Some(entry) = source.next_entry()? {
        let added = txn.ensure_credits(CREDITS).and_then(|()| writer.add(txn, source, &entry));
        added.map_err(|error| in_source(entry.path_text(), error))?;
    }
    writer.contents.flush(txn)?;
    writer.finish(txn)
}

/// Says in which file of the source something went wrong. Errors of the host name their path already.
fn in_source(path: String, error: Error) -> Error {
    match error {
        Error::Io { place: crate::Place::File(_), .. } => error,
        error => Error::InSource { path, source: Box::new(error) },
    }
}

struct Writer {
    options: PopulateOptions,
    contents: Contents,
    sharing: Sharing,
    directories: Vec<Directory>,
    by_path: FxHashMap<Vec<u8>, usize>,
    linked: FxHashMap<Identity, InodeNumber>,
    /// Groups without a free inode, each with the group that was found to have some instead, so that full groups are not
    /// looked through again for every file.
    filled: FxHashMap<GroupNumber, GroupNumber>,
    /// How many directories at the top were placed.
    spread: u32,
    summary: Summary,
}

/// A directory whose names are being collected.
struct Directory {
    path: Vec<u8>,
    inode: Inode,
    parent: InodeNumber,
    names: Vec<dir::Name>,
}

impl Writer {
    fn new(txn: &dyn Transaction, options: PopulateOptions) -> Self {
        // The first group holds the root and what every filesystem has.
        let spread = u32::from(txn.layout().geometry.group_count() > 1);
        Self {
            options,
            contents: Contents::default(),
            sharing: Sharing::new(),
            directories: Vec::new(),
            by_path: FxHashMap::default(),
            linked: FxHashMap::default(),
            filled: FxHashMap::default(),
            spread,
            summary: Summary::default(),
        }
    }

    fn add(&mut self, txn: &mut dyn Transaction, source: &mut dyn Source, entry: &Entry) -> Result<()> {
        let Some((parent_path, name)) = entry.parent_and_name() else { return self.add_root(txn, entry) };
        dir::check_name(name)?;
        let Some(parent) = self.by_path.get(parent_path).copied() else {
            return Err(Error::NotFound(format!("/{}", String::from_utf8_lossy(parent_path))));
        };
        if let Some(identity) = entry.identity
            && let Some(number) = self.linked.get(&identity).copied()
        {
            return self.add_link(txn, parent, name, number);
        }
        if entry.kind == Kind::Directory {
            if parent_path.is_empty() && name == LOST_AND_FOUND {
                return self.add_lost_and_found(txn, entry);
            }
            return self.add_directory(txn, parent, name, entry);
        }
        if parent_path.is_empty() && name == LOST_AND_FOUND {
            return Err(Error::AlreadyExists("lost+found".to_owned()));
        }
        self.add_file(txn, source, parent, entry)
    }

    fn add_root(&mut self, txn: &mut dyn Transaction, entry: &Entry) -> Result<()> {
        if entry.kind != Kind::Directory {
            return Err(Error::NotADirectory(InodeNumber::ROOT));
        }
        let mut root = inode::read(txn, InodeNumber::ROOT)?;
        let before = (root.view().mode(), root.view().uid(), root.view().gid());
        self.describe(txn, &mut root, entry)?;
        if self.options.keep_root_mode {
            root.set_mode(before.0);
        }
        if self.options.keep_root_owner {
            root.set_owner_ids(before.1, before.2);
        }
        self.note_directory(entry.path.clone(), root, InodeNumber::ROOT);
        Ok(())
    }

    fn add_lost_and_found(&mut self, txn: &mut dyn Transaction, entry: &Entry) -> Result<()> {
        let root = inode::read(txn, InodeNumber::ROOT)?;
        let found = dir::lookup(txn, &root, LOST_AND_FOUND)?;
        let number = found.ok_or_else(|| Error::NotFound("lost+found".to_owned()))?.inode;
        let mut inode = inode::read(txn, number)?;
        self.describe(txn, &mut inode, entry)?;
        self.note_directory(entry.path.clone(), inode, InodeNumber::ROOT);
        Ok(())
    }

    fn add_directory(
        &mut self,
        txn: &mut dyn Transaction,
        parent: usize,
        name: &[u8],
        entry: &Entry,
    ) -> Result<()> {
        let near = self.group_for_directory(txn, parent)?;
        let mut inode = self.fresh(txn, near, FileKind::Directory)?;
        map::initialise(&mut inode, uses_extents(txn))?;
        inode.set_links(2);
        self.describe(txn, &mut inode, entry)?;
        let directory = self.parent(parent)?;
        namespace::add_subdirectory(txn, &mut directory.inode)?;
        directory.names.push(dir::Name {
            name: name.to_vec(),
            inode: inode.number(),
            file_type: FileType::DIRECTORY,
        });
        let parent = directory.inode.number();
        self.note_directory(entry.path.clone(), inode, parent);
        Ok(())
    }

    fn add_file(
        &mut self,
        txn: &mut dyn Transaction,
        source: &mut dyn Source,
        parent: usize,
        entry: &Entry,
    ) -> Result<()> {
        let number = self.parent(parent)?.inode.number();
        let near = txn.layout().geometry.inode_place(number).map_or(GroupNumber(0), |(group, _)| group);
        let extents = uses_extents(txn);
        let mut inode = self.fresh(txn, near, kind_of(&entry.kind))?;
        inode.set_links(1);
        if matches!(entry.kind, Kind::Regular(_)) {
            map::initialise(&mut inode, extents)?;
        }
        self.describe(txn, &mut inode, entry)?;
        match &entry.kind {
            Kind::Regular(size) => self.write_contents(txn, source, &mut inode, *size)?,
            Kind::Symlink(target) => file::write_symlink(txn, &mut inode, target, extents)?,
            Kind::CharacterDevice(major, minor) | Kind::BlockDevice(major, minor) => {
                if !inode.set_device(*major, *minor) {
                    return Err(Error::Invalid(format!("device {major}:{minor} does not fit an inode")));
                }
            }
            Kind::Fifo | Kind::Socket | Kind::Directory => {}
        }
        inode::write_over(txn, &inode)?;
        if let Some(identity) = entry.identity {
            self.linked.insert(identity, inode.number());
        }
        let name = entry.parent_and_name().map_or(&[][..], |(_, name)| name);
        let file_type = FileType::from_mode(inode.view().mode());
        let named = dir::Name { name: name.to_vec(), inode: inode.number(), file_type };
        self.parent(parent)?.names.push(named);
        Ok(())
    }

    fn write_contents(
        &mut self,
        txn: &mut dyn Transaction,
        source: &mut dyn Source,
        inode: &mut Inode,
        size: u64,
    ) -> Result<()> {
        self.summary.bytes = self.summary.bytes.saturating_add(size);
        if inline::is_allowed(txn)
            && inline::capacity(inode)?.is_some_and(|room| size <= crate::num::wide(room))
            && inline::initialise(inode)?
        {
            let mut bytes = vec![0; crate::num::index64(size)];
            source.read(0, &mut bytes)?;
            if inline::write(inode, 0, &bytes)? {
                return Ok(());
            }
            inline::move_to_blocks(txn, inode)?;
        }
        self.contents.write(txn, source, inode, size)
    }

    fn add_link(
        &mut self,
        txn: &mut dyn Transaction,
        parent: usize,
        name: &[u8],
        number: InodeNumber,
    ) -> Result<()> {
        let mut target = inode::read(txn, number)?;
        let links = target.view().links();
        if links >= MAX_LINKS {
            return Err(Error::TooManyLinks(number));
        }
        target.set_links(links.saturating_add(1));
        inode::write(txn, &target)?;
        let file_type = FileType::from_mode(target.view().mode());
        let named = dir::Name { name: name.to_vec(), inode: number, file_type };
        self.parent(parent)?.names.push(named);
        self.summary.hard_links = self.summary.hard_links.saturating_add(1);
        Ok(())
    }

    /// Takes an inode of a kind near a group; its mode gets the permissions later.
    fn fresh(&mut self, txn: &mut dyn Transaction, near: GroupNumber, kind: FileKind) -> Result<Inode> {
        let first = self.filled.get(&near).copied().unwrap_or(near);
        let number = txn.allocate_inode(first, kind == FileKind::Directory)?;
        if let Some((found, _)) = txn.layout().geometry.inode_place(number)
            && found != near
        {
            self.filled.insert(near, found);
        }
        let mut inode = Inode::fresh(number, index(txn.layout().geometry.inode_size()), EXTRA_SIZE);
        inode.set_mode(kind.mode_bits());
        inode.set_creation_time(self.options.created);
        self.summary.inodes = self.summary.inodes.saturating_add(1);
        Ok(inode)
    }

    /// Gives an inode owner, permissions, times and attributes.
    fn describe(&mut self, txn: &mut dyn Transaction, inode: &mut Inode, entry: &Entry) -> Result<()> {
        let Metadata { permissions, uid, gid, accessed, changed, modified } = entry.metadata;
        inode.set_mode((inode.view().mode() & 0xf000) | (permissions & 0o7777));
        inode.set_owner_ids(uid, gid);
        let (accessed, changed, modified) = match self.options.latest {
            Some(latest) => [modified.min(latest); 3].into(),
            None => (accessed, changed, modified),
        };
        inode.set_access_time(accessed);
        inode.set_change_time(changed);
        inode.set_modification_time(modified);
        if entry.attributes.is_empty() {
            return Ok(());
        }
        let attributes: Vec<(&[u8], &[u8])> =
            entry.attributes.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        let sharing = Some(&mut self.sharing);
        let mut change = Change { time: self.options.created, generation: 0, sharing };
        xattr::set_all(txn, inode, &attributes, &mut change)
    }

    fn parent(&mut self, place: usize) -> Result<&mut Directory> {
        self.directories.get_mut(place).ok_or_else(|| Error::NotFound("parent directory".to_owned()))
    }

    fn note_directory(&mut self, path: Vec<u8>, inode: Inode, parent: InodeNumber) {
        self.by_path.insert(path.clone(), self.directories.len());
        self.directories.push(Directory { path, inode, parent, names: Vec::new() });
    }

    /// Where a directory goes: those at the top each to the next group of groups, the others near their parent.
    fn group_for_directory(&mut self, txn: &dyn Transaction, parent: usize) -> Result<GroupNumber> {
        let geometry = &txn.layout().geometry;
        let parent = self.parent(parent)?.inode.number();
        if parent != InodeNumber::ROOT {
            return Ok(geometry.inode_place(parent).map_or(GroupNumber(0), |(group, _)| group));
        }
        let per_flex = geometry.groups_per_flex().max(1);
        let count = geometry.group_count().div_ceil(per_flex).max(1);
        let turn = self.spread.checked_rem(count).unwrap_or(0);
        self.spread = self.spread.wrapping_add(1);
        Ok(GroupNumber(turn.saturating_mul(per_flex)))
    }

    /// Builds every directory, and writes its inode.
    fn finish(mut self, txn: &mut dyn Transaction) -> Result<Summary> {
        for mut directory in std::mem::take(&mut self.directories) {
            let text = format!("/{}", String::from_utf8_lossy(&directory.path));
            build_directory(txn, &mut directory).map_err(|error| in_source(text, error))?;
        }
        Ok(self.summary)
    }
}

fn build_directory(txn: &mut dyn Transaction, directory: &mut Directory) -> Result<()> {
    let Directory { path, inode, parent, names } = directory;
    if inode.number() == InodeNumber::ROOT {
        // The root's block is given back, and its one name goes with the others.
        let found = dir::lookup(txn, inode, LOST_AND_FOUND)?;
        names.extend(found.map(|found| dir::Name {
            name: LOST_AND_FOUND.to_vec(),
            inode: found.inode,
            file_type: FileType::DIRECTORY,
        }));
        let runs: Vec<_> = map::segments(txn, inode, LogicalBlock(0)).collect::<Result<_>>()?;
        for block in runs.iter().filter_map(map::Segment::run).flat_map(crate::BlockRun::iter) {
            txn.forget(block)?;
        }
        map::remove(txn, inode, 0, u64::MAX)?;
        inode.set_size(0);
    } else if path == LOST_AND_FOUND {
        // Its blocks are kept as they are: a checker needs them.
        for name in names.iter() {
            dir::insert(txn, inode, &name.name, name.inode, name.file_type)?;
        }
        return inode::write_over(txn, inode);
    }
    let inline = inline::is_allowed(txn) && inode.number() != InodeNumber::ROOT;
    dir::build(txn, inode, *parent, (names, inline))?;
    inode::write_over(txn, inode)
}

fn uses_extents(txn: &dyn Transaction) -> bool {
    txn.layout().features().incompat.contains(Incompat::EXTENTS)
}

fn kind_of(kind: &Kind) -> FileKind {
    match kind {
        Kind::Directory => FileKind::Directory,
        Kind::Regular(_) => FileKind::Regular,
        Kind::Symlink(_) => FileKind::Symlink,
        Kind::CharacterDevice(..) => FileKind::CharacterDevice,
        Kind::BlockDevice(..) => FileKind::BlockDevice,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
    }
}
