//! e2fsck, debugfs, dumpe2fs and mke2fs, asked about a store.
//!
//! Each works on a copy in a temporary file, in the C locale and in UTC. `None` means that the program is not
//! installed; the test has then been told to skip, or has failed, by [`crate::skip::missing`].

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ext4kit_format::store::{MemoryStore, Store};

use crate::image::TempImage;
use crate::skip;

/// What a program said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its exit code; -1 if a signal ended it.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Where a program is installed, if it is. The folders of the superuser's programs are looked through as well.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join(program)).find(|candidate| candidate.is_file());
    if found.is_none() {
        skip::missing(&format!("{program} is not installed"));
    }
    found
}

/// Runs a program with nothing to read. That it cannot be started is a panic, for it is installed.
pub fn run<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> Option<Run> {
    run_at(program, arguments, None)
}

/// The same, with a moment in seconds that the program is to take for now.
pub fn run_at<A: AsRef<OsStr>>(program: &str, arguments: &[A], now: Option<u64>) -> Option<Run> {
    let mut command = Command::new(find(program)?);
    command.args(arguments).stdin(Stdio::null()).env("LC_ALL", "C").env("TZ", "GMT0");
    command.env("DEBUGFS_PAGER", "__none__").env_remove("SOURCE_DATE_EPOCH");
    if let Some(now) = now {
        command.env("E2FSPROGS_FAKE_TIME", now.to_string()).env("E2FSCK_TIME", now.to_string());
    }
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Run {
        code: output.status.code().unwrap_or(-1),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    })
}

/// Runs a program with options on an image file.
pub fn run_on(program: &str, options: &[&str], image: &Path) -> Option<Run> {
    let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
    arguments.push(image.as_os_str());
    run(program, &arguments)
}

/// `e2fsck -fn` on a copy of a store.
pub fn e2fsck(store: &dyn Store) -> Option<Run> {
    ask("e2fsck", &["-fn"], store)
}

/// Fails the test unless `e2fsck -fn` finds nothing; what it finds is in the message.
pub fn assert_clean(store: &dyn Store) {
    if let Some(run) = e2fsck(store) {
        assert_eq!(run.code, 0, "e2fsck -fn:\n{}{}", run.stdout, run.stderr);
    }
}

/// One debugfs request on a copy of a store. debugfs exits with 0 even if the request fails: look at both outputs.
pub fn debugfs(store: &dyn Store, request: &str) -> Option<Run> {
    ask("debugfs", &["-R", request], store)
}

/// `dumpe2fs` on a copy of a store.
pub fn dumpe2fs(store: &dyn Store, options: &[&str]) -> Option<Run> {
    ask("dumpe2fs", options, store)
}

/// A filesystem of this many bytes made by `mke2fs` with these options. That mke2fs refuses is a panic.
pub fn mke2fs(size: u64, options: &[&str]) -> Option<MemoryStore> {
    let image = dump(|| TempImage::empty(size));
    let mut arguments = vec!["-q", "-F"];
    arguments.extend(options);
    let run = run_on("mke2fs", &arguments, &image.path())?;
    assert_eq!(run.code, 0, "mke2fs {options:?}:\n{}{}", run.stdout, run.stderr);
    Some(dump(|| image.load()))
}

fn ask(program: &str, options: &[&str], store: &dyn Store) -> Option<Run> {
    let image = dump(|| TempImage::of(store));
    run_on(program, options, &image.path())
}

/// A full temporary folder is nobody's finding: it ends the test at once.
fn dump<T>(make: impl FnOnce() -> io::Result<T>) -> T {
    make().unwrap_or_else(|error| panic!("temporary image: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_sound_image_is_clean_and_a_damaged_one_is_not() {
        let store = fixture::load("images/small-ext4.img.zst");
        assert_clean(&store);
        // The count of free inodes, and with it the superblock's checksum.
        store.write_at(1024 + 0x10, &[99]).unwrap();
        if let Some(run) = e2fsck(&store) {
            assert_ne!(run.code, 0, "{run:?}");
        }
    }

    #[test]
    fn the_tools_tell_of_the_image() {
        let store = fixture::load("images/small-ext4.img.zst");
        let Some(run) = dumpe2fs(&store, &["-h"]) else { return };
        assert!(run.stdout.contains("Filesystem UUID:          01234567-89ab-cdef-0123-456789abcdef"));
        assert!(run.stdout.contains("Filesystem created:       Tue Nov 14 22:13:20 2023"), "{}", run.stdout);
        assert_eq!(debugfs(&store, "cat /hello").unwrap().stdout, "hello\n");
    }

    #[test]
    fn a_made_filesystem_is_clean() {
        if let Some(store) = mke2fs(2 << 20, &["-t", "ext2", "-b", "1024"]) {
            assert_eq!(store.size(), 2 << 20);
            assert_clean(&store);
        }
    }
}
