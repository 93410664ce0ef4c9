//! What stays the same while a filesystem is open: geometry, features, checksum seeds, directory hash.

use crate::disk::features::{Compat, Features, RoCompat};
use crate::disk::group_desc::DescriptorChecksum;
use crate::disk::inode::inode_seed;
use crate::disk::superblock::{Superblock, flags};
use crate::error::{Place, Result};
use crate::geometry::Geometry;
use crate::txn::Owner;

/// The shape of a filesystem. Made once from the superblock; a change of features makes a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where everything lies.
    pub geometry: Geometry,
    /// Seed of all metadata checksums; `None` without `metadata_csum`.
    pub checksum_seed: Option<u32>,
    /// How group descriptors are checksummed.
    pub descriptor_checksum: DescriptorChecksum,
    /// How new directories hash their names.
    pub directory_hash: DirectoryHash,
}

/// How names of directories are hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryHash {
    /// `s_def_hash_version`: 0 legacy, 1 half MD4, 2 TEA; stored without the variant of characters.
    pub version: u8,
    /// Whether characters count as unsigned, which adds 3 to a directory's stored version 0 to 2.
    pub unsigned: bool,
    /// `s_hash_seed`.
    pub seed: [u32; 4],
}

impl Layout {
    /// The shape that a superblock describes.
    pub fn new(superblock: &Superblock) -> Result<Self> {
        let geometry = Geometry::new(superblock).map_err(|defect| defect.at(Place::Superblock))?;
        let ro_compat = geometry.features().ro_compat;
        let seed = superblock.checksum_seed();
        let (checksum_seed, descriptor_checksum) = if ro_compat.contains(RoCompat::METADATA_CSUM) {
            (Some(seed), DescriptorChecksum::Crc32c(seed))
        } else if ro_compat.contains(RoCompat::GDT_CSUM) {
            (None, DescriptorChecksum::Crc16(superblock.s_uuid))
        } else {
            (None, DescriptorChecksum::None)
        };
        let directory_hash = DirectoryHash {
            version: superblock.s_def_hash_version,
            unsigned: superblock.s_flags.get() & flags::UNSIGNED_HASH != 0,
            seed: superblock.hash_seed(),
        };
        Ok(Self { geometry, checksum_seed, descriptor_checksum, directory_hash })
    }

    /// The filesystem's features.
    pub fn features(&self) -> Features {
        self.geometry.features()
    }

    /// Seed of the checksums of an inode's blocks; `None` without `metadata_csum`.
    pub fn inode_seed(&self, owner: Owner) -> Option<u32> {
        self.checksum_seed.map(|seed| inode_seed(seed, owner))
    }

    /// Whether groups may be uninitialised: descriptors carry a checksum that vouches for the flags.
    pub fn has_lazy_groups(&self) -> bool {
        self.descriptor_checksum != DescriptorChecksum::None
    }

    /// Whether directories may be given hash trees.
    pub fn has_directory_index(&self) -> bool {
        self.features().compat.contains(Compat::DIR_INDEX)
    }
}
