//! Writing an undo file.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use zerocopy::{FromZeros, IntoBytes};

use super::{
    Contents, FIRST_KEYS, MOST_BLOCKS, SUPER_BLOCK, belongs, corrupt, is_full, place, read_contents,
    superblock_of,
};
use crate::disk::undo::{
    COMPAT_FS_OFFSET, MAGIC, STATE_FINISHED, UndoHeader, UndoKey, data_checksum, superblock, write_keys,
};
use crate::error::{Defect, Error, Result};
use crate::ids::BlockNumber;
use crate::num::{index, low32, wide};
use crate::store::Store;
use crate::txn::Overlay;

/// An undo file that is being written.
pub struct UndoFile {
    file: File,
    header: UndoHeader,
    /// Where the current block of keys lies, in blocks of the undo file.
    keys_at: u64,
    keys: Vec<UndoKey>,
    /// The next free block of the undo file.
    next: u64,
    /// What the file holds: start and end of each piece of the filesystem, in bytes.
    recorded: BTreeMap<u64, u64>,
    /// Size of the filesystem's blocks in bytes.
    block_size: u32,
    run: Run,
}

/// Consecutive blocks that will share a key.
#[derive(Default)]
struct Run {
    offset: u64,
    bytes: Vec<u8>,
}

impl UndoFile {
    /// Begins an undo file for a filesystem with blocks of this size in bytes, which begins `offset` bytes into its
    /// device. The file must be empty, and open for reading and writing.
    pub fn create(file: File, block_size: u32, offset: u64) -> Result<Self> {
        let mut header = UndoHeader::new_zeroed();
        header.magic = MAGIC;
        header.super_offset.set(SUPER_BLOCK);
        header.key_offset.set(FIRST_KEYS);
        header.block_size.set(block_size);
        header.fs_block_size.set(block_size);
        if offset > 0 {
            header.f_compat.set(COMPAT_FS_OFFSET);
            header.fs_offset.set(offset);
        }
        header.refresh_checksum();
        UndoHeader::parse(header.as_bytes()).map_err(corrupt)?;
        Ok(Self {
            file,
            header,
            keys_at: FIRST_KEYS,
            keys: Vec::new(),
            next: FIRST_KEYS.saturating_add(1),
            recorded: BTreeMap::new(),
            block_size,
            run: Run::default(),
        })
    }

    /// Goes on with an undo file of the same filesystem, as its last writer left it. What it holds already is not
    /// recorded again, so that undoing leads back to where the file began.
    ///
    /// A file that is not whole, or whose filesystem was changed since, is [`Error::Corrupt`] or [`Error::Invalid`].
    pub fn append(file: File, store: &dyn Store, block_size: u32, offset: u64) -> Result<Self> {
        let contents = read_contents(&file)?;
        let header = &contents.header;
        if header.state.get() & STATE_FINISHED == 0 {
            return Err(Error::Invalid("the undo file is of a run that did not end".to_owned()));
        }
        if !belongs(&file, header, store)? {
            return Err(Error::Invalid(
                "the undo file does not belong to this filesystem as it is now".to_owned(),
            ));
        }
        let has_offset = header.f_compat.get() & COMPAT_FS_OFFSET != 0;
        if offset != if has_offset { header.fs_offset.get() } else { 0 } {
            return Err(Error::Invalid("the undo file has another offset".to_owned()));
        }
        if !block_size.is_multiple_of(header.fs_block_size.get()) {
            return Err(Error::Invalid("the undo file has larger blocks than the filesystem".to_owned()));
        }
        Ok(Self::resume(file, contents, block_size))
    }

    fn resume(file: File, contents: Contents, block_size: u32) -> Self {
        let Contents { header, entries, last_keys: (mut keys_at, mut keys), mut end } = contents;
        if entries.is_empty() {
            keys_at = header.key_offset.get();
            end = keys_at.saturating_add(1);
        } else if is_full(keys.len(), header.block_size.get()) {
            keys_at = end;
            keys.clear();
            end = end.saturating_add(1);
        }
        let recorded = entries
            .iter()
            .map(|entry| (entry.offset, entry.offset.saturating_add(entry.length.into())))
            .collect();
        Self { file, header, keys_at, keys, next: end, recorded, block_size, run: Run::default() }
    }

