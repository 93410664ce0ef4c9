//! Rebuilding test data from its recipes, to see that the recipes are true.
//!
//! A recipe is built several times. Bytes in which its builds differ from each other cannot be reproduced; in all others
//! the committed file has to be what the recipe gives. What another program or a virtual machine left once is kept as it
//! is, and the table says so.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// How often a recipe is built: enough that random bytes are not the same in all by chance.
const BUILDS: usize = 5;

/// Where a file of test data comes from.
enum Origin {
    /// A shell script that leaves the file, unpacked, as `out`; and the programs without which it cannot run.
    Recipe { script: &'static str, programs: &'static [&'static str], varies: Option<&'static str> },
    /// Nothing here can make it again.
    Kept(&'static str),
}

use Origin::{Kept, Recipe};

/// Every file of test data, by its path in the repository.
const FILES: &[(&str, Origin)] = &[
    (
        "testdata/disk/dir_empty_leaf.bin",
        Recipe {
            script: "mke2fs -q -t ext4 -b 1024 image 16M && debugfs -R 'dump <11> all' image &&
                dd if=all of=out bs=1024 skip=1 count=1",
            programs: &["mke2fs", "debugfs"],
            varies: Some("the checksum, with the UUID"),
        },
    ),
    ("testdata/disk/dir_root_leaf.bin", Kept(KERNEL)),
    ("testdata/disk/extent_index.bin", Kept(KERNEL)),
    ("testdata/disk/extent_leaf.bin", Kept(KERNEL)),
    ("testdata/disk/extent_root.bin", Kept(KERNEL)),
    ("testdata/disk/htree_root.bin", Kept(KERNEL)),
    ("testdata/disk/mmp.bin", Kept(KERNEL)),
    ("testdata/disk/orphan_live.bin", Kept(KERNEL)),
    (
        "testdata/disk/quota_user.bin",
        Recipe {
            script: "mke2fs -q -t ext4 -O quota -E root_owner=1000:2000 image 8M &&
                debugfs -R 'dump <3> out' image",
            programs: &["mke2fs", "debugfs"],
            varies: None,
        },
    ),
    (
        "testdata/disk/undo.bin",
        Recipe {
            script: "mke2fs -q -t ext4 -b 1024 -U 01234567-89ab-cdef-0123-456789abcdef \\
                -E hash_seed=01234567-89ab-cdef-0123-456789abcdef image 16M &&
                tune2fs -z out -L hello image",
            programs: &["mke2fs", "tune2fs"],
            varies: None,
        },
    ),
    ("testdata/disk/xattr_block.bin", Kept(KERNEL)),
    ("testdata/disk/xattr_inode.bin", Kept(KERNEL)),
    ("testdata/disk/xattr_large_block.bin", Kept(KERNEL)),
    ("testdata/images/dirty-churn-4k.img.zst", Kept(KILLED)),
    (
        "testdata/images/small-ext4.img.zst",
        Recipe {
            script: "mkdir tree tree/dir && echo hello >tree/hello && ln -s hello tree/link &&
                head -c 5000 /dev/zero | tr '\\0' x >tree/dir/file && ln tree/hello tree/dir/hard &&
                find tree -depth -exec touch -h -d @1700000000 {} + &&
                mke2fs -q -t ext4 -b 1024 -m 0 -I 256 -U 01234567-89ab-cdef-0123-456789abcdef \\
                -E hash_seed=01234567-89ab-cdef-0123-456789abcdef,lazy_itable_init=0,root_owner=0:0 \\
                -O metadata_csum,64bit,^has_journal -d tree out 1M &&
                for inode in 12 13 14 15; do
                debugfs -w -R \"set_inode_field <$inode> ctime @1796078312\" out; done",
            programs: &["mke2fs", "debugfs", "zstd"],
            varies: None,
        },
    ),
    ("testdata/journal/v1-async-wrap.jnl.zst", Kept(KILLED)),
    ("testdata/journal/v3-fast-commits.jnl.zst", Kept(KILLED)),
    ("testdata/journal/v3-revoke-escape.jnl.zst", Kept(KILLED)),
];

const KERNEL: &str = "cut from a filesystem that a kernel wrote";
const KILLED: &str = "left by a kernel whose virtual machine was killed at work";

/// What a recipe gave, held against the committed file.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    /// So many bytes differ, none of which the recipe can reproduce.
    Expected(usize),
    /// The first byte that should not differ; the length of the shorter if only lengths do.
    Unexpected(usize),
}

/// Rebuilds everything that has a recipe and says what differs; with `--bless`, writes what should not.
pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    let bless = match words {
        [] => false,
        ["--bless"] => true,
        _ => bail!("usage: cargo xtask testdata [--bless]"),
    };
    let unlisted = unlisted(root)?;
    ensure!(unlisted.is_empty(), "not in the table of xtask/src/testdata.rs: {}", unlisted.join(", "));
    let mut wrong = Vec::new();
    for (name, origin) in FILES {
        match origin {
            Kept(why) => println!("{name}: kept, {why}"),
            Recipe { script, programs, varies } => {
                if let Some(missing) = programs.iter().find(|program| !is_installed(program)) {
                    println!("{name}: not rebuilt, {missing} is not installed");
                    continue;
                }
                if !judge(&root.join(name), (name, script, *varies), bless)? {
                    wrong.push(*name);
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "not what the recipe gives (--bless writes it): {}", wrong.join(", "));
    Ok(())
}

/// Rebuilds one file and prints what came of it; false if it stays other than it should be.
fn judge(path: &Path, (name, script, varies): (&str, &str, Option<&str>), bless: bool) -> Result<bool> {
    let builds: Vec<Vec<u8>> =
        (0..BUILDS).map(|_| build(script)).collect::<Result<_>>().context(name.to_owned())?;
    let committed = read(path).unwrap_or_default();
    let moving = builds.iter().any(|build| *build != builds[0]);
    ensure!(!moving || varies.is_some(), "{name}: two builds differ, and the table does not say why");
    match compare(&committed, &builds) {
        Verdict::Same => println!("{name}: the same"),
        Verdict::Expected(count) => {
            println!("{name}: {count} bytes differ, as expected: {}", varies.unwrap_or_default());
        }
        Verdict::Unexpected(at) if bless => {
            write(path, &builds[0])?;
            println!("{name}: differed at byte {at}, written");
        }
        Verdict::Unexpected(at) => {
            println!("{name}: DIFFERS at byte {at}");
            return Ok(false);
        }
    }
    Ok(true)
}

fn compare(committed: &[u8], builds: &[Vec<u8>]) -> Verdict {
    let Some((first, others)) = builds.split_first() else { return Verdict::Same };
    let mut expected = 0;
    for (at, (byte, wanted)) in committed.iter().zip(first).enumerate() {
        if byte == wanted {
            continue;
        }
        if others.iter().all(|other| other.get(at) == Some(wanted)) {
            return Verdict::Unexpected(at);
        }
        expected += 1;
    }
    match expected {
        _ if committed.len() != first.len() => Verdict::Unexpected(committed.len().min(first.len())),
        0 => Verdict::Same,
        count => Verdict::Expected(count),
    }
}

/// Where to look for programs: the path, and the folders of the superuser's programs.
fn path_variable() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    std::env::join_paths(folders).unwrap_or(path)
}

fn is_installed(program: &str) -> bool {
    std::env::split_paths(&path_variable()).any(|folder| folder.join(program).is_file())
}

/// Runs a script in a folder of its own and takes what it left.
fn build(script: &str) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(folder.path()).env("PATH", path_variable());
    command.env("LC_ALL", "C").env("TZ", "GMT0").env("E2FSPROGS_FAKE_TIME", "1700000000");
    command.env("E2FSPROGS_UNDO_DIR", "none").env_remove("SOURCE_DATE_EPOCH");
    let output = command.output().context("sh")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    fs::read(folder.path().join("out")).context("the recipe left nothing")
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "zst")
}

