//! Filesystems of any size for benchmarks, made without files to copy from.
//!
//! A [`Tree`] says how many directories, files and extents there are. Contents of files are never written: a check does
//! not read them, so an image of millions of files stays a sparse file that holds metadata only.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use ext4kit_format::create::{Identity, InodeCount, Parameters, Plan, create_filesystem, write_backups};
use ext4kit_format::disk::features::{Feature, Features};
use ext4kit_format::populate::{Entry, Kind, Metadata, PopulateOptions, Source, populate};
use ext4kit_format::store::{Access, Store, create_sparse_file, open};
use ext4kit_format::txn::{DataPolicy, OverlayOptions, commit_new};

const FEATURES: &str = "has_journal ext_attr resize_inode dir_index filetype extent 64bit flex_bg sparse_super \
                        large_file huge_file dir_nlink extra_isize metadata_csum large_dir";
const BLOCK: u64 = 4096;
/// What files hold. A write of nothing else is contents, and dropped.
const CONTENTS: u8 = 0x5a;

/// Directories in the root, with files in each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tree {
    /// How many directories.
    pub directories: u64,
    /// How many files in each.
    pub files: u64,
    /// How many extents of one block in each file, a hole after each.
    pub extents: u64,
    /// How many in the very first file, if that has more.
    pub extents_of_first: u64,
    /// Bytes of the value of an attribute that each file has, different in each; 0 for no attribute.
    pub value_bytes: usize,
}

impl Tree {
    /// Makes a filesystem that holds the tree, with a little room to spare.
    pub fn make(self, path: &Path) -> Result<()> {
        let files = self.directories * self.files;
        let inodes = (files + self.directories + 16).max(1024) * 21 / 20;
        let inodes = if self.value_bytes > 0 { inodes * 2 } else { inodes };
        let contents = files * self.extents * 102 / 100 + self.extents_of_first;
        let values = files * (self.value_bytes as u64).div_ceil(BLOCK);
        let blocks = contents + values + inodes / 16 + files / 40 + self.directories * 2;
        let blocks = (blocks * 11 / 10 + 40_000).max(100_000);
        let mut features = Features::default();
        let values = (self.value_bytes > 0).then_some("ea_inode");
        for name in FEATURES.split_whitespace().chain(values) {
            features.set(Feature::from_name(name).context("an unknown feature")?, true);
        }
        let parameters = Parameters {
            inodes: InodeCount::AtLeast(u32::try_from(inodes)?),
            identity: Identity { uuid: [0x11; 16], hash_seed: [0x22; 16], ..Identity::default() },
            time: 1_700_000_000,
            target_is_zero: true,
            ..Parameters::new(blocks, 4096, features)
        };
        let plan = Plan::new(&parameters)?;
        create_sparse_file(path, blocks * BLOCK)?;
        let store = Arc::new(WithoutContents(open(path, Access::ReadWrite, false)?));
        let options = OverlayOptions { data: DataPolicy::WriteThrough, ..OverlayOptions::default() };
        let mut overlay = create_filesystem(store, &plan, &parameters, options)?;
        populate(&mut overlay, &mut Walk { tree: self, next: 0 }, &PopulateOptions::default())?;
        write_backups(&mut overlay)?;
        commit_new(&mut overlay)?;
        Ok(())
    }

    fn entry(self, number: u64) -> Option<Entry> {
        let per_directory = self.files + 1;
        let mut attributes = Vec::new();
        let (path, kind, permissions) = match number.checked_sub(1) {
            None => (String::new(), Kind::Directory, 0o755),
            Some(number) => {
                let (directory, file) = (number / per_directory, number % per_directory);
                if directory >= self.directories {
                    return None;
                }
                match file.checked_sub(1) {
                    None => (format!("d{directory:06}"), Kind::Directory, 0o755),
                    Some(file) => {
                        if self.value_bytes > 0 {
                            let value = format!("{number:0width$}", width = self.value_bytes);
                            attributes.push((b"user.value".to_vec(), value.into_bytes()));
                        }
                        let size = (self.extents_of(number) * 2).saturating_sub(1) * BLOCK;
                        (format!("d{directory:06}/file-{file:08}"), Kind::Regular(size), 0o644)
                    }
                }
            }
        };
        let metadata = Metadata { permissions, ..Metadata::default() };
        Some(Entry { path: path.into_bytes(), kind, metadata, attributes, identity: None })
    }

    /// How many extents the file of this number has; the first is 1, behind its directory.
    fn extents_of(self, number: u64) -> u64 {
        if number == 1 { self.extents.max(self.extents_of_first) } else { self.extents }
    }
}

struct Walk {
    tree: Tree,
    next: u64,
}

impl Source for Walk {
    fn next_entry(&mut self) -> ext4kit_format::Result<Option<Entry>> {
        let entry = self.tree.entry(self.next);
        self.next += 1;
        Ok(entry)
    }

    fn next_data(&mut self, offset: u64) -> ext4kit_format::Result<Option<Range<u64>>> {
        let extent = offset.div_ceil(2 * BLOCK);
        let start = extent * 2 * BLOCK;
        // The entry that was told last is that of the number before the next, and the root has none.
        let number = self.next.saturating_sub(2);
        Ok((extent < self.tree.extents_of(number)).then_some(start..start + BLOCK))
    }

    fn read(&mut self, _offset: u64, buffer: &mut [u8]) -> ext4kit_format::Result<()> {
        buffer.fill(CONTENTS);
        Ok(())
    }
}

/// A store that drops contents of files.
struct WithoutContents(Arc<dyn Store>);

impl Store for WithoutContents {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        if bytes.iter().all(|byte| *byte == CONTENTS) { Ok(()) } else { self.0.write_at(offset, bytes) }
    }

    fn zero_range(&self, offset: u64, length: u64) -> std::io::Result<()> {
        self.0.zero_range(offset, length)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.0.flush()
    }
}
