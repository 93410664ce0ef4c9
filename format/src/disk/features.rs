//! The three feature words of a superblock, and their names.
//!
//! Bits that ext4kit does not know are kept as they are: a set read from an image writes back the same word.
//! The rules for unknown bits differ by word: an unknown `incompat` bit means that the filesystem cannot be read
//! safely, an unknown `ro_compat` bit that it cannot be written, and an unknown `compat` bit that it can be used but
//! not repaired.

use std::fmt;

use bitflags::bitflags;

bitflags! {
    /// `s_feature_compat`: a driver that does not know a bit may still read and write.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Compat: u32 {
        /// Directories are created with blocks ahead.
        const DIR_PREALLOC = 0x1;
        /// Inodes of AFS servers.
        const IMAGIC_INODES = 0x2;
        /// A journal exists.
        const HAS_JOURNAL = 0x4;
        /// Extended attributes may exist.
        const EXT_ATTR = 0x8;
        /// Inode 7 reserves blocks for group descriptors to come.
        const RESIZE_INODE = 0x10;
        /// Directories may have hash trees.
        const DIR_INDEX = 0x20;
        /// Groups may be uninitialised (an early form of `uninit_bg`).
        const LAZY_BG = 0x40;
        /// Snapshots, out of tree.
        const EXCLUDE_BITMAP = 0x100;
        /// Only two backups of the superblock, in the groups of `s_backup_bgs`.
        const SPARSE_SUPER2 = 0x200;
        /// The journal may end in an area of fast commits.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and the UUID never change, for encryption that depends on them.
        const STABLE_INODES = 0x800;
        /// An orphan file exists.
        const ORPHAN_FILE = 0x1000;
    }

    /// `s_feature_incompat`: a driver that does not know a bit must leave the filesystem alone.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Incompat: u32 {
        /// Compression; never in mainline.
        const COMPRESSION = 0x1;
        /// Directory entries carry the file's type.
        const FILETYPE = 0x2;
        /// The journal has to be replayed.
        const RECOVER = 0x4;
        /// This is an external journal, not a filesystem.
        const JOURNAL_DEV = 0x8;
        /// Group descriptors are spread over meta groups.
        const META_BG = 0x10;
        /// Inodes may map their blocks by extents.
        const EXTENTS = 0x40;
        /// Block numbers have more than 32 bits; descriptors have `s_desc_size` bytes.
        const BIT64 = 0x80;
        /// Multi-mount protection.
        const MMP = 0x100;
        /// Bitmaps and inode tables of several groups lie together.
        const FLEX_BG = 0x200;
        /// Values of extended attributes may have inodes of their own.
        const EA_INODE = 0x400;
        /// Data in directory entries (Lustre).
        const DIRDATA = 0x1000;
        /// The checksum seed is stored, not derived from the UUID.
        const CSUM_SEED = 0x2000;
        /// Directories above 2 GiB, hash trees of three levels.
        const LARGE_DIR = 0x4000;
        /// Small files and directories may lie inside their inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted inodes may exist.
        const ENCRYPT = 0x1_0000;
        /// Directories may compare names without regard to case.
        const CASEFOLD = 0x2_0000;
    }

    /// `s_feature_ro_compat`: a driver that does not know a bit may read but not write.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RoCompat: u32 {
        /// Backups of the superblock only in groups 0, 1 and powers of 3, 5 and 7.
        const SPARSE_SUPER = 0x1;
        /// Files above 2 GiB exist or may.
        const LARGE_FILE = 0x2;
        /// Directories as B-trees; never in mainline.
        const BTREE_DIR = 0x4;
        /// `i_blocks` may count filesystem blocks.
        const HUGE_FILE = 0x8;
        /// Descriptors carry a CRC-16; groups may be uninitialised (`uninit_bg`).
        const GDT_CSUM = 0x10;
        /// A directory with more than 64,998 subdirectories stores a link count of 1.
        const DIR_NLINK = 0x20;
        /// Inodes have at least `s_min_extra_isize` extra bytes.
        const EXTRA_ISIZE = 0x40;
        /// A snapshot exists, out of tree.
        const HAS_SNAPSHOT = 0x80;
        /// Quota files are hidden inodes named in the superblock.
        const QUOTA = 0x100;
        /// Bitmaps count clusters of several blocks.
        const BIGALLOC = 0x200;
        /// All metadata carries CRC-32C.
        const METADATA_CSUM = 0x400;
        /// Replicas, out of tree.
        const REPLICA = 0x800;
        /// The filesystem is meant to be read only.
        const READONLY = 0x1000;
        /// Inodes carry project ids, with quota.
        const PROJECT = 0x2000;
        /// Files may share blocks (Android); not writable.
        const SHARED_BLOCKS = 0x4000;
        /// Files protected by fs-verity may exist.
        const VERITY = 0x8000;
        /// The orphan file may hold entries.
        const ORPHAN_PRESENT = 0x1_0000;
    }
}

