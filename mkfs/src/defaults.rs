//! What mke2fs 1.47 chooses where the user does not: by kind of filesystem, size and usage.

use ext4kit_cli::exit::Failure;
use ext4kit_format::disk::features::{Compat, Features, Incompat, RoCompat};

/// Kinds of filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No journal, block maps.
    Ext2,
    /// A journal, block maps.
    Ext3,
    /// A journal, extents and what came with them.
    Ext4,
}

impl Kind {
    /// The kind of a name such as `ext4`.
    pub fn from_name(name: &str) -> Result<Self, Failure> {
        match name {
            "ext2" => Ok(Self::Ext2),
            "ext3" => Ok(Self::Ext3),
            "ext4" => Ok(Self::Ext4),
            _ => Err(Failure::usage("-t", format!("`{name}` is none of ext2, ext3, ext4"))),
        }
    }

    /// The features of a filesystem of this kind.
    pub fn features(self) -> Features {
        let mut features = Features {
            compat: Compat::RESIZE_INODE | Compat::DIR_INDEX | Compat::EXT_ATTR,
            incompat: Incompat::FILETYPE,
            ro_compat: RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE,
        };
        if self != Self::Ext2 {
            features.compat |= Compat::HAS_JOURNAL;
        }
        if self == Self::Ext4 {
            features.compat |= Compat::ORPHAN_FILE;
            features.incompat |=
                Incompat::EXTENTS | Incompat::FLEX_BG | Incompat::BIT64 | Incompat::CSUM_SEED;
            features.ro_compat |=
                RoCompat::HUGE_FILE | RoCompat::DIR_NLINK | RoCompat::EXTRA_ISIZE | RoCompat::METADATA_CSUM;
        }
        features
    }
}

/// What a usage changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Block size in bytes.
    pub block_size: Option<u32>,
    /// Bytes for each inode.
    pub inode_ratio: Option<u32>,
}

/// The usage that a size in bytes stands for.
pub fn usage_of_size(bytes: u64) -> &'static str {
    const STEPS: [(u64, &str); 4] =
        [(3 << 20, "floppy"), (512 << 20, "small"), (4 << 40, "default"), (16 << 40, "big")];
    STEPS.iter().find(|(limit, _)| bytes < *limit).map_or("huge", |(_, name)| name)
}

/// What a usage of this name changes.
pub fn usage(name: &str) -> Result<Usage, Failure> {
    let usage = |block_size, inode_ratio| Ok(Usage { block_size, inode_ratio });
    match name {
        "default" => usage(None, None),
        "floppy" => usage(Some(1024), Some(8192)),
        "small" => usage(Some(1024), Some(4096)),
        "big" => usage(None, Some(32_768)),
        "huge" => usage(None, Some(65_536)),
        "news" => usage(None, Some(4096)),
        "largefile" => usage(None, Some(1 << 20)),
        "largefile4" => usage(None, Some(4 << 20)),
        _ => Err(Failure::usage("-T", format!("`{name}` is no usage that is known"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stand_for_usages() {
        for (bytes, name) in [
            (1 << 20, "floppy"),
            (3 << 20, "small"),
            (512 << 20, "default"),
            (4 << 40, "big"),
            (16 << 40, "huge"),
        ] {
            assert_eq!(usage_of_size(bytes), name);
            usage(name).unwrap();
        }
    }
}
