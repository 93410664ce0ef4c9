//! Whether a check may be left out: what the superblock says of the filesystem, its mounts, and the time.

use ext4kit_cli::device::Device;
use ext4kit_format::disk::features::{Incompat, RoCompat};
use ext4kit_format::disk::superblock::{Superblock, state};
use ext4kit_format::image::{Image, OpenOptions};

/// A time this far in the future is a clock that was set by the hour of another country, in seconds.
const FUDGE: i64 = 86400;

/// The time as far as it can be trusted.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Seconds since 1970.
    pub now: i64,
    /// Whether it is known to be wrong at times, so that nothing follows from it.
    pub broken: bool,
}

/// The filesystem of a device whose size may not match.
pub fn open(device: &Device) -> ext4kit_format::Result<Image> {
    let options = OpenOptions { allow_short: true, ..OpenOptions::default() };
    Image::open_with(device.store.clone(), options)
}

/// Why the check may not be left out; `None` if it may.
pub fn reason_to_check(device: &Device, clock: Clock) -> Option<String> {
    let Ok(image) = open(device) else { return Some("has a superblock that cannot be used".to_owned()) };
    let superblock = image.superblock();
    let features = superblock.features();
    let stored = superblock.s_state.get();
    if features.incompat.contains(Incompat::RECOVER) {
        return Some("has a journal that waits".to_owned());
    }
    if stored & state::ERROR != 0 {
        return Some("contains a file system with errors".to_owned());
    }
    if stored & state::VALID == 0 || features.ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
        return Some("was not cleanly unmounted".to_owned());
    }
    due(superblock, clock)
}

/// Mounts and time since the last check. A last check in the future says nothing, and is put right by a new one; it
/// matters only where checks are wanted from time to time.
fn due(superblock: &Superblock, clock: Clock) -> Option<String> {
    let most = superblock.s_max_mnt_count.get();
    let mounts = superblock.s_mnt_count.get();
    if most > 0 && most < 0x8000 && mounts >= most {
        return Some(format!("has been mounted {mounts} times without being checked"));
    }
    let interval = i64::from(superblock.s_checkinterval.get());
    if interval == 0 || clock.broken {
        return None;
    }
    let last = i64::from(superblock.s_lastcheck.get()) | i64::from(superblock.s_lastcheck_hi) << 32;
    let passed = clock.now.saturating_sub(last);
    if passed < FUDGE.saturating_neg() {
        return Some("has filesystem last checked time in the future".to_owned());
    }
    (passed >= interval).then(|| format!("has gone {} days without being checked", passed / 86400))
}

#[cfg(test)]
mod tests {
    use ext4kit_testkit::filesystem;

    use super::*;

    fn superblock() -> Superblock {
        let image = Image::open(std::sync::Arc::new(filesystem::ext4(8192, 1024))).unwrap();
        image.superblock().clone()
    }

    #[test]
    fn mounts_and_time_make_a_check_due() {
        let mut superblock = superblock();
        let mut at = |now, broken, interval, mounts: u16| {
            superblock.s_lastcheck.set(1_000_000_000);
            superblock.s_checkinterval.set(interval);
            superblock.s_max_mnt_count.set(20);
            superblock.s_mnt_count.set(mounts);
            due(&superblock, Clock { now, broken })
        };
        let later = 1_000_000_000 + 40 * 86400;
        assert_eq!(at(later, false, 0, 0), None);
        assert_eq!(at(later, false, 30 * 86400, 0).unwrap(), "has gone 40 days without being checked");
        assert_eq!(at(later, true, 30 * 86400, 0), None);
        assert_eq!(at(later, false, 0, 20).unwrap(), "has been mounted 20 times without being checked");
        assert_eq!(at(0, false, 0, 0), None);
        assert_eq!(at(1_000_000_000 - 3600, false, 30 * 86400, 0), None);
        let future = at(0, false, 30 * 86400, 0).unwrap();
        assert_eq!(future, "has filesystem last checked time in the future");
        assert_eq!(at(0, true, 30 * 86400, 0), None);
    }
}
