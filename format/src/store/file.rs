//! A regular file or block device through positioned reads and writes.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::{Store, check_read, check_write, refuse_write, rest, write_zeros};
use crate::num;

/// Ranges of a device are zeroed by the kernel in units of this; what sticks out is written. No smaller than the
/// sectors of any common device, and where a device has larger ones the range is written after all.
const DEVICE_UNIT: u64 = 4096;

/// An open file or block device. Its size is that of the moment when it was opened.
#[derive(Debug)]
pub struct FileStore {
    file: File,
    size: u64,
    read_only: bool,
    is_device: bool,
}

impl FileStore {
    /// Takes an open regular file or block device; anything else is refused. It locks and checks nothing:
    /// [`super::open`] does.
    pub fn new(mut file: File, read_only: bool) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        let is_device = kind.is_block_device();
        if !is_device && !kind.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, not_an_image(kind)));
        }
        // A device's metadata tell no size; its end can be sought, and so can a file's.
        let size = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, size, read_only, is_device })
    }

    /// Whether this is a block device.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    /// Makes a regular file larger, by a hole. A device or a smaller size is refused.
    pub fn grow(&mut self, size: u64) -> io::Result<()> {
        if self.read_only {
            return Err(refuse_write());
        }
        if self.is_device || size < self.size {
            let text = format!("cannot be resized from {} to {size} bytes", self.size);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.file.set_len(size)?;
        self.size = size;
        Ok(())
    }

    /// Lets the kernel zero a range; false if it can't.
    fn zero_by_kernel(&self, offset: u64, length: u64) -> io::Result<bool> {
        // A hole is best: it takes no room. Both kinds promise that the range reads as zero, on devices as well;
        // a plain discard would not.
        let modes = [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE];
        for mode in modes {
            match rustix::fs::fallocate(&self.file, mode | FallocateFlags::KEEP_SIZE, offset, length) {
                Ok(()) => return Ok(true),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV) => {}
                Err(Errno::INTR) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

/// The next data of a regular file, by the map of holes that its filesystem keeps.
///
/// This moves the file's own position, which nothing here uses.
pub(super) fn next_data(file: &File, size: u64, offset: u64) -> io::Result<Option<Range<u64>>> {
    let start = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(rest(offset, size)),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start))?;
    Ok(rest(start, end.min(size)))
}

/// What is wrong with something that is neither file nor block device.
pub(super) fn not_an_image(kind: std::fs::FileType) -> &'static str {
    if kind.is_dir() {
        "is a directory, not an image or block device"
    } else if kind.is_char_device() {
        "is a character device, not an image or block device"
    } else {
        "is neither a regular file nor a block device"
    }
}

impl Drop for FileStore {
    /// Gives the lock back at once: a child process that another thread is just starting may hold a copy of the
    /// descriptor for a moment longer.
    fn drop(&mut self) {
        // A lock that cannot be given back goes with the descriptor.
        let _ = self.file.unlock();
    }
}

impl Store for FileStore {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_read(self.size, offset, num::wide(buffer.len()))?;
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.read_only {
            return Err(refuse_write());
        }
        check_write(self.size, offset, num::wide(bytes.len()))?;
        self.file.write_all_at(bytes, offset)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.read_only {
            return Err(refuse_write());
        }
        check_write(self.size, offset, length)?;
        if length == 0 {
            return Ok(());
        }
        // On a device this gives the room back only where it reads as zero afterwards, which is more than was asked.
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, mode, offset, length) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn drop_cache(&self) -> io::Result<()> {
        // Only what is on the device already can be dropped.
        if !self.read_only {
            self.file.sync_all()?;
        }
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed).map_err(Into::into)
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.read_only {
            return Err(refuse_write());
        }
        check_write(self.size, offset, length)?;
        if length == 0 {
            return Ok(());
        }
        let unit = if self.is_device { DEVICE_UNIT } else { 1 };
        let end = offset.saturating_add(length);
        let first = offset.next_multiple_of(unit).min(end);
        let last = end.saturating_sub(end.checked_rem(unit).unwrap_or(0)).max(first);
        let write_at = |at, bytes: &[u8]| self.file.write_all_at(bytes, at);
        write_zeros(offset, first.saturating_sub(offset), write_at)?;
        let middle = last.saturating_sub(first);
        if middle > 0 && !self.zero_by_kernel(first, middle)? {
            write_zeros(first, middle, write_at)?;
        }
        write_zeros(last, end.saturating_sub(last), write_at)
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.file.sync_data()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        if self.is_device || offset >= self.size {
            return Ok(rest(offset, self.size));
        }
        next_data(&self.file, self.size, offset)
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::super::contract;
    use super::*;

    fn sparse(size: u64) -> FileStore {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        FileStore::new(file, false).unwrap()
    }

    #[test]
    fn keeps_the_contract() {
        contract::check(&sparse(contract::SIZE));
    }

    #[test]
    fn a_read_only_file_keeps_the_contract() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&contract::pattern(), 0).unwrap();
        contract::check_read_only(&FileStore::new(file, true).unwrap());
    }

    #[test]
    fn zeros_written_by_hand_are_those_of_the_kernel() {
        let store = sparse(300_000);
        store.write_at(0, &vec![1; 300_000]).unwrap();
        write_zeros(5, 200_000, |at, bytes| store.write_at(at, bytes)).unwrap();
        let mut bytes = vec![0; 300_000];
        store.read_at(0, &mut bytes).unwrap();
        assert!(bytes[5..200_005].iter().all(|byte| *byte == 0));
        assert!(bytes[..5].iter().chain(&bytes[200_005..]).all(|byte| *byte == 1));
    }

    #[test]
    fn a_zeroed_range_takes_no_room_where_files_have_holes() {
        let store = sparse(1 << 20);
        if !store.zero_by_kernel(0, 4096).unwrap() {
            eprintln!("SKIPPED: the temporary folder's filesystem has no holes");
            return;
        }
        store.write_at(0, &vec![1; 1 << 20]).unwrap();
        store.flush().unwrap();
        let full = store.file.metadata().unwrap().blocks();
        store.zero_range(0, 1 << 20).unwrap();
        store.flush().unwrap();
        assert!(store.file.metadata().unwrap().blocks() < full / 2);
    }

    #[test]
    fn a_file_grows_by_a_hole_and_never_shrinks() {
        let mut store = sparse(10);
        store.write_at(0, b"0123456789").unwrap();
        store.grow(20).unwrap();
        assert_eq!(store.size(), 20);
        let mut bytes = [9; 12];
        store.read_at(8, &mut bytes).unwrap();
        assert_eq!(bytes, *b"89\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(store.grow(19).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(store.size(), 20);
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = File::open(std::env::temp_dir()).unwrap();
        let error = FileStore::new(folder, true).unwrap_err();
        assert_eq!(error.to_string(), "is a directory, not an image or block device");
        let null = File::open("/dev/null").unwrap();
        assert!(FileStore::new(null, true).unwrap_err().to_string().contains("character device"));
    }
}
