//! The superblock to check by: the primary where anything speaks for it, since only it is current; else a copy.

use ext4kit_format::disk::features::{Incompat, RoCompat};
use ext4kit_format::disk::superblock::{Superblock, state};
use ext4kit_format::error::{Error, Result};
use ext4kit_format::image::{SuperblockChoice, check_readable, read_superblock};
use ext4kit_format::layout::Layout;
use ext4kit_format::store::Store;
use ext4kit_format::{BlockNumber, Place};

use super::copies::{self, Copy};
use super::mend::mend;
use crate::check::Options;
use crate::finding::SuperblockProblem as Problem;

/// A superblock that can be worked with.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The superblock, fields out of range put right.
    pub superblock: Superblock,
    /// The shape that it describes.
    pub layout: Layout,
    /// The copy that was taken.
    pub copy: Option<BlockNumber>,
    /// What was wrong with the primary.
    pub problems: Vec<Problem>,
}

/// In how many bytes a damaged primary may differ from a copy and still be believed about what only it knows.
const NEAR: usize = 16;

/// Finds the superblock to check by. Copies are looked for where the primary cannot be used, unless one was asked for.
pub fn choose(store: &dyn Store, options: &Options) -> Result<Choice> {
    if let Some(block) = options.superblock {
        return named(store, block, options.block_size);
    }
    let primary = read_superblock(store, SuperblockChoice::Primary);
    let error = match &primary {
        Ok(primary) => match judge(store, primary) {
            Ok(layout) if !is_suspect(store, primary, &layout) => {
                return Ok(as_it_is(store, primary, layout));
            }
            Ok(layout) => return Ok(second_opinion(store, primary, layout, options)),
            Err(error) => error,
        },
        Err(Error::NotFilesystem(why)) => Error::NotFilesystem(why.clone()),
        Err(_) => return primary.and_then(|_| Err(copies::unusable(None))),
    };
    let primary = primary.ok();
    if let Some(primary) = &primary
        && let Some(choice) = corrected(store, primary)
    {
        return Ok(choice);
    }
    let found = if options.backups { copies::find(store, primary.as_ref()) } else { Vec::new() };
    let best = copies::vote(&found, primary.as_ref()).first().copied();
    // What is sound but unknown is not to be worked around.
    let unknown = matches!(error, Error::Unsupported(_) | Error::NotFilesystem(_));
    if unknown && primary.as_ref().is_some_and(|primary| features_are_believable(primary, best)) {
        return Err(error);
    }
    let mendable = primary.as_ref().and_then(|primary| mended(store, primary, best, options));
    if let Some(choice) = mendable {
        return Ok(choice);
    }
    match best {
        Some(copy) => Ok(from_copy(copy, primary.as_ref(), error.to_string())),
        None => Err(error),
    }
}

/// Whether features that cannot be handled are those of a filesystem or journal to come, and not garbage.
fn features_are_believable(primary: &Superblock, best: Option<&Copy>) -> bool {
    let features = primary.features();
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        return primary.verify_checksum().is_ok();
    }
    if best.is_some_and(|copy| copy.superblock.s_uuid == primary.s_uuid) {
        return false;
    }
    // A journal has this one and no other.
    if features.incompat.contains(Incompat::JOURNAL_DEV) {
        features.incompat == Incompat::JOURNAL_DEV
    } else {
        !has_garbage_features(primary)
    }
}

/// Whether there are so many unknown features that they are none: nobody invents three at once.
fn has_garbage_features(superblock: &Superblock) -> bool {
    superblock.features().iter().filter(|feature| feature.name().is_none()).count() >= 3
}

/// The copy that was asked for.
fn named(store: &dyn Store, block: BlockNumber, block_size: Option<u32>) -> Result<Choice> {
    let sizes: Vec<u32> = match block_size {
        Some(size) => vec![size],
        None => (10..=16).map(|bits| 1u32 << bits).collect(),
    };
    let mut first = None;
    for block_size in sizes {
        let read = read_superblock(store, SuperblockChoice::Copy { block, block_size });
        match read.and_then(|superblock| Ok((judge(store, &superblock)?, superblock))) {
            Ok((layout, superblock)) => {
                return Ok(Choice { superblock, layout, copy: Some(block), problems: Vec::new() });
            }
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| copies::unusable(Some(block))))
}

/// The layout of a superblock whose checksum is right and whose numbers are possible.
fn judge(store: &dyn Store, superblock: &Superblock) -> Result<Layout> {
    match superblock.verify_checksum() {
        Ok(()) => copies::layout_of(store, superblock),
        Err(defect) => {
            // A journal has no such checksum. What it is comes before what is wrong with it.
            if let Err(error @ Error::NotFilesystem(_)) = check_readable(superblock.features()) {
                return Err(error);
            }
            Err(defect.at(Place::Superblock))
        }
    }
}