/// The three words together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// `s_feature_compat`.
    pub compat: Compat,
    /// `s_feature_incompat`.
    pub incompat: Incompat,
    /// `s_feature_ro_compat`.
    pub ro_compat: RoCompat,
}

/// One feature: its word and its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// A bit of `s_feature_compat`.
    Compat(Compat),
    /// A bit of `s_feature_incompat`.
    Incompat(Incompat),
    /// A bit of `s_feature_ro_compat`.
    RoCompat(RoCompat),
}

/// Every feature with the name that e2fsprogs gives it, in the order in which it lists them. The first name of a
/// bit is the one that is printed; later ones are understood too.
pub const NAMES: &[(&str, Feature)] = &[
    ("dir_prealloc", Feature::Compat(Compat::DIR_PREALLOC)),
    ("imagic_inodes", Feature::Compat(Compat::IMAGIC_INODES)),
    ("has_journal", Feature::Compat(Compat::HAS_JOURNAL)),
    ("ext_attr", Feature::Compat(Compat::EXT_ATTR)),
    ("resize_inode", Feature::Compat(Compat::RESIZE_INODE)),
    ("dir_index", Feature::Compat(Compat::DIR_INDEX)),
    ("lazy_bg", Feature::Compat(Compat::LAZY_BG)),
    ("snapshot_bitmap", Feature::Compat(Compat::EXCLUDE_BITMAP)),
    ("sparse_super2", Feature::Compat(Compat::SPARSE_SUPER2)),
    ("fast_commit", Feature::Compat(Compat::FAST_COMMIT)),
    ("stable_inodes", Feature::Compat(Compat::STABLE_INODES)),
    ("orphan_file", Feature::Compat(Compat::ORPHAN_FILE)),
    ("compression", Feature::Incompat(Incompat::COMPRESSION)),
    ("filetype", Feature::Incompat(Incompat::FILETYPE)),
    ("needs_recovery", Feature::Incompat(Incompat::RECOVER)),
    ("journal_dev", Feature::Incompat(Incompat::JOURNAL_DEV)),
    ("meta_bg", Feature::Incompat(Incompat::META_BG)),
    ("extent", Feature::Incompat(Incompat::EXTENTS)),
    ("extents", Feature::Incompat(Incompat::EXTENTS)),
    ("64bit", Feature::Incompat(Incompat::BIT64)),
    ("mmp", Feature::Incompat(Incompat::MMP)),
    ("flex_bg", Feature::Incompat(Incompat::FLEX_BG)),
    ("ea_inode", Feature::Incompat(Incompat::EA_INODE)),
    ("dirdata", Feature::Incompat(Incompat::DIRDATA)),
    ("metadata_csum_seed", Feature::Incompat(Incompat::CSUM_SEED)),
    ("large_dir", Feature::Incompat(Incompat::LARGE_DIR)),
    ("inline_data", Feature::Incompat(Incompat::INLINE_DATA)),
    ("encrypt", Feature::Incompat(Incompat::ENCRYPT)),
    ("casefold", Feature::Incompat(Incompat::CASEFOLD)),
    ("sparse_super", Feature::RoCompat(RoCompat::SPARSE_SUPER)),
    ("large_file", Feature::RoCompat(RoCompat::LARGE_FILE)),
    ("btree_dir", Feature::RoCompat(RoCompat::BTREE_DIR)),
    ("huge_file", Feature::RoCompat(RoCompat::HUGE_FILE)),
    ("uninit_bg", Feature::RoCompat(RoCompat::GDT_CSUM)),
    ("uninit_groups", Feature::RoCompat(RoCompat::GDT_CSUM)),
    ("dir_nlink", Feature::RoCompat(RoCompat::DIR_NLINK)),
    ("extra_isize", Feature::RoCompat(RoCompat::EXTRA_ISIZE)),
    ("snapshot", Feature::RoCompat(RoCompat::HAS_SNAPSHOT)),
    ("quota", Feature::RoCompat(RoCompat::QUOTA)),
    ("bigalloc", Feature::RoCompat(RoCompat::BIGALLOC)),
    ("metadata_csum", Feature::RoCompat(RoCompat::METADATA_CSUM)),
    ("replica", Feature::RoCompat(RoCompat::REPLICA)),
    ("read-only", Feature::RoCompat(RoCompat::READONLY)),
    ("project", Feature::RoCompat(RoCompat::PROJECT)),
    ("shared_blocks", Feature::RoCompat(RoCompat::SHARED_BLOCKS)),
    ("verity", Feature::RoCompat(RoCompat::VERITY)),
    ("orphan_present", Feature::RoCompat(RoCompat::ORPHAN_PRESENT)),
];

