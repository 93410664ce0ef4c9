//! A superblock in which single fields are out of range: put right in memory, each with a finding that says how.
//!
//! What e2fsck repairs in place, or refuses although nothing is lost, is mended here. Fields from which everything else
//! follows (sizes of blocks, groups and inodes) are not guessed: a copy has to give them.

use ext4kit_format::Defect;
use ext4kit_format::disk::features::{Incompat, RoCompat};
use ext4kit_format::disk::superblock::{CHECKSUM_CRC32C, Superblock};

use crate::finding::SuperblockProblem as Problem;

/// A superblock that was put right, and what was wrong with it.
#[derive(Clone, Debug)]
pub struct Mended {
    /// The superblock to work with.
    pub superblock: Superblock,
    /// One problem for each field that was changed, the repair being the value that was taken.
    pub problems: Vec<Problem>,
}

/// The groups per flex group that mke2fs makes by default, as a power of two.
const USUAL_FLEX_BITS: u8 = 4;

/// Puts right what can be, with the values of a sound copy where there is one.
pub fn mend(stored: &Superblock, other: Option<&Superblock>) -> Mended {
    let mut mended = Mended { superblock: stored.clone(), problems: Vec::new() };
    mended.revision();
    mended.clusters();
    mended.first_data_block();
    mended.first_inode();
    mended.descriptor_size(other);
    mended.reserved_descriptors(other);
    mended.first_meta_group();
    mended.flex_groups(other);
    mended.checksum_type();
    mended
}

