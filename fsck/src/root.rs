//! The root filesystem of the running system: mounted to be read only, it may be checked and repaired in place, as init
//! systems do early. The system should be started anew after a repair.

use std::path::Path;

use ext4kit_format::store::{Use, uses};

/// Whether a device is mounted as the root, nowhere else, and can only be read there.
pub fn is_read_only_root(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    uses(path).is_ok_and(|uses| root_alone(&uses) && read_only_root(&mounts))
}

fn root_alone(uses: &[Use]) -> bool {
    let is_root = |used: &Use| matches!(used, Use::Mounted { at } if at == Path::new("/"));
    !uses.is_empty() && uses.iter().all(is_root)
}

/// Whether the last of the mounts on `/`, which hides the others, is read-only.
fn read_only_root(mounts: &str) -> bool {
    let lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut options =
        lines.filter(|fields| fields.get(1) == Some(&"/")).filter_map(|fields| fields.get(3).copied());
    options.next_back().is_some_and(|options| options.split(',').any(|option| option == "ro"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_root_and_only_read_only() {
        assert!(read_only_root("/dev/sda1 / ext4 ro,relatime 0 0\nproc /proc proc rw 0 0\n"));
        assert!(!read_only_root("/dev/sda1 / ext4 rw,errors=remount-ro 0 0\n"));
        assert!(!read_only_root("rootfs / rootfs ro 0 0\n/dev/sda1 / ext4 rw 0 0\n"));
        assert!(!read_only_root(""));
        let at = |path: &str| Use::Mounted { at: path.into() };
        assert!(root_alone(&[at("/")]));
        assert!(!root_alone(&[at("/"), at("/home")]));
        assert!(!root_alone(&[at("/"), Use::Swap]));
        assert!(!root_alone(&[]));
    }
}
