//! The file or device that a filesystem goes to.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use ext4kit_cli::device::DeviceName;
use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_format::Error;
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::store::{self, Access, FileStore, Store, SubRange};

/// What there is at the target's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Present {
    /// Nothing.
    Missing,
    /// A regular file of so many bytes.
    File(u64),
    /// A block device; its size is known once it is open.
    Device,
}

/// Looks at a path without opening it.
pub fn look(path: &Path) -> Result<Present, Failure> {
    use std::os::unix::fs::FileTypeExt;
    let text = path.display().to_string();
    match path.metadata() {
        Ok(found) if found.is_file() => Ok(Present::File(found.len())),
        Ok(found) if found.file_type().is_block_device() => Ok(Present::Device),
        Ok(_) => {
            Err(Failure::new(FailureKind::Invalid, text, "it is neither a regular file nor a block device"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Present::Missing),
        Err(error) => Err(Failure::new(FailureKind::Io, text, error.to_string())),
    }
}

/// An opened target.
pub struct Target {
    /// The bytes that the filesystem may take.
    pub store: Arc<dyn Store>,
    /// Whether every byte is known to read as zero.
    pub is_zero: bool,
}

/// How a target is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenTarget {
    /// Byte at which the filesystem begins.
    pub offset: u64,
    /// Bytes that it needs from there on.
    pub bytes: u64,
    /// How often `-F` was given.
    pub force: u8,
    /// Whether what was there may be discarded.
    pub discard: bool,
}

/// Opens the target, makes it if it is a file that is not there, and lets a file grow to the size that is needed.
pub fn open(name: &DeviceName, wanted: OpenTarget) -> Result<Target, Failure> {
    let failed = |error: &Error| Failure::from_error(&name.path.display().to_string(), error);
    let end = wanted.offset.saturating_add(wanted.bytes);
    let present = look(&name.path)?;
    if present == Present::Missing {
        // What a log beside it was written for is gone with the file that had the name before.
        let _ = std::fs::remove_file(name.redo_log());
        let store = store::create_sparse_file(&name.path, end).map_err(|error| match &error {
            Error::Io { source, .. } => too_large(name, end, source).unwrap_or_else(|| failed(&error)),
            _ => failed(&error),
        })?;
        return Ok(Target { store: within(Arc::new(store), wanted.offset)?, is_zero: true });
    }
    let mut file =
        FileStore::open(&name.path, Access::ReadWrite, wanted.force >= 2).map_err(|error| failed(&error))?;
    if name.redo_log().symlink_metadata().is_ok() {
        // A log left beside the new filesystem would be in the way of whoever opens it next.
        drop(file);
        name.clone().open(Access::ReadWrite, wanted.force >= 2)?;
        file = FileStore::open(&name.path, Access::ReadWrite, wanted.force >= 2)
            .map_err(|error| failed(&error))?;
    }
    if file.size() < end {
        if file.is_device() {
            let text = format!("the filesystem needs {end} bytes, the device has {}", file.size());
            return Err(Failure::new(FailureKind::NoSpace, name.typed.clone(), text));
        }
        file.grow(end).map_err(|error| {
            let failed = || Failure::new(FailureKind::Io, name.typed.clone(), error.to_string());
            too_large(name, end, &error).unwrap_or_else(failed)
        })?;
    }
    let is_device = file.is_device();
    let store = within(Arc::new(file), wanted.offset)?;
    if wanted.force == 0 {
        confirm_overwriting(&name.typed, store.as_ref())?;
    }
    // Punching a file makes it read as zero; what a device returns for discarded blocks is its own affair.
    let is_zero = wanted.discard && !is_device;
    if is_zero {
        store
            .zero_range(0, wanted.bytes)
            .map_err(|error| Failure::new(FailureKind::Io, name.typed.clone(), error.to_string()))?;
    }
    Ok(Target { store, is_zero })
}

fn within(store: Arc<dyn Store>, offset: u64) -> Result<Arc<dyn Store>, Failure> {
    if offset == 0 {
        return Ok(store);
    }
    let part = SubRange::from_offset(store, offset).map_err(|error| Failure::from_error("", &error))?;
    Ok(Arc::new(part))
}

/// The failure of a file that cannot be as large as is needed, if that is what went wrong.
///
/// mke2fs goes on where only the last block is missing, and reports success; what it leaves is larger than its file, and no
/// kernel mounts it.
fn too_large(name: &DeviceName, wanted: u64, error: &io::Error) -> Option<Failure> {
    if error.kind() != io::ErrorKind::FileTooLarge {
        return None;
    }
    let folder = name.path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let most = largest_file(folder.unwrap_or(Path::new(".")))?;
    let text = format!("files can have at most {most} bytes where it lies, and it needs {wanted}");
    let hint = format!("make it smaller, for example {}M, or use a block device", most >> 20);
    Some(Failure::new(FailureKind::NoSpace, name.typed.clone(), text).with_hint(hint))
}

/// How large a file in this folder can be, found by trying with one that has no name. `None` where that cannot be tried.
fn largest_file(folder: &Path) -> Option<u64> {
    use rustix::fs::{Mode, OFlags, ftruncate, open};
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = open(folder, flags, Mode::from_raw_mode(0o600)).ok()?;
    let (mut can, mut cannot) = (0, u64::from(u32::MAX) << 31);
    while cannot.saturating_sub(can) > 1 {
        let middle = can.midpoint(cannot);
        if ftruncate(&file, middle).is_ok() { can = middle } else { cannot = middle }
    }
    Some(can)
}

/// Asks before a filesystem is overwritten, where there is somebody to ask, as mke2fs does.
fn confirm_overwriting(name: &str, store: &dyn Store) -> Result<(), Failure> {
    let mut bytes = [0; 1024];
    let old = store.read_at(1024, &mut bytes).ok().and_then(|()| Superblock::parse(&bytes).ok());
    if old.is_none() || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(());
    }
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{name} contains an ext2/3/4 filesystem. Proceed anyway? (y,N) ")
        .and_then(|()| io::stdin().lock().read_line(&mut answer));
    if asked.is_ok() && answer.trim_start().starts_with(['y', 'Y']) {
        Ok(())
    } else {
        Err(Failure::new(FailureKind::Cancelled, name, "left as it is"))
    }
}

/// Size of a block device in bytes.
pub fn device_size(path: &Path) -> Result<u64, Failure> {
    let text = path.display().to_string();
    let store =
        FileStore::open(path, Access::ReadOnly, true).map_err(|error| Failure::from_error(&text, &error))?;
    Ok(store.size())
}

/// User and group that run the program.
pub fn user() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_file_is_found_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let Some(most) = largest_file(folder.path()) else { return };
        let file = std::fs::File::create(folder.path().join("file")).unwrap();
        file.set_len(most).unwrap();
        let wanted = most + 4096;
        let name = DeviceName::parse(folder.path().join("image").as_os_str()).unwrap();
        let wanted = OpenTarget { offset: 0, bytes: wanted, force: 0, discard: true };
        let Err(error) = file.set_len(wanted.bytes) else { panic!("{most} bytes were not the most") };
        if error.kind() == io::ErrorKind::FileTooLarge {
            let failure = open(&name, wanted).err().unwrap().to_string();
            assert!(failure.contains(&format!("at most {most} bytes")), "{failure}");
            assert!(!name.path.exists());
        }
    }
}
