//! The root, `/lost+found`, and names there for what no other name leads to.

use ext4kit_format::disk::dirent::FileType;
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::group_desc::GroupFlags;
use ext4kit_format::disk::inode::{EXTRA_SIZE, FileKind, Inode, Timestamp};
use ext4kit_format::error::{Error, Result};
use ext4kit_format::num::index;
use ext4kit_format::tree::namespace::{self, NewInode, NewKind};
use ext4kit_format::tree::{dir, group, inode, map};
use ext4kit_format::txn::Transaction;
use ext4kit_format::{InodeNumber, Place};

use super::fields;
use super::workshop::{Whole, Workshop};
use crate::checks::context::known;
use crate::repair::Repair;

/// What the directory of found files is called.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Puts a problem of connectivity right.
pub fn apply(shop: &mut Workshop<'_>, place: &Place, repair: &Repair) -> Result<()> {
    match repair {
        Repair::CreateRoot => create_root(shop),
        Repair::CreateLostAndFound => lost_and_found(shop).map(|_| ()),
        Repair::Reconnect(number) => reconnect(shop, *number),
        Repair::ReadWholeTable(inode) => read_whole_table(shop, *inode),
        Repair::SetEntryTarget { inode, .. } => {
            let number = fields::inode_of(place)?;
            let mut directory = inode::read_unverified(shop, number)?;
            dir::set_target(shop, &mut directory, b"..", *inode, FileType::DIRECTORY)?;
            inode::write_over(shop, &directory)
        }
        other => Err(Error::Invalid(format!("{place}: {other} is no repair of connectivity"))),
    }
}

/// Makes an empty root directory.
pub fn create_root(shop: &mut Workshop<'_>) -> Result<()> {
    if !shop.first_time(Whole::Cleared, InodeNumber::ROOT) {
        return Ok(());
    }
    let geometry = &shop.layout().geometry;
    let mut root = Inode::fresh(InodeNumber::ROOT, index(geometry.inode_size()), EXTRA_SIZE);
    root.set_mode(FileKind::Directory.mode_bits() | 0o755);
    root.set_links(2);
    let time = Timestamp { seconds: shop.now.into(), nanoseconds: 0 };
    root.set_access_time(time);
    root.set_change_time(time);
    root.set_modification_time(time);
    let extents = shop.layout().features().incompat.contains(Incompat::EXTENTS);
    map::initialise(&mut root, extents)?;
    dir::create(shop, &mut root, InodeNumber::ROOT)?;
    shop.set_state(InodeNumber::ROOT, known::USED | 2);
    inode::write_over(shop, &root)
}

/// The directory of found files, made if it is not there. What has its name and is no directory loses the name.
fn lost_and_found(shop: &mut Workshop<'_>) -> Result<Inode> {
    let mut root = inode::read_unverified(shop, InodeNumber::ROOT)?;
    if let Some(found) = dir::lookup(shop, &root, LOST_AND_FOUND)? {
        let existing = inode::read_unverified(shop, found.inode)?;
        if existing.view().is_directory() && shop.state(found.inode) & known::USED != 0 {
            return Ok(existing);
        }
        dir::remove(shop, &mut root, LOST_AND_FOUND)?;
        inode::write_over(shop, &root)?;
    }
    let time = Timestamp { seconds: shop.now.into(), nanoseconds: 0 };
    let new = NewInode { permissions: 0o700, time, ..NewInode::default() };
    namespace::create(shop, &mut root, LOST_AND_FOUND, NewKind::Directory, new)
}

/// Gives an inode that no name leads to a name in `/lost+found`. An empty one without any block is freed instead.
fn reconnect(shop: &mut Workshop<'_>, number: InodeNumber) -> Result<()> {
    let lost = inode::read_unverified(shop, number)?;
    let kind = lost.view().kind();
    let empty = lost.view().size() == 0 && inode::sectors(shop, lost.view()) == 0;
    if empty && matches!(kind, Some(FileKind::Regular | FileKind::Directory)) {
        return fields::clear_inode(shop, number);
    }
    let mut found = match lost_and_found(shop) {
        // Where nothing more can be made, the root has to do.
        Err(Error::NoSpace | Error::NoInodes) => inode::read_unverified(shop, InodeNumber::ROOT)?,
        found => found?,
    };
    let file_type = FileType::from_mode(lost.view().mode());
    let mut name = format!("#{number}");
    while dir::lookup(shop, &found, name.as_bytes())?.is_some() {
        name.push('~');
    }
    dir::insert(shop, &mut found, name.as_bytes(), number, file_type)?;
    inode::write_over(shop, &found)
}

/// Takes all of an inode's table for used. What lies in it is checked like any inode in the next round.
pub fn read_whole_table(shop: &mut Workshop<'_>, inode: InodeNumber) -> Result<()> {
    let Some((group, _)) = shop.layout().geometry.inode_place(inode) else {
        return Err(Error::Invalid(format!("inode {inode} does not exist")));
    };
    group::update_descriptor(shop, group, |descriptor| {
        descriptor.unused_inodes = 0;
        descriptor.flags.remove(GroupFlags::INODE_UNINIT);
    })
}