/// Whether numbers that are possible, and that no checksum vouches for, contradict each other or the device; or whether
/// there is a checksum although the feature is off, or features that cannot be.
fn is_suspect(store: &dyn Store, superblock: &Superblock, layout: &Layout) -> bool {
    let geometry = &layout.geometry;
    let vouched = superblock.features().ro_compat.contains(RoCompat::METADATA_CSUM);
    let contradicts = superblock.s_inodes_count.get() != geometry.inodes_count()
        || geometry.blocks_count() > store.size() >> geometry.block_bits()
        || superblock.s_checksum.get() != 0
        || has_garbage_features(superblock);
    !vouched && contradicts
}

/// A suspect primary against its copies: where they agree on another shape, and that contradicts nothing, it is theirs.
fn second_opinion(store: &dyn Store, primary: &Superblock, layout: Layout, options: &Options) -> Choice {
    let mut with_checksum = primary.clone();
    let mut features = primary.features();
    features.ro_compat.insert(RoCompat::METADATA_CSUM);
    with_checksum.set_features(features);
    if let Ok(layout) = judge(store, &with_checksum) {
        // The bit that is wrong is that of the feature.
        return with_one_bit(store, &with_checksum, layout);
    }
    let found = if options.backups { copies::find(store, Some(primary)) } else { Vec::new() };
    let party = copies::vote(&found, Some(primary));
    let better = party.first().copied().filter(|copy| {
        // Whoever turns the checksums off does so in the copies as well.
        let vouched = copy.superblock.features().ro_compat.contains(RoCompat::METADATA_CSUM);
        let same_shape = copies::same_shape(&copy.superblock, primary);
        let related = same_shape || copy.superblock.s_uuid == primary.s_uuid;
        (has_garbage_features(primary) || (related && (vouched || !same_shape)))
            && !is_suspect(store, &copy.superblock, &copy.layout)
    });
    match better {
        Some(copy) => {
            let why = "its numbers contradict each other and those of its copies";
            from_copy(copy, Some(primary), why.to_owned())
        }
        None => as_it_is(store, primary, layout),
    }
}

/// The primary, with what is out of range without being in the way put right.
fn as_it_is(store: &dyn Store, primary: &Superblock, layout: Layout) -> Choice {
    let mended = mend(primary, None);
    // The revision decides how the rest is read.
    let layout = copies::layout_of(store, &mended.superblock).unwrap_or(layout);
    Choice { superblock: mended.superblock, layout, copy: None, problems: mended.problems }
}

/// The primary with one bit put right, where the checksum proves which.
fn corrected(store: &dyn Store, primary: &Superblock) -> Option<Choice> {
    if primary.verify_checksum().is_ok() {
        return None;
    }
    let superblock = copies::correct_one_bit(primary)?;
    let layout = judge(store, &superblock).ok()?;
    Some(with_one_bit(store, &superblock, layout))
}

/// A superblock in which one bit was put right.
fn with_one_bit(store: &dyn Store, superblock: &Superblock, layout: Layout) -> Choice {
    let mut choice = as_it_is(store, superblock, layout);
    choice.problems.insert(0, Problem::OneBitWrong {});
    choice
}

/// The primary with fields put right, if what is left agrees with the copies; without copies, if it is possible.
fn mended(store: &dyn Store, primary: &Superblock, best: Option<&Copy>, options: &Options) -> Option<Choice> {
    let mended = mend(primary, best.map(|copy| &copy.superblock));
    let layout = copies::layout_of(store, &mended.superblock).ok()?;
    let mut problems = mended.problems;
    let checksum = primary.verify_checksum();
    match best {
        Some(copy) if checksum.is_ok() => {
            copies::same_shape(&copy.superblock, &mended.superblock).then_some(())?;
        }
        // Without a right checksum, all that does not change in use has to agree.
        Some(copy) => (copies::difference(&mended.superblock, &copy.superblock) == 0).then_some(())?,
        None if checksum.is_err() => {
            // Nothing else is there; a preen leaves it to a person.
            options.backups.then_some(())?;
            (problems.is_empty() && !is_suspect(store, primary, &layout)).then_some(())?;
        }
        None => {}
    }
    if let Err(defect) = checksum {
        problems.push(Problem::ChecksumWrong { defect });
    }
    Some(Choice { superblock: mended.superblock, layout, copy: None, problems })
}

/// A copy, with what only the primary knows where that is near enough to be believed.
fn from_copy(copy: &Copy, primary: Option<&Superblock>, why: String) -> Choice {
    let mut superblock = copy.superblock.clone();
    let near = primary.filter(|primary| {
        primary.s_uuid == superblock.s_uuid && copies::difference(primary, &superblock) <= NEAR
    });
    if let Some(primary) = near {
        copies::carry_over(primary, &mut superblock);
    } else {
        // A copy says of its filesystem that it is clean, as it was when it was made.
        superblock.s_state.set(superblock.s_state.get() & !state::VALID);
    }
    superblock.s_block_group_nr.set(0);
    superblock.refresh_checksum();
    let problems = vec![Problem::CopyUsed { block: copy.block, why }];
    Choice { superblock, layout: copy.layout.clone(), copy: Some(copy.block), problems }
}

#[cfg(test)]
mod tests {
    use ext4kit_format::store::MemoryStore;
    use ext4kit_testkit::damage::Damage;
    use ext4kit_testkit::filesystem;
    use zerocopy::IntoBytes;

