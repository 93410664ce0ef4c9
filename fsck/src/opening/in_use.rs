//! Whether somebody else has the filesystem in use, as its protection block tells.

use std::time::Duration;

use ext4kit_format::BlockNumber;
use ext4kit_format::disk::features::Incompat;
use ext4kit_format::disk::mmp::{MmpBlock, MmpState};
use ext4kit_format::disk::superblock::Superblock;
use ext4kit_format::error::{Error, Result};

use crate::source::Source;

/// Refuses a filesystem that another host may have in use.
///
/// A running check and a sequence that no known version writes are refused at once. The sequence of a mount may be
/// left over from a crash: with `wait`, which is given how long, the block is read a second time, and refused if it
/// changed. Without, as for a check that writes nothing, such a sequence is let pass, as e2fsck does with `-n`.
///
/// Reads the store and not the overlay: only the store shows what the other host writes.
pub fn refuse(source: &Source, superblock: &Superblock, wait: Option<&dyn Fn(Duration)>) -> Result<()> {
    let block = BlockNumber(superblock.s_mmp_block.get());
    if !superblock.features().incompat.contains(Incompat::MMP) || !source.layout().geometry.contains(block) {
        return Ok(());
    }
    // What cannot be read or is no such block is told by the check.
    let Some((state, seconds)) = look(source, block, superblock) else { return Ok(()) };
    match state {
        MmpState::Clean => Ok(()),
        MmpState::Fsck => Err(Error::InUse("its protection block says that a check is running".to_owned())),
        MmpState::Unknown(sequence) => {
            Err(Error::InUse(format!("its protection block has the unknown sequence {sequence:#x}")))
        }
        MmpState::Mounted(before) => {
            let Some(wait) = wait else { return Ok(()) };
            wait(Duration::from_secs(seconds));
            match look(source, block, superblock) {
                Some((MmpState::Mounted(now), _)) if now == before => Ok(()),
                _ => Err(Error::InUse("its protection block changes: it is mounted elsewhere".to_owned())),
            }
        }
    }
}

/// What the block says now, and how long to wait for the next look, in seconds.
fn look(source: &Source, block: BlockNumber, superblock: &Superblock) -> Option<(MmpState, u64)> {
    let geometry = &source.layout().geometry;
    let mut bytes = vec![0; geometry.block_length()];
    source.store().read_at(geometry.byte_offset(block)?, &mut bytes).ok()?;
    let mmp = MmpBlock::parse(&bytes).ok()?;
    Some((mmp.state(), mmp.wait_seconds(superblock.s_mmp_update_interval.get())))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use ext4kit_format::image::Image;
    use ext4kit_format::store::{MemoryStore, Store};
    use ext4kit_format::txn::BlockKind;
    use ext4kit_format::{BlockNumber, disk::mmp};
    use ext4kit_testkit::damage::Damage;
    use ext4kit_testkit::filesystem::{commit_clean, filesystem, parameters};

    use super::*;

    fn with_sequence(sequence: u32) -> (Arc<MemoryStore>, Source, Superblock) {
        let (store, mut overlay) = filesystem(&parameters(8192, 1024, "mmp"));
        commit_clean(&store, &mut overlay);
        let opened = Image::open(Arc::clone(&store) as Arc<dyn Store>).unwrap();
        let block = BlockNumber(opened.superblock().s_mmp_block.get());
        let damaged = Damage::to(&store).block(block, BlockKind::Mmp, |bytes| {
            MmpBlock::parse_mut(bytes).unwrap().mmp_seq.set(sequence);
        });
        let store = Arc::new(damaged.finish());
        let source = Source::new(Arc::clone(&store) as Arc<dyn Store>, opened.layout().clone());
        (store, source, opened.superblock().clone())
    }

    #[test]
    fn a_sequence_that_stays_is_left_over_from_a_crash() {
        let (_, source, superblock) = with_sequence(77);
        let waited = Cell::new(Duration::ZERO);
        refuse(&source, &superblock, Some(&|time| waited.set(time))).unwrap();
        assert!(waited.get() >= Duration::from_secs(11), "{waited:?}");
        refuse(&source, &superblock, None).unwrap();
    }

    #[test]
    fn a_sequence_that_changes_is_another_host() {
        let (store, source, superblock) = with_sequence(77);
        let at = superblock.s_mmp_block.get() * 1024 + 4;
        let mount = |_| store.write_at(at, &78u32.to_le_bytes()).unwrap();
        assert!(matches!(refuse(&source, &superblock, Some(&mount)), Err(Error::InUse(_))));
    }

    #[test]
    fn a_running_check_and_the_unknown_are_refused_at_once() {
        let never = |_| panic!("nothing to wait for");
        for sequence in [mmp::SEQUENCE_FSCK, mmp::SEQUENCE_FSCK + 1] {
            let (_, source, superblock) = with_sequence(sequence);
            assert!(matches!(refuse(&source, &superblock, Some(&never)), Err(Error::InUse(_))));
            assert!(matches!(refuse(&source, &superblock, None), Err(Error::InUse(_))));
        }
        let (_, source, superblock) = with_sequence(mmp::SEQUENCE_CLEAN);
        refuse(&source, &superblock, Some(&never)).unwrap();
    }
}
