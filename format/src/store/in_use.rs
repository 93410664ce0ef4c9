//! Who else uses an image: mounts, loop devices, swap.
//!
//! The answer is what the system shows at this moment and to this process; another mount namespace may hide more.
//! It is for a clear refusal. The exclusive open of a device and the lock on a file are what keep others out.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One way in which a file or device is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// The device is mounted.
    Mounted {
        /// On this directory.
        at: PathBuf,
    },
    /// The file or device is attached to a loop device.
    Loop {
        /// The loop device.
        device: PathBuf,
        /// Where that is mounted, if it is.
        mounted_at: Option<PathBuf>,
    },
    /// The file or device is swap space.
    Swap,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { at } => write!(f, "mounted at {}", at.display()),
            Self::Loop { device, mounted_at: Some(at) } => {
                write!(f, "attached to {}, which is mounted at {}", device.display(), at.display())
            }
            Self::Loop { device, mounted_at: None } => write!(f, "attached to {}", device.display()),
            Self::Swap => f.write_str("in use as swap space"),
        }
    }
}

/// Who uses the file or block device at a path. Empty where the system does not tell.
pub fn uses(path: &Path) -> io::Result<Vec<Use>> {
    uses_seen_in(Path::new("/"), path)
}

/// What a file is, so that it is recognized under another name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Identity {
    /// A block device by its number.
    Device(u64),
    /// Any other file by device and inode.
    File(u64, u64),
}

impl Identity {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(if metadata.file_type().is_block_device() {
            Self::Device(metadata.rdev())
        } else {
            Self::File(metadata.dev(), metadata.ino())
        })
    }

    fn is_at(self, path: &Path) -> bool {
        Self::of(path).is_ok_and(|other| other == self)
    }
}

/// [`uses`], with `proc` and `sys` under another root.
fn uses_seen_in(root: &Path, path: &Path) -> io::Result<Vec<Use>> {
    let identity = Identity::of(path)?;
    let mounts = mounts(&fs::read(root.join("proc/self/mountinfo")).unwrap_or_default());
    let mut found = Vec::new();
    if let Identity::Device(number) = identity {
        let name = device_name(number);
        let mounted = mounts.iter().filter(|mount| mount.device == name || identity.is_at(&mount.source));
        found.extend(mounted.map(|mount| Use::Mounted { at: mount.at.clone() }));
    }
    for (device, name, backing_file) in loops(root) {
        if identity.is_at(&backing_file) {
            let mount = mounts.iter().find(|mount| mount.device == name);
            found.push(Use::Loop { device, mounted_at: mount.map(|mount| mount.at.clone()) });
        }
    }
    let swaps = fs::read(root.join("proc/swaps")).unwrap_or_default();
    if swap_areas(&swaps).any(|area| identity.is_at(&area)) {
        found.push(Use::Swap);
    }
    Ok(found)
}

/// One line of `mountinfo`, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// Major and minor number, as the system writes them.
    device: String,
    at: PathBuf,
    source: PathBuf,
}

fn device_name(number: u64) -> String {
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

/// Reads `mountinfo`: id, parent, device, root, mount point, options, any number of tags, a dash, type, source.
fn mounts(text: &[u8]) -> Vec<Mount> {
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
            let at = unescape(fields.nth(1)?);
            let source = unescape(fields.skip_while(|field| *field != b"-").nth(2)?);
            Some(Mount { device, at, source })
        })
        .collect()
}

/// The first column of `swaps`, below its heading.
fn swap_areas(text: &[u8]) -> impl Iterator<Item = PathBuf> {
    let lines = text.split(|byte| *byte == b'\n').skip(1);
    lines.filter_map(|line| line.split(u8::is_ascii_whitespace).find(|field| !field.is_empty()).map(unescape))
}

/// The attached loop devices: path, device number, backing file.
fn loops(root: &Path) -> Vec<(PathBuf, String, PathBuf)> {
    let Ok(entries) = fs::read_dir(root.join("sys/block")) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name();
            if !name.as_bytes().starts_with(b"loop") {
                return None;
            }
            // There is no such file unless the device is attached.
            let backing_file = fs::read(entry.path().join("loop/backing_file")).ok()?;
            let number = fs::read_to_string(entry.path().join("dev")).ok()?;
            let device = Path::new("/dev").join(name);
            Some((device, number.trim_end().to_owned(), path_from(backing_file.trim_ascii_end())))
        })
        .collect();
    found.sort();
    found
}

fn path_from(bytes: &[u8]) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.to_vec()).into()
}

/// Undoes the octal escapes that the kernel writes for blanks, newlines and backslashes in paths.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) = (first, after) {
            let octal = [a, b, c]
                .into_iter()
                .fold(0u8, |value, digit| value.wrapping_shl(3) | digit.wrapping_sub(b'0'));
            bytes.push(octal);
            rest = tail;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    path_from(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_read_with_tags_and_escapes() {
        let text = b"42 27 7:0 / /tmp/a\\040b ro,relatime shared:1 master:2 - ext2 /dev/loop0 ro\n\
            43 27 0:5 / /dev rw - devtmpfs none rw\n\
            broken line\n";
        let expected = [
            Mount { device: "7:0".into(), at: "/tmp/a b".into(), source: "/dev/loop0".into() },
            Mount { device: "0:5".into(), at: "/dev".into(), source: "none".into() },
        ];
        assert_eq!(mounts(text), expected);
    }

    #[test]
    fn only_whole_octal_escapes_are_undone() {
        for (escaped, plain) in [("\\134\\012", "\\\n"), ("a\\04", "a\\04"), ("\\400", "\\400"), ("\\", "\\")]
        {
            assert_eq!(unescape(escaped.as_bytes()), PathBuf::from(plain));
        }
    }

    /// A system with one loop device over the image and one over something else.
    #[test]
    fn loop_and_swap_files_are_recognized_under_another_name() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str, contents: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        };
        make("disk.img", "x");
        make("other.img", "x");
        let image = root.path().join("disk.img");
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&image, &link).unwrap();
        assert_eq!(uses_seen_in(root.path(), &image).unwrap(), []);

        make("sys/block/loop3/loop/backing_file", &format!("{}\n", link.display()));
        make("sys/block/loop3/dev", "7:3\n");
        make("sys/block/loop4/loop/backing_file", &format!("{}\n", root.path().join("other.img").display()));
        make("sys/block/loop4/dev", "7:4\n");
        make("sys/block/loop5/dev", "7:5\n");
        let attached =
            |at: Option<&str>| Use::Loop { device: "/dev/loop3".into(), mounted_at: at.map(PathBuf::from) };
        assert_eq!(uses_seen_in(root.path(), &image).unwrap(), [attached(None)]);

        make("proc/self/mountinfo", "1 2 7:3 / /mnt rw - ext4 /dev/loop3 rw\n");
        let swaps = format!("Filename Type Size\n{} file 1 0 -2\n", image.display());
        make("proc/swaps", &swaps);
        let found = uses_seen_in(root.path(), &link).unwrap();
        assert_eq!(found, [attached(Some("/mnt")), Use::Swap]);
        assert_eq!(found[0].to_string(), "attached to /dev/loop3, which is mounted at /mnt");
    }

    #[test]
    fn a_missing_file_is_an_error() {
        assert_eq!(uses(Path::new("/no/such/image")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