impl Mended {
    /// Checks a field's range; where the value lies outside, stores another one and tells.
    fn check(
        &mut self,
        field: (&'static str, u64, std::ops::RangeInclusive<u64>),
        value: u64,
        store: impl FnOnce(&mut Superblock),
    ) {
        let (name, stored, range) = field;
        if let Err(defect) = Defect::check_range(name, stored, *range.start(), *range.end()) {
            store(&mut self.superblock);
            self.problems.push(Problem::FieldOutOfRange { defect, field: name, value });
        }
    }

    /// There is no later revision than 1. One that a checksum vouches for would be of a filesystem to come. The first one
    /// had neither features nor fields for the size of inodes: where both are there, it is the revision that is wrong, and
    /// to believe it would be to misread every inode.
    fn revision(&mut self) {
        let superblock = &self.superblock;
        let features = superblock.features();
        let has_features =
            !(features.compat.is_empty() && features.incompat.is_empty() && features.ro_compat.is_empty());
        let size = superblock.s_inode_size.get();
        let has_fields = size.is_power_of_two() && u64::from(size) <= block_size(superblock) && size >= 128;
        if superblock.is_original_revision() && has_features && has_fields {
            self.superblock.s_rev_level.set(1);
            self.problems.push(Problem::FeaturesInOriginalRevision {});
        }
        if !features.ro_compat.contains(RoCompat::METADATA_CSUM) || self.superblock.verify_checksum().is_err()
        {
            let stored = self.superblock.s_rev_level.get();
            self.check(("s_rev_level", stored.into(), 0..=1), 1, |to| to.s_rev_level.set(1));
        }
    }

    /// Without bigalloc a cluster is a block, whatever the fields say.
    fn clusters(&mut self) {
        if self.superblock.features().ro_compat.contains(RoCompat::BIGALLOC) {
            return;
        }
        let wanted = self.superblock.s_log_block_size.get();
        let stored = self.superblock.s_log_cluster_size.get();
        self.check(
            ("s_log_cluster_size", stored.into(), wanted.into()..=wanted.into()),
            wanted.into(),
            |to| {
                to.s_log_cluster_size.set(wanted);
            },
        );
        let wanted = self.superblock.s_blocks_per_group.get();
        let stored = self.superblock.s_clusters_per_group.get();
        self.check(
            ("s_clusters_per_group", stored.into(), wanted.into()..=wanted.into()),
            wanted.into(),
            |to| {
                to.s_clusters_per_group.set(wanted);
            },
        );
    }

    /// The first block in a group follows from the block size.
    fn first_data_block(&mut self) {
        let bigalloc = self.superblock.features().ro_compat.contains(RoCompat::BIGALLOC);
        let wanted = u32::from(self.superblock.s_log_block_size.get() == 0 && !bigalloc);
        let stored = self.superblock.s_first_data_block.get();
        self.check(
            ("s_first_data_block", stored.into(), wanted.into()..=wanted.into()),
            wanted.into(),
            |to| {
                to.s_first_data_block.set(wanted);
            },
        );
    }

    /// Nothing ever made a filesystem with another first inode than 11, and a larger one would take names away.
    fn first_inode(&mut self) {
        if self.superblock.is_original_revision() {
            return;
        }
        let stored = self.superblock.s_first_ino.get();
        self.check(("s_first_ino", stored.into(), 11..=11), 11, |to| to.s_first_ino.set(11));
    }

    fn descriptor_size(&mut self, other: Option<&Superblock>) {
        if !self.superblock.features().incompat.contains(Incompat::BIT64) {
            return;
        }
        let sound = |size: u16| size.is_power_of_two() && (64..=1024).contains(&size);
        let stored = self.superblock.s_desc_size.get();
        if sound(stored) {
            return;
        }
        let value = other.map(|other| other.s_desc_size.get()).filter(|size| sound(*size)).unwrap_or(64);
        let defect =
            Defect::Contradiction(format!("s_desc_size is {stored}, no power of two from 64 to 1024"));
        self.superblock.s_desc_size.set(value);
        self.problems.push(Problem::FieldOutOfRange { defect, field: "s_desc_size", value: value.into() });
    }

    fn reserved_descriptors(&mut self, other: Option<&Superblock>) {
        let most = pointers(&self.superblock);
        let value = other.map_or(0, |other| other.s_reserved_gdt_blocks.get());
        let value = if u64::from(value) <= most { value } else { 0 };
        let stored = self.superblock.s_reserved_gdt_blocks.get();
        self.check(("s_reserved_gdt_blocks", stored.into(), 0..=most), value.into(), |to| {
            to.s_reserved_gdt_blocks.set(value);
        });
    }

    /// The descriptors then lie in one table at the front, and the feature stands for nothing.
    fn first_meta_group(&mut self) {
        let mut features = self.superblock.features();
        if !features.incompat.contains(Incompat::META_BG) {
            return;
        }
        let size = u64::from(self.superblock.descriptor_size().max(32));
        let per_block = (block_size(&self.superblock).checked_div(size)).unwrap_or(1).max(1);
        let most = u64::from(groups(&self.superblock)).div_ceil(per_block);
        let stored = self.superblock.s_first_meta_bg.get();
        if u64::from(stored) > most {
            features.incompat.remove(Incompat::META_BG);
            self.superblock.set_features(features);
            self.superblock.s_first_meta_bg.set(0);
            self.problems.push(Problem::FirstMetaGroupTooBig { stored, most });
        }
    }

    /// Only a hint where new tables should lie, so that any value in range does.
    fn flex_groups(&mut self, other: Option<&Superblock>) {
        if !self.superblock.features().incompat.contains(Incompat::FLEX_BG) {
            return;
        }
        let value = other.map_or(USUAL_FLEX_BITS, |other| other.s_log_groups_per_flex);
        let value = if value <= 31 { value } else { USUAL_FLEX_BITS };
        let stored = self.superblock.s_log_groups_per_flex;
        self.check(("s_log_groups_per_flex", stored.into(), 0..=31), value.into(), |to| {
            to.s_log_groups_per_flex = value;
        });
    }

    /// Another type than the one there is; that the checksum is right shows which it is.
    fn checksum_type(&mut self) {
        if !self.superblock.features().ro_compat.contains(RoCompat::METADATA_CSUM) {
            return;
        }
        let stored = self.superblock.s_checksum_type;
        let only = u64::from(CHECKSUM_CRC32C);
        self.check(("s_checksum_type", stored.into(), only..=only), only, |to| {
            to.s_checksum_type = CHECKSUM_CRC32C;
        });
    }
}

fn block_size(superblock: &Superblock) -> u64 {
    1024 << superblock.s_log_block_size.get().min(6)
}

/// Pointers to blocks that a block holds, which is also the most blocks that can be reserved for descriptors.
fn pointers(superblock: &Superblock) -> u64 {
    block_size(superblock) >> 2
}

/// The number of groups as the fields give it, 0 where they give none.
fn groups(superblock: &Superblock) -> u32 {
    let blocks = superblock.blocks_count().saturating_sub(superblock.s_first_data_block.get().into());
    let per_group = u64::from(superblock.s_blocks_per_group.get());
    let whole = blocks.checked_div(per_group).unwrap_or(0);
    let rest = u64::from(blocks.checked_rem(per_group).unwrap_or(0) > 0);
    u32::try_from(whole.saturating_add(rest)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use ext4kit_format::layout::Layout;
    use ext4kit_format::store::Store;
    use ext4kit_testkit::filesystem;

    use super::*;

    fn superblock() -> Superblock {
        let store = filesystem::ext4(32768, 1024);
        let mut bytes = [0; 1024];
        store.read_at(1024, &mut bytes).unwrap();
        Superblock::parse(&bytes).unwrap()
    }

    #[test]
    fn a_sound_superblock_is_left_alone() {
        let sound = superblock();
        let mended = mend(&sound, None);
        assert_eq!((mended.superblock, mended.problems), (sound, vec![]));
    }

    #[test]
    fn each_field_is_put_right_by_itself() {
        type Change = fn(&mut Superblock);
        let changes: [(&str, Change); 8] = [
            ("s_log_cluster_size", |to| to.s_log_cluster_size.set(3)),
            ("s_clusters_per_group", |to| to.s_clusters_per_group.set(3)),
            ("s_first_data_block", |to| to.s_first_data_block.set(0)),
            ("s_first_ino", |to| to.s_first_ino.set(0)),
            ("s_desc_size", |to| to.s_desc_size.set(129)),
            ("s_reserved_gdt_blocks", |to| to.s_reserved_gdt_blocks.set(257)),
            ("s_log_groups_per_flex", |to| to.s_log_groups_per_flex = 40),
            ("s_checksum_type", |to| to.s_checksum_type = 7),
        ];
        let sound = superblock();
        for (name, change) in changes {
            let mut damaged = sound.clone();
            change(&mut damaged);
            let mended = mend(&damaged, Some(&sound));
            assert_eq!(mended.superblock, sound, "{name}");
            assert!(
                matches!(&mended.problems[..], [Problem::FieldOutOfRange { field, .. }] if *field == name),
                "{name}: {:?}",
                mended.problems
            );
            assert!(Layout::new(&mend(&damaged, None).superblock).is_ok(), "{name} without a copy");
        }
    }

    #[test]
    fn a_first_meta_group_beyond_the_table_turns_the_feature_off() {
        let mut damaged = superblock();
        let mut features = damaged.features();
        features.incompat.insert(Incompat::META_BG);
        damaged.set_features(features);
        damaged.s_first_meta_bg.set(2);
        let mended = mend(&damaged, None);
        assert_eq!(mended.problems, [Problem::FirstMetaGroupTooBig { stored: 2, most: 1 }]);
        assert!(!mended.superblock.features().incompat.contains(Incompat::META_BG));
    }
}
