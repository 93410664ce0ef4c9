//! Opening an image or device so that nobody else changes it meanwhile.
//!
//! - To write, a device is opened exclusively (the kernel then keeps mounts and other exclusive users out) and a
//!   regular file is locked; both are refused while mounted, attached to a loop device, or swap.
//! - To read, a regular file gets a shared lock, so that a writer of this suite is noticed; what is mounted may be
//!   read, as the classic tools allow, but is not mapped into memory.
//! - Force skips the refusals, not the look at what kind of file this is.

use std::fs::{File, FileType, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use super::in_use::{self, Use};
use super::{FileStore, MappedStore, Store, file};
use crate::error::{Error, Place, Result};

/// What an image is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be read only.
    ReadOnly,
    /// To be read and written, by nobody else meanwhile.
    ReadWrite,
}

/// Opens a regular file or block device. Somebody else's use of it is [`Error::InUse`], unless `force`.
///
/// A regular file that is only read, and that nobody is seen to use, is mapped.
pub fn open(path: &Path, access: Access, force: bool) -> Result<Arc<dyn Store>> {
    let Opened { file, to_map } = claim(path, access, force)?;
    if to_map {
        return Ok(Arc::new(MappedStore::new(file).map_err(|error| at(path, error))?));
    }
    Ok(Arc::new(file_store(path, file, access)?))
}

impl FileStore {
    /// [`open`], for whoever may [`FileStore::grow`] the file.
    pub fn open(path: &Path, access: Access, force: bool) -> Result<Self> {
        file_store(path, claim(path, access, force)?.file, access)
    }
}

/// A file or device that is ours for the access asked for, as long as it stays open.
struct Opened {
    file: File,
    /// Whether it may be mapped: a regular file to be read, locked, and not seen to be in use.
    to_map: bool,
}

fn claim(path: &Path, access: Access, force: bool) -> Result<Opened> {
    let read_only = access == Access::ReadOnly;
    let kind = kind_of(path)?;
    let uses = in_use::uses(path).map_err(|error| at(path, error))?;
    if !read_only && !force {
        refuse(path, &uses)?;
    }
    let file = open_file(path, access, kind.is_block_device() && !read_only && !force)?;
    let locked = match lock(path, &file, access) {
        _ if !kind.is_file() || (force && !read_only) => false,
        Err(_) if force => false,
        taken => taken.map(|()| true)?,
    };
    Ok(Opened { file, to_map: locked && read_only && uses.is_empty() })
}

fn file_store(path: &Path, file: File, access: Access) -> Result<FileStore> {
    FileStore::new(file, access == Access::ReadOnly).map_err(|error| at(path, error))
}

/// Makes a new regular file of zeros that takes no room yet, locked as [`open`] locks. A file that is there
/// already is refused and left alone.
pub fn create_sparse_file(path: &Path, size: u64) -> Result<FileStore> {
    let created = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    let file = created.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Error::AlreadyExists(path.display().to_string()),
        _ => at(path, error),
    })?;
    lock(path, &file, Access::ReadWrite)?;
    let sized = file.set_len(size).and_then(|()| FileStore::new(file, false));
    sized.map_err(|error| {
        // What is left is an empty file of our own making, just now; nobody wants it.
        let _ = std::fs::remove_file(path);
        at(path, error)
    })
}

fn at(path: &Path, error: io::Error) -> Error {
    Error::io(Place::File(path.display().to_string()))(error)
}

/// The kind of file, which is looked at before it is opened: opening a pipe would wait, and some devices act on it.
fn kind_of(path: &Path) -> Result<FileType> {
    let kind = std::fs::metadata(path).map_err(|error| at(path, error))?.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(kind);
    }
    Err(Error::Invalid(format!("{}: {}", path.display(), file::not_an_image(kind))))
}

fn refuse(path: &Path, uses: &[Use]) -> Result<()> {
    match uses.first() {
        Some(first) => Err(Error::InUse(format!("{}: {first}", path.display()))),
        None => Ok(()),
    }
}

