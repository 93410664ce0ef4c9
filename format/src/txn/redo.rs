//! A redo log in a file beside the image: what a commit writes, before it writes it.
//!
//! For filesystems without a journal that could take the changes. The file holds every changed block; only when it is
//! whole and durable are the blocks written in place, and it is removed when they are durable in turn. Whoever opens the
//! image next looks for the file: a whole one is written in place again ([`RedoLog::finish`]), a torn one means that
//! nothing was written yet, and is removed.
//!
//! Layout, little-endian: a header of 64 bytes (magic, block size, count of blocks, size of the store, UUID of the
//! filesystem, checksum), the numbers of the blocks (8 bytes each), the blocks, and the CRC-32C over all that.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Overlay;
use super::commit::write_in_order;
use crate::bytes::{le32, le64, put_le32, put_le64, span};
use crate::disk::crc::crc32c;
use crate::disk::superblock::{PRIMARY_OFFSET, SIZE, Superblock};
use crate::error::{Error, Place, Result};
use crate::ids::BlockNumber;
use crate::num::{index, index64, wide};
use crate::store::{Store, refuse_write};
use crate::txn::Transaction;

const MAGIC: &[u8; 8] = b"e4kredo1";
const HEADER: usize = 64;
const UUID_AT: usize = 32;
const CHECKSUM_AT: usize = 60;

/// A redo log that was found whole, of a commit that was interrupted.
#[derive(Debug)]
pub struct RedoLog {
    path: PathBuf,
    block_size: u32,
    store_size: u64,
    uuid: [u8; 16],
    blocks: Vec<u64>,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    Error::io(Place::File(path.display().to_string()))
}

/// Commits the changes of an overlay with a redo log at a path where no file is. The overlay is without changes
/// afterwards; how many blocks they were.
pub fn commit_with_redo_log(overlay: &mut Overlay, path: &Path) -> Result<usize> {
    let order = overlay.seal()?;
    if order.is_empty() {
        return Ok(0);
    }
    let flushed = |overlay: &Overlay| {
        let length = overlay.store().size();
        overlay.store().flush().map_err(Error::io(Place::Bytes { offset: 0, length }))
    };
    // File data that was written through is durable before anything can point to it.
    flushed(overlay)?;
    write_log(overlay, &order, path)?;
    write_in_order(overlay, order.iter().copied())?;
    flushed(overlay)?;
    remove(path)?;
    overlay.discard();
    Ok(order.len())
}

fn write_log(overlay: &Overlay, order: &[BlockNumber], path: &Path) -> Result<()> {
    // The folder for the logs of devices may not be there yet; where it cannot be made, opening the file says so.
    let _ = path.parent().map(std::fs::create_dir_all);
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed(path))?;
    let mut out = Summed { out: BufWriter::new(&file), register: u32::MAX };
    let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(failed(path));
    write(&header(overlay, order.len())?)?;
    for at in order {
        write(&at.0.to_le_bytes())?;
    }
    for at in order {
        if let Some(change) = overlay.change(*at)? {
            write(&change.after)?;
        }
    }
    let register = out.register;
    out.out.write_all(&register.to_le_bytes()).and_then(|()| out.out.flush()).map_err(failed(path))?;
    drop(out);
    file.sync_all().map_err(failed(path))?;
    sync_folder(path)
}

fn header(overlay: &Overlay, count: usize) -> Result<[u8; HEADER]> {
    let mut header = [0; HEADER];
    // A superblock that cannot be read has no UUID; its log is told by the size of the store alone.
    let uuid = store_uuid(overlay.store().as_ref()).unwrap_or_default();
    let filled = header.get_mut(..MAGIC.len()).map(|magic| magic.copy_from_slice(MAGIC)).and_then(|()| {
        put_le32(&mut header, 8, overlay.layout().geometry.block_size())?;
        put_le64(&mut header, 16, wide(count))?;
        put_le64(&mut header, 24, overlay.store().size())?;
        header.get_mut(UUID_AT..UUID_AT.saturating_add(16))?.copy_from_slice(&uuid);
        let checksum = crc32c(u32::MAX, header.get(..CHECKSUM_AT)?);
        put_le32(&mut header, CHECKSUM_AT, checksum)
    });
    filled.map(|()| header).ok_or_else(|| Error::Invalid("a redo log's header holds its fields".to_owned()))
}

