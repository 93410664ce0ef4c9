//! Stores on real block devices, and the refusals of `store::open`. Needs root and loop devices.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ext4kit_format::Error;
use ext4kit_format::store::{self, Access, FileStore, Store, Use};
use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{fixture, kernel};

const READ_WRITE: Access = Access::ReadWrite;

fn run(program: &str, arguments: &[&std::ffi::OsStr]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A loop device over an image, detached when it goes.
struct Loop(PathBuf);

impl Loop {
    fn over(image: &TempImage) -> Self {
        let path = image.path();
        Self(run("losetup", &["--find".as_ref(), "--show".as_ref(), path.as_os_str()]).into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A mount, taken away when it goes.
struct Mount(tempfile::TempDir);

impl Mount {
    fn of(device: &Path) -> Self {
        let point = tempfile::tempdir().unwrap();
        run("mount", &["-o".as_ref(), "ro".as_ref(), device.as_os_str(), point.path().as_os_str()]);
        Self(point)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn refusal(path: &Path) -> String {
    match store::open(path, READ_WRITE, false) {
        Err(Error::InUse(text)) => text,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{} was opened", path.display()),
    }
}

#[test]
fn a_block_device_is_read_written_and_zeroed() {
    if !kernel::can_mount() {
        return;
    }
    let size = 1 << 20;
    let image = TempImage::empty(size).unwrap();
    let device = Loop::over(&image);
    let store = FileStore::open(&device.0, READ_WRITE, false).unwrap();
    assert!(store.is_device() && !store.is_read_only());
    assert_eq!(store.size(), size);

    let mut expected: Vec<u8> = (1..=251).cycle().take(1 << 20).collect();
    store.write_at(0, &expected).unwrap();
    // Aligned, sticking out on both sides, inside one sector, and at the end.
    for (offset, length) in [(8192, 4096), (20_001, 30_001), (70_000, 9), (size - 5000, 5000)] {
        store.zero_range(offset, length).unwrap();
        expected[usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap()].fill(0);
    }
    store.flush().unwrap();
    let mut bytes = vec![0; expected.len()];
    store.read_at(0, &mut bytes).unwrap();
    assert!(bytes == expected);
    assert!(store.read_at(size, &mut [0]).is_err() && store.write_at(size - 1, &[0, 0]).is_err());

    drop(store);
    // What was flushed is in the file below.
    assert!(image.load().unwrap().to_vec() == expected);
}

#[test]
fn whoever_writes_a_device_has_it_alone() {
    if !kernel::can_mount() {
        return;
    }
    let image = TempImage::empty(1 << 20).unwrap();
    let device = Loop::over(&image);
    let writer = store::open(&device.0, READ_WRITE, false).unwrap();
    assert!(refusal(&device.0).ends_with(": in use by the system or another program"));
    assert!(store::open(&device.0, READ_WRITE, true).is_ok());
    assert!(store::open(&device.0, Access::ReadOnly, false).is_ok());
    drop(writer);
    assert!(store::open(&device.0, READ_WRITE, false).is_ok());
}

#[test]
fn attached_and_mounted_images_are_read_but_not_written() {
    if !kernel::can_mount() {
        return;
    }
    let image = TempImage::of(&fixture::load("images/small-ext4.img.zst")).unwrap();
    let path = image.path();
    let device = Loop::over(&image);
    let (file_text, device_text) = (path.display().to_string(), device.0.display().to_string());
    assert_eq!(refusal(&path), format!("{file_text}: attached to {device_text}"));

    let mount = Mount::of(&device.0);
    let at = mount.0.path();
    assert_eq!(store::uses(&device.0).unwrap(), [Use::Mounted { at: at.to_owned() }]);
    assert_eq!(refusal(&device.0), format!("{device_text}: mounted at {}", at.display()));
    let expected = format!("{file_text}: attached to {device_text}, which is mounted at {}", at.display());
    assert_eq!(refusal(&path), expected);
    for path in [&path, &device.0] {
        let store = store::open(path, Access::ReadOnly, false).unwrap();
        assert!(store.as_memory().is_none(), "what may change is not mapped");
        let mut magic = [0; 2];
        store.read_at(1024 + 0x38, &mut magic).unwrap();
        assert_eq!(magic, [0x53, 0xef]);
    }
    assert!(store::open(&path, READ_WRITE, true).is_ok());
    drop((mount, device));
    // The kernel detaches a device when its last user is gone, and that may be somebody who just looks around.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !store::uses(&path).unwrap().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(store::open(&path, READ_WRITE, false).is_ok());
    assert!(store::open(&path, Access::ReadOnly, false).unwrap().as_memory().is_some());
}