fn open_file(path: &Path, access: Access, exclusive: bool) -> Result<File> {
    let mut flags = OFlags::CLOEXEC;
    flags |= if access == Access::ReadOnly { OFlags::RDONLY } else { OFlags::RDWR };
    if exclusive {
        flags |= OFlags::EXCL;
    }
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(descriptor) => Ok(descriptor.into()),
        Err(rustix::io::Errno::BUSY) => {
            Err(Error::InUse(format!("{}: in use by the system or another program", path.display())))
        }
        Err(error) => Err(at(path, error.into())),
    }
}

fn lock(path: &Path, file: &File, access: Access) -> Result<()> {
    let taken = match access {
        Access::ReadOnly => file.try_lock_shared(),
        Access::ReadWrite => file.try_lock(),
    };
    match taken {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            Err(Error::InUse(format!("{}: locked by another program", path.display())))
        }
        Err(TryLockError::Error(error)) => {
            // Filesystems without locks are no reason not to work on an image.
            let unsupported =
                [rustix::io::Errno::NOLCK, rustix::io::Errno::OPNOTSUPP, rustix::io::Errno::NOSYS];
            let number = error.raw_os_error();
            if unsupported.iter().any(|errno| number == Some(errno.raw_os_error())) {
                return Ok(());
            }
            Err(at(path, error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract;
    use super::*;

    fn image(folder: &tempfile::TempDir) -> std::path::PathBuf {
        let path = folder.path().join("disk.img");
        std::fs::write(&path, contract::pattern()).unwrap();
        path
    }

    #[test]
    fn a_file_to_read_is_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&image(&folder), Access::ReadOnly, false).unwrap();
        assert!(store.as_memory().is_some());
        contract::check_read_only(&*store);
    }

    #[test]
    fn a_file_to_write_keeps_the_contract() {
        let folder = tempfile::tempdir().unwrap();
        let path = image(&folder);
        std::fs::write(&path, vec![0; contract::LENGTH]).unwrap();
        contract::check(&*open(&path, Access::ReadWrite, false).unwrap());
    }

    #[test]
    fn a_writer_keeps_everybody_out_and_readers_share() {
        let folder = tempfile::tempdir().unwrap();
        let path = image(&folder);
        let refused = |access| match open(&path, access, false) {
            Err(Error::InUse(text)) => text.ends_with("disk.img: locked by another program"),
            _ => false,
        };
        let writer = open(&path, Access::ReadWrite, false).unwrap();
        assert!(refused(Access::ReadOnly) && refused(Access::ReadWrite));
        assert!(open(&path, Access::ReadWrite, true).is_ok());
        drop(writer);
        let reader = open(&path, Access::ReadOnly, false).unwrap();
        assert!(open(&path, Access::ReadOnly, false).is_ok());
        assert!(refused(Access::ReadWrite));
        drop(reader);
        assert!(open(&path, Access::ReadWrite, false).is_ok());
    }

    #[test]
    fn what_is_no_image_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let text = |path: &Path| open(path, Access::ReadOnly, true).err().unwrap().to_string();
        assert!(text(folder.path()).ends_with(": is a directory, not an image or block device"));
        assert!(text(Path::new("/dev/null")).starts_with("/dev/null: is a character device"));
        assert!(text(&folder.path().join("none")).contains("none: No such file or directory"));
    }

    #[test]
    fn a_new_file_is_all_hole_and_an_old_one_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.img");
        let store = create_sparse_file(&path, contract::SIZE).unwrap();
        assert!(matches!(open(&path, Access::ReadOnly, false), Err(Error::InUse(_))));
        contract::check(&store);
        drop(store);
        std::fs::write(&path, b"kept").unwrap();
        assert!(matches!(create_sparse_file(&path, 10), Err(Error::AlreadyExists(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        assert!(create_sparse_file(&folder.path().join("big.img"), u64::MAX).is_err());
        assert!(!folder.path().join("big.img").exists());
    }
}