/// The UUID of the filesystem on a store.
fn store_uuid(store: &dyn Store) -> Result<[u8; 16]> {
    let mut bytes = [0; SIZE];
    store.read_at(PRIMARY_OFFSET, &mut bytes).map_err(Error::io(Place::Superblock))?;
    Superblock::parse(&bytes)
        .map(|superblock| superblock.s_uuid)
        .map_err(|defect| defect.at(Place::Superblock))
}

/// A writer that keeps the checksum of what went through it.
struct Summed<'a> {
    out: BufWriter<&'a File>,
    register: u32,
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.register = crc32c(self.register, bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn sync_folder(path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))
}

fn remove(path: &Path) -> Result<()> {
    std::fs::remove_file(path).map_err(failed(path))?;
    sync_folder(path)
}

impl RedoLog {
    /// The redo log at a path: `None` if there is none, or a torn one, which is removed.
    pub fn find(path: &Path) -> Result<Option<Self>> {
        let found = Self::look(path)?;
        if found.is_none() && path.symlink_metadata().is_ok() {
            remove(path)?;
        }
        Ok(found)
    }

    /// The same for whoever writes nothing: a torn one stays where it is.
    pub fn look(path: &Path) -> Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(path)(error)),
        };
        let length = file.metadata().map_err(failed(path))?.len();
        Self::read(path, BufReader::new(file), length).map_err(failed(path))
    }

    /// Reads the log through and checks it; `None` if it is not whole.
    fn read(path: &Path, mut from: impl Read, length: u64) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER];
        if length < wide(HEADER) {
            return Ok(None);
        }
        from.read_exact(&mut header)?;
        let Some(mut log) = Self::parse_header(path, &header, length) else { return Ok(None) };
        let mut register = crc32c(u32::MAX, &header);
        let count = log.blocks.len();
        let mut number = [0; 8];
        for slot in &mut log.blocks {
            from.read_exact(&mut number)?;
            register = crc32c(register, &number);
            *slot = u64::from_le_bytes(number);
        }
        let mut block = vec![0; index(log.block_size)];
        for _ in 0..count {
            from.read_exact(&mut block)?;
            register = crc32c(register, &block);
        }
        let mut stored = [0; 4];
        from.read_exact(&mut stored)?;
        Ok((u32::from_le_bytes(stored) == register).then_some(log))
    }

    /// What a header says, if it is sound and the file has just the length that it calls for.
    fn parse_header(path: &Path, header: &[u8], length: u64) -> Option<Self> {
        let sound = span(header, 0, MAGIC.len())? == MAGIC
            && le32(header, CHECKSUM_AT)? == crc32c(u32::MAX, header.get(..CHECKSUM_AT)?);
        let (block_size, count) = (le32(header, 8)?, le64(header, 16)?);
        let each = u64::from(block_size).checked_add(8)?;
        let wanted = count.checked_mul(each)?.checked_add(wide(HEADER))?.checked_add(4)?;
        if !sound || wanted != length || !(1024..=65_536).contains(&block_size) {
            return None;
        }
        let uuid = span(header, UUID_AT, 16)?.try_into().ok()?;
        let blocks = vec![0; index64(count)];
        Some(Self { path: path.to_owned(), block_size, store_size: le64(header, 24)?, uuid, blocks })
    }

    /// How many blocks the log holds.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Refuses a store that is not the one that the log was written for.
    fn check_store(&self, store: &dyn Store) -> Result<()> {
        // The superblock may be torn by the interruption, so that only its UUID is looked at, if it can be read. It is
        // the old one or, where a repair restores it, already the log's.
        let is_other = |found: [u8; 16]| {
            let known = self.uuid != [0; 16];
            match self.new_uuid() {
                Some(new) => found != new && (!known || found != self.uuid),
                None => known && found != self.uuid,
            }
        };
        if store.size() != self.store_size || store_uuid(store).is_ok_and(is_other) {
            let path = self.path.display();
            return Err(Error::Invalid(format!("{path} is the redo log of another filesystem")));
        }
        Ok(())
    }

    /// The UUID that the filesystem has when the log is written in place, if the log holds the superblock.
    fn new_uuid(&self) -> Option<[u8; 16]> {
        let bits = self.block_size.trailing_zeros();
        let place = self.blocks.iter().position(|block| *block == PRIMARY_OFFSET >> bits)?;
        let file = File::open(&self.path).ok()?;
        let mut bytes = [0; SIZE];
        let inside = PRIMARY_OFFSET & u64::from(self.block_size).saturating_sub(1);
        file.read_exact_at(&mut bytes, self.contents_at(place).saturating_add(inside)).ok()?;
        Superblock::parse(&bytes).ok().map(|superblock| superblock.s_uuid)
    }

    /// Where in the file the contents of the block lie that has this place in the log.
    fn contents_at(&self, place: usize) -> u64 {
        let numbers = wide(self.blocks.len()).saturating_mul(8);
        let before = wide(place).saturating_mul(self.block_size.into());
        wide(HEADER).saturating_add(numbers).saturating_add(before)
    }

    /// The store as it will be when the log is written in place. Nothing is written, and nothing can be.
    pub fn through(self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
        self.check_store(store.as_ref())?;
        let file = File::open(&self.path).map_err(failed(&self.path))?;
        let places =
            self.blocks.iter().enumerate().map(|(place, block)| (*block, self.contents_at(place))).collect();
        Ok(Arc::new(Finished { store, file, places, bits: self.block_size.trailing_zeros() }))
    }

    /// Writes the blocks in place and removes the log. Refuses a store that is not the one that the log was written
    /// for.
    pub fn finish(self, store: &dyn Store) -> Result<()> {
        self.check_store(store)?;
        let bits = self.block_size.trailing_zeros();
        let mut file = BufReader::new(File::open(&self.path).map_err(failed(&self.path))?);
        let skipped = wide(HEADER).saturating_add(wide(self.blocks.len()).saturating_mul(8));
        io::copy(&mut file.by_ref().take(skipped), &mut io::sink()).map_err(failed(&self.path))?;
        let mut block = vec![0; index(self.block_size)];
        for number in &self.blocks {
            file.read_exact(&mut block).map_err(failed(&self.path))?;
            let place = Place::Block(BlockNumber(*number));
            let offset = number.checked_shl(bits).unwrap_or(u64::MAX);
            store.write_at(offset, &block).map_err(Error::io(place))?;
        }
        let length = store.size();
        store.flush().map_err(Error::io(Place::Bytes { offset: 0, length }))?;
        remove(&self.path)
    }
}

/// A store seen through a redo log: the blocks that the log holds, and behind them the store.
struct Finished {
    store: Arc<dyn Store>,
    file: File,
    /// Where in the file each block of the log lies.
    places: BTreeMap<u64, u64>,
    bits: u32,
}

impl Store for Finished {
    fn size(&self) -> u64 {
        self.store.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.store.read_at(offset, buffer)?;
        let end = offset.saturating_add(wide(buffer.len()));
        let blocks = offset >> self.bits..=end >> self.bits;
        for (block, place) in self.places.range(blocks) {
            let start = block << self.bits;
            let from = start.max(offset);
            let to = start.saturating_add(1 << self.bits).min(end);
            let inside = index64(from.saturating_sub(offset))..index64(to.saturating_sub(offset));
            if let Some(piece) = buffer.get_mut(inside) {
                self.file.read_exact_at(piece, place.saturating_add(from.saturating_sub(start)))?;
            }
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(refuse_write())
    }

    fn zero_range(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(refuse_write())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        true
    }
}