/// A committed file, unpacked.
fn read(path: &Path) -> Result<Vec<u8>> {
    if !is_packed(path) {
        return Ok(fs::read(path)?);
    }
    let output = Command::new("zstd").arg("-dcq").arg(path).output().context("zstd")?;
    ensure!(output.status.success(), "{}: cannot be unpacked", path.display());
    Ok(output.stdout)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if !is_packed(path) {
        return Ok(fs::write(path, bytes)?);
    }
    let folder = tempfile::tempdir()?;
    let unpacked = folder.path().join("unpacked");
    fs::write(&unpacked, bytes)?;
    let mut command = Command::new("zstd");
    crate::run(command.args(["-19", "-qf"]).arg(&unpacked).arg("-o").arg(path))
}

/// Files of test data, in the repository's or a crate's folder, that the table does not have; and the other way round.
fn unlisted(root: &Path) -> Result<Vec<String>> {
    let mut found = BTreeSet::new();
    let mut left: Vec<PathBuf> = vec![root.join("testdata")];
    for entry in fs::read_dir(root)? {
        left.push(entry?.path().join("testdata"));
    }
    while let Some(folder) = left.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
            } else if path.file_name().is_some_and(|name| name != "README.md") {
                let name = path.strip_prefix(root).unwrap_or(&path);
                found.insert(name.to_string_lossy().into_owned());
            }
        }
    }
    let listed: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    Ok(found.symmetric_difference(&listed).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_says_where_it_comes_from() {
        assert_eq!(unlisted(&crate::root()).unwrap(), [] as [String; 0]);
    }

    #[test]
    fn only_bytes_that_no_build_repeats_may_differ() {
        let builds = [b"ab1c".to_vec(), b"ab2c".to_vec(), b"ab3c".to_vec()];
        assert_eq!(compare(b"ab1c", &builds), Verdict::Same);
        assert_eq!(compare(b"ab9c", &builds), Verdict::Expected(1));
        assert_eq!(compare(b"aX9c", &builds), Verdict::Unexpected(1));
        assert_eq!(compare(b"ab1", &builds), Verdict::Unexpected(3));
        assert_eq!(compare(b"", &builds), Verdict::Unexpected(0));
    }
}
