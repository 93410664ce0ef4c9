//! Whole names, and the two forms of access lists: the one place where they are converted.

use std::borrow::Cow;

use super::INLINE_DATA;
use crate::disk::acl;
use crate::disk::inode::Inode;
use crate::disk::xattr::{MAX_NAME, MAX_VALUE, NameIndex, split_name};
use crate::error::{Error, Place, Result};
use crate::ids::InodeNumber;
use crate::num::index;

/// A name that programs may use, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<'a> {
    full: &'a [u8],
    pub index: NameIndex,
    pub rest: &'a [u8],
}

impl<'a> Name<'a> {
    pub fn parse(full: &'a [u8]) -> Result<Self> {
        let text = || String::from_utf8_lossy(full).into_owned();
        let Some((index, rest)) = split_name(full).filter(|name| *name != INLINE_DATA) else {
            return Err(Error::BadName(format!("{}: no attribute can have this name", text())));
        };
        if rest.len() > MAX_NAME || rest.contains(&0) {
            return Err(Error::BadName(format!(
                "{}: an attribute's name has 255 bytes after its prefix at most, and no NUL",
                text()
            )));
        }
        Ok(Self { full, index, rest })
    }

    fn is_access_list(self) -> bool {
        matches!(self.index, NameIndex::POSIX_ACL_ACCESS | NameIndex::POSIX_ACL_DEFAULT)
    }

    /// The value as it is stored.
    pub fn stored<'v>(self, inode: &Inode, value: &'v [u8]) -> Result<Cow<'v, [u8]>> {
        let name = || String::from_utf8_lossy(self.full);
        if value.len() > index(MAX_VALUE) {
            return Err(Error::AttributeTooBig(format!("{} ({} bytes)", name(), value.len())));
        }
        if !self.is_access_list() {
            return Ok(Cow::Borrowed(value));
        }
        if self.index == NameIndex::POSIX_ACL_DEFAULT && !inode.view().is_directory() {
            return Err(Error::NotADirectory(inode.number()));
        }
        let entries = acl::decode_syscall(value).and_then(|entries| acl::check(&entries).map(|()| entries));
        let entries = entries.map_err(|defect| Error::Invalid(format!("{}: {defect}", name())))?;
        Ok(Cow::Owned(acl::encode_disk(&entries)))
    }

    /// The value as programs see it.
    pub fn seen(self, inode: InodeNumber, value: Vec<u8>) -> Result<Vec<u8>> {
        if !self.is_access_list() {
            return Ok(value);
        }
        let entries = acl::decode_disk(&value).map_err(|defect| defect.at(Place::InodeAttributes(inode)))?;
        Ok(acl::encode_syscall(&entries))
    }
}