    /// Records what a block holds before it is changed, unless the file has it.
    pub fn record(&mut self, at: BlockNumber, before: &[u8]) -> Result<()> {
        let offset = at.0.saturating_mul(self.block_size.into());
        let end = offset.saturating_add(wide(before.len()));
        let mut from = offset;
        // What is recorded may cover a part of the block, where blocks of the file are smaller.
        while from < end {
            let covered = self.recorded.range(..=from).next_back().filter(|(_, end)| **end > from);
            if let Some((_, covered)) = covered {
                from = (*covered).min(end);
                continue;
            }
            let next = self.recorded.range(from..).next().map_or(end, |(start, _)| (*start).min(end));
            let piece = usize::try_from(from.saturating_sub(offset))
                .ok()
                .zip(usize::try_from(next.saturating_sub(offset)).ok());
            let bytes = piece.and_then(|(start, end)| before.get(start..end)).unwrap_or_default();
            self.add(from, bytes)?;
            self.recorded.insert(from, next);
            from = next;
        }
        Ok(())
    }

    /// Records every block that an overlay changed and that is named, as [`Overlay::seal`] names them.
    pub fn record_changes(&mut self, overlay: &Overlay, blocks: &[BlockNumber]) -> Result<()> {
        blocks.iter().try_for_each(|at| self.record(*at, &overlay.before(*at)?))
    }

    /// Adds bytes to the run of blocks that end where they begin, or begins another.
    fn add(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = self.run.offset.saturating_add(wide(self.run.bytes.len()));
        let unit = u64::from(self.header.fs_block_size.get());
        let full =
            wide(self.run.bytes.len()).saturating_add(wide(bytes.len())) > MOST_BLOCKS.saturating_mul(unit);
        if end != offset || full {
            self.write_run()?;
            self.run.offset = offset;
        }
        self.run.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn write_run(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.run.bytes);
        if bytes.is_empty() {
            return Ok(());
        }
        let block_size = self.header.block_size.get();
        if is_full(self.keys.len(), block_size) {
            self.write_keys()?;
            self.keys_at = self.next;
            self.keys.clear();
            self.next = self.next.saturating_add(1);
        }
        let unit = u64::from(self.header.fs_block_size.get());
        let block = self.run.offset.checked_div(unit).unwrap_or(0);
        self.keys.push(UndoKey {
            fsblk: block.into(),
            blk_crc: data_checksum(&bytes).into(),
            size: low32(wide(bytes.len())).into(),
        });
        self.write_at(self.next, &bytes)?;
        self.next = self.next.saturating_add(wide(bytes.len()).div_ceil(block_size.into()));
        self.header.num_keys.set(self.header.num_keys.get().saturating_add(1));
        Ok(())
    }

    fn write_keys(&self) -> Result<()> {
        let mut block = vec![0; index(self.header.block_size.get())];
        write_keys(&mut block, &self.keys).map_err(corrupt)?;
        self.write_at(self.keys_at, &block)
    }

    fn write_at(&self, block: u64, bytes: &[u8]) -> Result<()> {
        let at = block.saturating_mul(self.header.block_size.get().into());
        self.file.write_all_at(bytes, at).map_err(Error::io(place()))
    }

    /// Makes everything recorded so far durable. To be called before the first change of the filesystem.
    pub fn sync(&mut self, store: &dyn Store) -> Result<()> {
        self.write_all(store, 0)
    }

    /// Ends the file after the last change of the filesystem, which has to be on its device.
    pub fn finish(mut self, store: &dyn Store) -> Result<()> {
        self.write_all(store, STATE_FINISHED)
    }

    fn write_all(&mut self, store: &dyn Store, state: u32) -> Result<()> {
        self.write_run()?;
        self.write_keys()?;
        let (bytes, checksum) = superblock_of(store)?;
        // Inverting the magic twice gives it back.
        let mut copy = superblock(&bytes).map_err(corrupt)?;
        copy.resize(copy.len().max(index(self.header.block_size.get())), 0);
        self.write_at(self.header.super_offset.get(), &copy)?;
        // The last piece of data may be short; readers take whole blocks.
        let length = self.next.saturating_mul(self.header.block_size.get().into());
        let held = self.file.metadata().map_err(Error::io(place()))?.len();
        if held < length {
            self.file.set_len(length).map_err(Error::io(place()))?;
        }
        // The header counts only what is on the device before it.
        self.file.sync_data().map_err(Error::io(place()))?;
        self.header.sb_crc.set(checksum);
        self.header.state.set(state);
        self.header.refresh_checksum();
        let mut head = vec![0; index(self.header.block_size.get())];
        self.header
            .write_to_prefix(&mut head)
            .map_err(|_| corrupt(Defect::Truncated { what: "undo file" }))?;
        self.write_at(0, &head)?;
        self.file.sync_data().map_err(Error::io(place()))
    }
}
