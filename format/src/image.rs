//! An opened filesystem: a store, its superblock, and the layout that follows from it.

use std::sync::Arc;

use crate::disk::features::{Compat, Feature, Features, Incompat, RoCompat};
use crate::disk::superblock::{self, Superblock, state};
use crate::error::{Defect, Error, Place, Result};
use crate::ids::BlockNumber;
use crate::layout::Layout;
use crate::store::Store;
use crate::txn::{Overlay, OverlayOptions};

/// The features of `s_feature_incompat` that ext4kit reads.
pub const KNOWN_INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGE_DIR)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);

/// The features of `s_feature_ro_compat` with which ext4kit writes.
pub const WRITABLE_RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::QUOTA)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::READONLY)
    .union(RoCompat::PROJECT)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT);

/// Which superblock to open a filesystem by, and how strictly.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Where to take the superblock from.
    pub superblock: SuperblockChoice,
    /// Whether the superblock's checksum has to be right.
    pub verify: bool,
    /// Whether the store may be shorter than the filesystem.
    pub allow_short: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { superblock: SuperblockChoice::Primary, verify: true, allow_short: false }
    }
}

/// Which copy of the superblock to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockChoice {
    /// The one at byte 1024.
    Primary,
    /// The copy in a block, given the block size in bytes.
    Copy {
        /// Where the copy lies.
        block: BlockNumber,
        /// Size of a block in bytes.
        block_size: u32,
    },
}

/// A filesystem whose superblock was read and found usable.
#[derive(Clone)]
pub struct Image {
    store: Arc<dyn Store>,
    superblock: Superblock,
    layout: Layout,
}

impl Image {
    /// Opens the filesystem on a store by its primary superblock.
    pub fn open(store: Arc<dyn Store>) -> Result<Self> {
        Self::open_with(store, OpenOptions::default())
    }

    /// Opens the filesystem on a store.
    ///
    /// Fails with [`Error::NotFilesystem`] where there is no superblock, [`Error::Unsupported`] for features that
    /// cannot be read, and [`Error::Corrupt`] where the superblock contradicts itself or the store.
    pub fn open_with(store: Arc<dyn Store>, options: OpenOptions) -> Result<Self> {
        let superblock = read_superblock(store.as_ref(), options.superblock)?;
        let place = match options.superblock {
            SuperblockChoice::Primary => Place::Superblock,
            SuperblockChoice::Copy { block, .. } => Place::SuperblockCopy(block),
        };
        check_readable(superblock.features())?;
        if options.verify {
            superblock.verify_checksum().map_err(|defect| defect.at(place.clone()))?;
        }
        let layout = Layout::new(&superblock)?;
        let blocks = layout.geometry.blocks_count();
        let held = store.size() >> layout.geometry.block_bits();
        if blocks > held && !options.allow_short {
            return Err(Defect::Contradiction(format!(
                "the filesystem has {blocks} blocks, but the device or file holds only {held}"
            ))
            .at(place));
        }
        Ok(Self { store, superblock, layout })
    }

    /// The store that the filesystem lies on.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The superblock as it was when the image was opened.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The shape of the filesystem.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether the journal has to be replayed before the filesystem can be taken as it is.
    pub fn needs_recovery(&self) -> bool {
        let features = self.superblock.features();
        features.incompat.contains(Incompat::RECOVER) && features.compat.contains(Compat::HAS_JOURNAL)
    }

    /// Whether the filesystem says of itself that it was unmounted cleanly and met no error.
    pub fn says_clean(&self) -> bool {
        self.superblock.s_state.get() & (state::VALID | state::ERROR) == state::VALID
    }

    /// A transaction over the filesystem whose changes stay in memory until they are committed.
    pub fn overlay(&self, options: OverlayOptions) -> Overlay {
        Overlay::new(Arc::clone(&self.store), self.layout.clone(), options)
    }
}

/// Reads a superblock and checks only that it is one.
pub fn read_superblock(store: &dyn Store, choice: SuperblockChoice) -> Result<Superblock> {
    let offset = match choice {
        SuperblockChoice::Primary => Some(superblock::PRIMARY_OFFSET),
        SuperblockChoice::Copy { block, block_size } => block.0.checked_mul(block_size.into()),
    };
    let not_filesystem = |why: String| Error::NotFilesystem(why);
    let offset =
        offset.ok_or_else(|| not_filesystem("the superblock would lie beyond any device".to_owned()))?;
    let mut bytes = [0; superblock::SIZE];
    let end = offset.saturating_add(crate::num::wide(bytes.len()));
    if end > store.size() {
        let size = store.size();
        return Err(not_filesystem(format!("{size} bytes are too few for a superblock at byte {offset}")));
    }
    store.read_at(offset, &mut bytes).map_err(Error::io(Place::Superblock))?;
    Superblock::parse(&bytes).map_err(|defect| not_filesystem(format!("at byte {offset}, {defect}")))
}

/// Refuses, by name, features that make a filesystem unreadable.
pub fn check_readable(features: Features) -> Result<()> {
    if features.incompat.contains(Incompat::JOURNAL_DEV) {
        return Err(Error::NotFilesystem("it is an external journal".to_owned()));
    }
    refuse(features, |feature| matches!(feature, Feature::Incompat(bit) if !KNOWN_INCOMPAT.contains(bit)))
}

/// Refuses, by name, features that make a filesystem unwritable.
pub fn check_writable(features: Features) -> Result<()> {
    refuse(features, |feature| matches!(feature, Feature::RoCompat(bit) if !WRITABLE_RO_COMPAT.contains(bit)))
}

/// Refuses, by name, features with which a filesystem can be used but not repaired.
pub fn check_repairable(features: Features) -> Result<()> {
    refuse(features, |feature| {
        let unknown =
            matches!(feature, Feature::Compat(_) | Feature::RoCompat(_)) && feature.name().is_none();
        // Named, but never finished anywhere.
        unknown || matches!(feature.name(), Some("replica" | "snapshot"))
    })
}

fn refuse(features: Features, refused: impl Fn(Feature) -> bool) -> Result<()> {
    let names: Vec<String> =
        features.iter().filter(|feature| refused(*feature)).map(|feature| feature.to_string()).collect();
    match names.as_slice() {
        [] => Ok(()),
        [name] => Err(Error::Unsupported(format!("feature {name}"))),
        names => Err(Error::Unsupported(format!("features {}", names.join(", ")))),
    }
}