impl Features {
    /// Whether a feature is on.
    pub fn has(self, feature: Feature) -> bool {
        match feature {
            Feature::Compat(bit) => self.compat.contains(bit),
            Feature::Incompat(bit) => self.incompat.contains(bit),
            Feature::RoCompat(bit) => self.ro_compat.contains(bit),
        }
    }

    /// Turns a feature on or off.
    pub fn set(&mut self, feature: Feature, on: bool) {
        match feature {
            Feature::Compat(bit) => self.compat.set(bit, on),
            Feature::Incompat(bit) => self.incompat.set(bit, on),
            Feature::RoCompat(bit) => self.ro_compat.set(bit, on),
        }
    }

    /// Each feature that is on, in the order of [`NAMES`], unknown bits of a word after its known ones.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        let words = [(0, self.compat.bits()), (1, self.incompat.bits()), (2, self.ro_compat.bits())];
        words.into_iter().flat_map(|(word, bits)| {
            (0..u32::BITS).map(move |bit| 1u32 << bit).filter(move |bit| bits & bit != 0).map(move |bit| {
                match word {
                    0 => Feature::Compat(Compat::from_bits_retain(bit)),
                    1 => Feature::Incompat(Incompat::from_bits_retain(bit)),
                    _ => Feature::RoCompat(RoCompat::from_bits_retain(bit)),
                }
            })
        })
    }

    /// The features that ext4kit has no name for.
    pub fn unknown(self) -> impl Iterator<Item = Feature> {
        self.iter().filter(|feature| feature.name().is_none())
    }
}

impl Feature {
    /// The feature's name; `None` for a bit that ext4kit does not know.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(_, feature)| *feature == self).map(|(name, _)| *name)
    }

    /// The feature of a name: one of [`NAMES`], or `FEATURE_C12` with the word's letter (C, I, R) and the bit.
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some((_, feature)) = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return Some(*feature);
        }
        let rest =
            name.get(..8).filter(|prefix| prefix.eq_ignore_ascii_case("FEATURE_")).and(name.get(8..))?;
        let bit = 1u32.checked_shl(rest.get(1..)?.parse().ok()?)?;
        match rest.get(..1)? {
            "C" | "c" => Some(Self::Compat(Compat::from_bits_retain(bit))),
            "I" | "i" => Some(Self::Incompat(Incompat::from_bits_retain(bit))),
            "R" | "r" => Some(Self::RoCompat(RoCompat::from_bits_retain(bit))),
            _ => None,
        }
    }
}

impl fmt::Display for Feature {
    /// The name, or `FEATURE_I20` and the like for a bit without one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.name() {
            return f.write_str(name);
        }
        let (letter, bits) = match self {
            Self::Compat(bits) => ('C', bits.bits()),
            Self::Incompat(bits) => ('I', bits.bits()),
            Self::RoCompat(bits) => ('R', bits.bits()),
        };
        write!(f, "FEATURE_{letter}{}", bits.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_survive_and_have_names() {
        let features = Features { incompat: Incompat::from_bits_retain(0x8000_0042), ..Features::default() };
        let names: Vec<String> = features.iter().map(|feature| feature.to_string()).collect();
        assert_eq!(names, ["filetype", "extent", "FEATURE_I31"]);
        assert_eq!(features.unknown().count(), 1);
        assert_eq!(Feature::from_name("FEATURE_I31"), features.unknown().next());
    }

    #[test]
    fn every_name_leads_back_to_its_bit() {
        for (name, feature) in NAMES {
            assert_eq!(Feature::from_name(name), Some(*feature));
            assert_eq!(Feature::from_name(feature.name().unwrap()), Some(*feature));
        }
        assert_eq!(Feature::from_name("FEATURE_X1"), None);
        assert_eq!(Feature::from_name("FEATURE_C32"), None);
        assert_eq!(Feature::from_name("FEATURE_"), None);
    }
}
