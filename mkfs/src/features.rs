//! Lists of features as `-O` takes them.

use ext4kit_cli::exit::Failure;
use ext4kit_format::disk::features::{Compat, Feature, Features, Incompat, RoCompat};

/// The features that a new filesystem may be given or denied, beside those that only tools set.
fn is_settable(feature: Feature) -> bool {
    match feature {
        Feature::Compat(bit) => (Compat::HAS_JOURNAL
            | Compat::RESIZE_INODE
            | Compat::DIR_INDEX
            | Compat::EXT_ATTR
            | Compat::SPARSE_SUPER2
            | Compat::FAST_COMMIT
            | Compat::STABLE_INODES
            | Compat::ORPHAN_FILE)
            .contains(bit),
        Feature::Incompat(bit) => (Incompat::FILETYPE
            | Incompat::EXTENTS
            | Incompat::JOURNAL_DEV
            | Incompat::META_BG
            | Incompat::FLEX_BG
            | Incompat::EA_INODE
            | Incompat::MMP
            | Incompat::BIT64
            | Incompat::INLINE_DATA
            | Incompat::ENCRYPT
            | Incompat::CASEFOLD
            | Incompat::CSUM_SEED
            | Incompat::LARGE_DIR)
            .contains(bit),
        Feature::RoCompat(bit) => (RoCompat::LARGE_FILE
            | RoCompat::HUGE_FILE
            | RoCompat::DIR_NLINK
            | RoCompat::EXTRA_ISIZE
            | RoCompat::SPARSE_SUPER
            | RoCompat::GDT_CSUM
            | RoCompat::BIGALLOC
            | RoCompat::QUOTA
            | RoCompat::METADATA_CSUM
            | RoCompat::PROJECT
            | RoCompat::VERITY)
            .contains(bit),
    }
}

/// Features as a list changed them, and which of them it named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edited {
    /// The features that are on.
    pub features: Features,
    /// The features that the list turned on by name.
    pub asked_for: Features,
}

impl Edited {
    /// Starts from a set that nobody asked for by name.
    pub fn from_defaults(features: Features) -> Self {
        Self { features, asked_for: Features::default() }
    }

    /// Applies a list: names separated by commas or blanks, `^name` to leave one out, `none` for none at all.
    pub fn apply(&mut self, list: &str) -> Result<(), Failure> {
        for word in list.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
            if word.eq_ignore_ascii_case("none") {
                *self = Self::default();
                continue;
            }
            let (name, on) = match word.strip_prefix('^') {
                Some(name) => (name, false),
                None => (word, true),
            };
            let known = Feature::from_name(name);
            let feature = match known {
                Some(feature) if is_settable(feature) => feature,
                // Leaving out what cannot be there anyway harms nobody; scripts do it for newer tools' features.
                _ if !on => continue,
                _ => return Err(Failure::usage("-O", format!("`{name}` is no feature that can be set"))),
            };
            self.features.set(feature, on);
            self.asked_for.set(feature, on);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_change_features_in_order() {
        let mut edited = Edited::default();
        edited.apply("extent,^resize_inode, 64bit").unwrap();
        assert_eq!(edited.features.incompat, Incompat::EXTENTS | Incompat::BIT64);
        edited.apply("none,filetype").unwrap();
        assert_eq!(edited.features.incompat, Incompat::FILETYPE);
        edited.apply("^a_feature_of_tomorrow").unwrap();
        assert!(edited.apply("a_feature_of_tomorrow").is_err());
        assert!(edited.apply("needs_recovery").is_err());
    }
}
