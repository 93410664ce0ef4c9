//! From a device to its journal.

use std::ffi::OsStr;
use std::sync::Arc;

use ext4kit_cli::device;
use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_format::disk::features::{Compat, Features};
use ext4kit_format::image::{Image, OpenOptions};
use ext4kit_format::journal::{Journal, LogBlocks, open_internal};
use ext4kit_format::store::{Access, Store};

/// A filesystem and its journal.
pub struct Opened {
    /// The filesystem.
    pub image: Image,
    /// Its journal.
    pub journal: Journal,
    /// What to warn of: a journal that was found only by the superblock's copy of its map.
    pub warning: Option<String>,
}

/// Opens the filesystem on a store, and its journal there or on a device of its own. `None` if it has no journal.
pub fn open(
    name: &str,
    store: Arc<dyn Store>,
    external: Option<&OsStr>,
    access: Access,
) -> Result<Option<Opened>, Failure> {
    let failed = |error: &ext4kit_format::Error| Failure::from_error(name, error);
    // A recovery that was cut may have torn the superblock; the log proves its copy good.
    let lenient = OpenOptions { verify: false, ..OpenOptions::default() };
    let image = Image::open_with(store, lenient).map_err(|error| failed(&error))?;
    if !has_journal(image.layout().features()) {
        return match external {
            None => Ok(None),
            Some(_) => Err(Failure::new(FailureKind::Invalid, name, "the filesystem has no journal")),
        };
    }
    if let Some(external) = external {
        return open_external(image, external, access).map(Some);
    }
    if image.superblock().journal_inode().is_none() {
        let failure = Failure::new(FailureKind::Invalid, name, "its journal lies on another device");
        return Err(failure.with_hint("name it with -j"));
    }
    let found = open_internal(&image).map_err(|error| failed(&error))?;
    let warning = found.inode_damage.map(|error| format!("{error}; its map was taken from the superblock"));
    Ok(Some(Opened { image, journal: found.journal, warning }))
}

fn has_journal(features: Features) -> bool {
    features.compat.contains(Compat::HAS_JOURNAL)
}

fn open_external(image: Image, external: &OsStr, access: Access) -> Result<Opened, Failure> {
    let device = device::open(external, access, false)?;
    let name = device.name.typed.clone();
    let failed = |error: &ext4kit_format::Error| Failure::from_error(&name, error);
    let block_size = image.layout().geometry.block_size();
    let blocks = LogBlocks::external(device.store, block_size).map_err(|error| failed(&error))?;
    let journal = Journal::open(blocks).map_err(|error| failed(&error))?;
    if !journal.serves(&image.superblock().s_uuid) {
        return Err(Failure::new(
            FailureKind::Invalid,
            name,
            "external journal does not support this filesystem",
        ));
    }
    Ok(Opened { image, journal, warning: None })
}