    use super::*;

    fn primary(store: &dyn Store) -> Superblock {
        read_superblock(store, SuperblockChoice::Primary).unwrap()
    }

    /// Writes a superblock as it is, its checksum included.
    fn put(store: &MemoryStore, superblock: &Superblock) {
        store.write_at(1024, superblock.as_bytes()).unwrap();
    }

    fn choice(store: &MemoryStore) -> Choice {
        choose(store, &Options::default()).unwrap()
    }

    fn codes(choice: &Choice) -> Vec<u16> {
        choice.problems.iter().map(|problem| problem.verdict().code).collect()
    }

    #[test]
    fn a_wrong_checksum_alone_costs_nothing_that_is_newer_than_the_copies() {
        let store = filesystem::ext4(81920, 1024);
        let store = Damage::to(&store).superblock(|to| to.s_mnt_count.set(3)).finish();
        let mut damaged = primary(&store);
        damaged.s_checksum.set(damaged.s_checksum.get() ^ 0x0101_0101);
        put(&store, &damaged);
        let chosen = choice(&store);
        assert_eq!((chosen.copy, chosen.superblock.s_mnt_count.get()), (None, 3));
        assert_eq!(codes(&chosen), [125]);
    }

    #[test]
    fn a_single_group_with_a_wrong_checksum_is_checked_by_what_it_has() {
        let store = filesystem::ext4(4096, 1024);
        let mut damaged = primary(&store);
        damaged.s_checksum.set(!damaged.s_checksum.get());
        put(&store, &damaged);
        assert_eq!(codes(&choice(&store)), [125]);
        let preen = Options { backups: false, ..Options::default() };
        assert!(choose(&store, &preen).is_err());
    }

    #[test]
    fn one_wrong_bit_is_put_right_even_in_the_geometry() {
        let store = filesystem::ext4(4096, 1024);
        let sound = primary(&store);
        let mut damaged = sound.clone();
        damaged.s_inodes_per_group.set(damaged.s_inodes_per_group.get() ^ 0x100);
        put(&store, &damaged);
        let chosen = choice(&store);
        assert_eq!((codes(&chosen), chosen.superblock), (vec![126], sound));
    }

    #[test]
    fn damage_to_the_geometry_takes_a_copy_and_keeps_what_is_newer() {
        let store = filesystem::ext4(81920, 1024);
        let mut damaged = primary(&store);
        damaged.s_mnt_count.set(5);
        damaged.s_blocks_per_group.set(0x1234_5678);
        put(&store, &damaged);
        let chosen = choice(&store);
        assert_eq!((chosen.copy, chosen.superblock.s_mnt_count.get()), (Some(BlockNumber(8193)), 5));
        assert_eq!(codes(&chosen), [101]);
        // What is nothing like the copies is not believed about anything.
        store.write_at(1024, &[0xa5; 56]).unwrap();
        let chosen = choice(&store);
        assert_eq!(chosen.superblock.s_state.get() & state::VALID, 0);
    }

    #[test]
    fn fields_out_of_range_are_mended_one_by_one() {
        let store = filesystem::ext4(81920, 1024);
        let changed = Damage::to(&store).superblock(|to| to.s_reserved_gdt_blocks.set(999)).finish();
        let chosen = choice(&changed);
        assert_eq!((chosen.copy, codes(&chosen)), (None, vec![104]));
        assert_eq!(chosen.superblock.s_reserved_gdt_blocks, primary(&store).s_reserved_gdt_blocks);
    }

    #[test]
    fn numbers_that_no_checksum_vouches_for_are_compared_with_the_copies() {
        let (store, mut overlay) =
            filesystem::filesystem(&filesystem::parameters(81920, 1024, "^metadata_csum"));
        filesystem::commit_clean(&store, &mut overlay);
        let halved = |to: &mut Superblock| to.s_inodes_per_group.set(to.s_inodes_per_group.get() / 2);
        let mut damaged = primary(store.as_ref());
        halved(&mut damaged);
        put(&store, &damaged);
        assert_eq!(choice(&store).copy, Some(BlockNumber(8193)));
        // The count alone is no reason to leave the primary.
        let mut damaged = primary(store.as_ref());
        damaged.s_inodes_per_group.set(damaged.s_inodes_per_group.get() * 2);
        damaged.s_inodes_count.set(4000);
        put(&store, &damaged);
        assert_eq!((choice(&store).copy, codes(&choice(&store))), (None, vec![]));
    }

    /// From the field: six changed bytes made the size so large that reads at negative offsets followed.
    #[test]
    fn an_enormous_size_is_refused_or_taken_from_a_copy() {
        for (blocks, copy) in [(4096u64, false), (81920, true)] {
            let store = filesystem::ext4(blocks, 1024);
            let mut damaged = primary(&store);
            let mut features = damaged.features();
            features.ro_compat.remove(RoCompat::METADATA_CSUM);
            damaged.set_features(features);
            damaged.s_blocks_count_hi.set(0x0100);
            put(&store, &damaged);
            assert_eq!(choose(&store, &Options::default()).is_ok(), copy);
        }
    }
}
