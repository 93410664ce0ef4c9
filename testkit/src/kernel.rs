//! The machine's kernel, asked through a loop mount. It needs root and a free loop device.
//!
//! Only for clean images: a mount of a dirty one would be answered by the kernel's own replay.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ext4kit_format::store::Store;

use crate::image::TempImage;
use crate::oracle;
use crate::skip;
use crate::tree::Tree;

/// How long a mount or its end is tried where others are in the way at the same time.
const PATIENCE: Duration = Duration::from_secs(20);

/// The tree that the kernel sees in a copy of a store, mounted read-only, or what it said against mounting it.
/// `None` where no loop mount can be made, after [`skip::missing`].
pub fn read_tree(store: &dyn Store) -> Option<Result<Tree, String>> {
    let image = TempImage::of(store).unwrap_or_else(|error| panic!("temporary image: {error}"));
    look(&image.path(), |root| Tree::of(root).unwrap_or_else(|error| panic!("mounted image: {error}")))
}

/// Looks at an image that is mounted read-only, given where; or what the kernel said against mounting it.
/// `None` where no loop mount can be made, after [`skip::missing`].
pub fn look<T>(image: &Path, see: impl FnOnce(&Path) -> T) -> Option<Result<T, String>> {
    mounted(image, "ro,loop", see)
}

/// Changes an image through a mount, given where; or what the kernel said against mounting or unmounting it. Inode
/// tables that wait for being initialised are left waiting, so that a huge sparse image stays small.
/// `None` where no loop mount can be made, after [`skip::missing`].
pub fn change<T>(image: &Path, change: impl FnOnce(&Path) -> T) -> Option<Result<T, String>> {
    mounted(image, "rw,loop,noinit_itable", change)
}

fn mounted<T>(image: &Path, options: &str, work: impl FnOnce(&Path) -> T) -> Option<Result<T, String>> {
    if !can_mount() {
        return None;
    }
    let point = tempfile::tempdir().unwrap_or_else(|error| panic!("mount point: {error}"));
    let mounted = match Mounted::new(image, point.path(), options) {
        Ok(mounted) => mounted,
        Err(said) => return Some(Err(said)),
    };
    let done = work(mounted.0);
    Some(mounted.end().map(|()| done))
}

/// Whether this process can ask the kernel to mount an ext4 image.
pub fn can_mount() -> bool {
    let what = if !rustix::process::geteuid().is_root() {
        "a loop mount needs root"
    } else if !Path::new("/dev/loop-control").exists() {
        "there are no loop devices"
    } else if !fs::read_to_string("/proc/filesystems").is_ok_and(|known| known.contains("\text4\n")) {
        "the kernel does not know ext4"
    } else {
        return oracle::find("mount").is_some();
    };
    skip::missing(what);
    false
}

/// A mounted image, unmounted when it goes, also out of a failing test.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(image: &Path, point: &'a Path, options: &str) -> Result<Self, String> {
        // Two mounts at once may go for the same free loop device; the one that comes second tries again.
        let mut command = Command::new("mount");
        command.args(["-t", "ext4", "-o", options]).arg(image).arg(point);
        insistently(&mut command, &["loop device"])?;
        Ok(Self(point))
    }

    /// Unmounts, after which everything that was changed is in the image.
    fn end(self) -> Result<(), String> {
        let said = unmount(self.0);
        std::mem::forget(self);
        said
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Only a failing test comes here; a failure of this as well would hide what failed first.
        let _ = unmount(self.0);
    }
}

fn unmount(point: &Path) -> Result<(), String> {
    // A child that another thread starts at this moment holds, until it runs its program, the files that were open here.
    insistently(Command::new("umount").arg(point), &["busy"])
}

/// Runs a command until it succeeds, fails with other words than those of a passing state, or fails for too long.
fn insistently(command: &mut Command, passing: &[&str]) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let output = command.env("LC_ALL", "C").output().map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if begun.elapsed() > PATIENCE || !passing.iter().any(|word| said.contains(word)) {
            return Err(said);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::tree::Content;

    #[test]
    fn the_kernel_sees_the_small_image() {
        let store = fixture::load("images/small-ext4.img.zst");
        let Some(tree) = read_tree(&store) else { return };
        let tree = tree.unwrap().without("lost+found");
        let names: Vec<_> = tree.0.keys().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, ["", "dir", "dir/file", "dir/hard", "hello", "link"]);
        let hello = &tree.0[Path::new("hello")];
        let checksum = crc32c::crc32c(b"hello\n");
        let same_as = Some("dir/hard".into());
        assert_eq!(hello.content, Content::File { size: 6, checksum, links: 2, same_as });
        assert_eq!(hello.modified, (1_700_000_000, 0));
        assert_eq!(tree.0[Path::new("link")].content, Content::Symlink(b"hello".to_vec()));
    }

    #[test]
    fn what_is_changed_is_in_the_image() {
        let image = TempImage::of(&fixture::load("images/small-ext4.img.zst")).unwrap();
        let Some(written) = change(&image.path(), |root| fs::write(root.join("new"), b"written\n")) else {
            return;
        };
        written.unwrap().unwrap();
        let store = image.load().unwrap();
        oracle::assert_clean(&store);
        assert_eq!(oracle::debugfs(&store, "cat /new").unwrap().stdout, "written\n");
    }

    #[test]
    fn a_refused_mount_is_an_answer() {
        let store = fixture::load("images/small-ext4.img.zst");
        store.write_at(1024 + 0x38, &[0, 0]).unwrap();
        if let Some(answer) = read_tree(&store) {
            assert!(answer.unwrap_err().contains("mount"));
        }
    }
}
