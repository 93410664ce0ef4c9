//! Whole directories: `tree`, and `rdump`, which copies one out.
//!
//! `rdump` never writes outside of its target. Names come from the image, and an image can hold any: one with a slash
//! or a NUL, or `..`, is refused. Whatever it makes it makes new, relative to an open folder, and no component is ever a
//! symbolic link that the image brought: folders are opened without following links.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_format::InodeNumber;
use ext4kit_format::disk::dirent;
use ext4kit_format::disk::inode::{FileKind, Inode};
use ext4kit_format::tree::inode;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use serde::Serialize;

use super::contents;
use crate::answer::{Answer, Bytes, Outcome, Report};
use crate::listing;
use crate::paths;
use crate::session::Open;
use crate::table::Call;
use crate::words::text;

/// How deep directories may lie in each other.
const MOST_DEPTH: usize = 256;

#[derive(Serialize)]
struct Branch {
    depth: usize,
    inode: u32,
    kind: &'static str,
    name: Bytes,
    #[serde(skip)]
    last: Vec<bool>,
}

#[derive(Serialize)]
struct Tree {
    root: Bytes,
    entries: Vec<Branch>,
}

impl Report for Tree {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(&self.root.0)?;
        writeln!(to)?;
        for branch in &self.entries {
            let (own, above) = branch.last.split_last().unwrap_or((&true, &[]));
            for last in above {
                write!(to, "{}", if *last { "    " } else { "│   " })?;
            }
            write!(to, "{}", if *own { "└── " } else { "├── " })?;
            to.write_all(&branch.name.0)?;
            writeln!(to, "{}", if branch.kind == "directory" { "/" } else { "" })?;
        }
        Ok(())
    }
}

/// The names in a directory but for `.` and `..`, and what could not be read.
fn names(
    open: &Open,
    directory: &Inode,
    failed: &mut Vec<ext4kit_format::Error>,
) -> Vec<(Vec<u8>, InodeNumber)> {
    match listing::entries(&open.txn, directory, false) {
        Ok(found) => {
            failed.extend(found.errors);
            let named = found.entries.into_iter().filter(|entry| !dirent::is_dot(&entry.name));
            named.filter_map(|entry| Some((entry.name, entry.inode?))).collect()
        }
        Err(error) => {
            failed.push(error);
            Vec::new()
        }
    }
}

/// `tree`. A directory is entered once, so that a loop ends.
pub fn tree(call: &mut Call<'_>) -> Outcome {
    let flags = call.flags("", 0, 1)?;
    let word = flags.rest.first().map_or(&b"."[..], Vec::as_slice);
    let top = call.directory(word)?;
    let open = call.open()?;
    let mut errors = Vec::new();
    let mut seen = HashSet::from([top.number()]);
    let mut entries = Vec::new();
    let mut stack = vec![names(open, &top, &mut errors).into_iter()];
    let mut last = Vec::new();
    while let Some(level) = stack.last_mut() {
        let Some((name, number)) = level.next() else {
            stack.pop();
            last.pop();
            continue;
        };
        let is_last = level.len() == 0;
        let child = inode::read(&open.txn, number);
        let kind = child.as_ref().ok().and_then(|child| child.view().kind());
        let mut shown = last.clone();
        shown.push(is_last);
        entries.push(Branch {
            depth: stack.len(),
            inode: number.get(),
            kind: super::files::kind_text(kind),
            name: Bytes(name),
            last: shown,
        });
        match child {
            Ok(child) if child.view().is_directory() && stack.len() < MOST_DEPTH && seen.insert(number) => {
                stack.push(names(open, &child, &mut errors).into_iter());
                last.push(is_last);
            }
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
    }
    let problems: Vec<_> = errors.iter().map(|error| call.failed(error)).collect();
    Ok(Answer::of(Tree { root: word.into(), entries }).with(problems))
}

/// A copy of directories on its way.
struct Copying<'a> {
    open: &'a Open,
    command: &'a str,
    problems: Vec<Failure>,
    copied: u64,
}

#[derive(Serialize)]
struct Copied {
    copied: u64,
}

impl Report for Copied {
    fn text(&self, _to: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// `rdump`.
pub fn rdump(call: &mut Call<'_>) -> Outcome {
    let words = call.words(2, usize::MAX)?.to_vec();
    let Some((target, sources)) = words.split_last() else { return Err(call.usage()) };
    let path = Path::new(std::ffi::OsStr::from_bytes(target));
    let folder = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let folder = folder.map_err(|error| {
        let what = format!("{} while statting {}", io::Error::from(error), text(target));
        Failure::new(FailureKind::Io, call.name.clone(), what)
    })?;
    let open = call.open()?;
    let mut copying = Copying { open, command: &call.name, problems: Vec::new(), copied: 0 };
    for source in sources {
        let found = match call.inode(source) {
            Ok(found) => found,
            Err(failure) => {
                copying.problems.push(failure);
                continue;
            }
        };
        // The last component names the copy; the root, which has none, is poured into the target itself.
        let name = source.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty()).unwrap_or_default();
        let pours = name.is_empty() || dirent::is_dot(name);
        if pours && found.view().is_directory() {
            copying.directory(&found, &folder, &text(target));
        } else {
            copying.start(&found, name, &folder, &text(target));
        }
    }
    let Copying { problems, copied, .. } = copying;
    Ok(Answer::of(Copied { copied }).with(problems))
}

/// A folder being filled: the names left, the folder, its path for messages, and the directory to take times from.
struct Filling {
    names: std::vec::IntoIter<(Vec<u8>, InodeNumber)>,
    folder: OwnedFd,
    path: String,
    directory: Option<Inode>,
}

impl Copying<'_> {
    fn problem(&mut self, path: &str, what: impl Into<String>) {
        self.problems.push(Failure::new(FailureKind::Io, path, what));
    }

    /// Why a name cannot be used outside; `None` where it can.
    fn refusal(name: &[u8]) -> Option<&'static str> {
        if name.is_empty() {
            Some("the name is empty")
        } else if dirent::is_dot(name) {
            Some("the name is the folder's own")
        } else if name.contains(&b'/') {
            Some("the name holds a slash, and would lead out of the folder")
        } else if name.contains(&0) {
            Some("the name holds a NUL")
        } else {
            None
        }
    }

    /// Copies a file or a directory under a name.
    fn start(&mut self, source: &Inode, name: &[u8], folder: &OwnedFd, path: &str) {
        let inner = format!("{path}/{}", text(name));
        if !source.view().is_directory() {
            self.file(source, name, folder, &inner);
            return;
        }
        if let Some(made) = self.make_folder(name, folder, &inner) {
            self.fill(source, made, inner, true);
        }
    }

    /// Copies what is in a directory into a folder that is there.
    fn directory(&mut self, source: &Inode, folder: &OwnedFd, path: &str) {
        match folder.try_clone() {
            Ok(folder) => self.fill(source, folder, path.to_owned(), false),
            Err(error) => self.problem(path, error.to_string()),
        }
    }

    fn make_folder(&mut self, name: &[u8], folder: &OwnedFd, path: &str) -> Option<OwnedFd> {
        if let Some(why) = Self::refusal(name) {
            self.problem(path, format!("refused: {why}"));
            return None;
        }
        let name = std::ffi::OsStr::from_bytes(name);
        // Nobody else looks in while it is filled; it gets its own mode at the end.
        let made = rustix::fs::mkdirat(folder, name, Mode::RWXU);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = made.and_then(|()| rustix::fs::openat(folder, name, flags, Mode::empty()));
        opened.map_err(|error| self.problem(path, io::Error::from(error).to_string())).ok()
    }

    /// Fills a folder from a directory, and the folders in it.
    fn fill(&mut self, top: &Inode, folder: OwnedFd, path: String, keep: bool) {
        let mut seen = HashSet::from([top.number()]);
        let names = self.names(top);
        let mut stack = vec![Filling { names, folder, path, directory: keep.then(|| top.clone()) }];
        while let Some(filling) = stack.last_mut() {
            let Some((name, number)) = filling.names.next() else {
                let Some(done) = stack.pop() else { break };
                if let Some(directory) = &done.directory {
                    self.keep(directory, File::from(done.folder), &done.path);
                }
                continue;
            };
            let path = format!("{}/{}", filling.path, text(&name));
            let child = match inode::read(&self.open.txn, number) {
                Ok(child) => child,
                Err(error) => {
                    self.problems.push(Failure::from_error(&path, &error));
                    continue;
                }
            };
            if !child.view().is_directory() {
                self.file(&child, &name, &filling.folder, &path);
                continue;
            }
            if !seen.insert(number) {
                self.problem(&path, format!("refused: directory {number} was met before"));
            } else if let Some(folder) = self.make_folder(&name, &filling.folder, &path) {
                if stack.len() >= MOST_DEPTH {
                    self.problem(&path, "refused: directories lie too deep in each other");
                    continue;
                }
                let names = self.names(&child);
                stack.push(Filling { names, folder, path, directory: Some(child) });
            }
        }
    }

    fn names(&mut self, directory: &Inode) -> std::vec::IntoIter<(Vec<u8>, InodeNumber)> {
        let mut errors = Vec::new();
        let found = names(self.open, directory, &mut errors);
        self.problems.extend(errors.iter().map(|error| Failure::from_error(self.command, error)));
        found.into_iter()
    }

    fn keep(&mut self, source: &Inode, target: File, path: &str) {
        if let Err(error) = contents::keep(source, &target, Path::new(path)) {
            self.problem(path, error.to_string());
        }
        drop(target);
        self.copied += 1;
    }

    /// Copies anything but a directory.
    fn file(&mut self, source: &Inode, name: &[u8], folder: &OwnedFd, path: &str) {
        if let Some(why) = Self::refusal(name) {
            self.problem(path, format!("refused: {why}"));
            return;
        }
        let name = std::ffi::OsStr::from_bytes(name);
        match source.view().kind() {
            Some(FileKind::Regular) => self.regular(source, name, folder, path),
            Some(FileKind::Symlink) => self.symlink(source, name, folder, path),
            Some(kind) => {
                let kind = super::files::kind_text(Some(kind));
                self.problem(path, format!("left out: a {kind} is not copied"));
            }
            None => self.problem(path, "left out: its mode names no kind of file"),
        }
    }

    fn regular(&mut self, source: &Inode, name: &std::ffi::OsStr, folder: &OwnedFd, path: &str) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR) {
            Err(error) => self.problem(path, io::Error::from(error).to_string()),
            Ok(made) => {
                let made = File::from(made);
                if let Err(stopped) = contents::copy_out(self.open, source, &made) {
                    self.problems.push(contents::failure(path, path, stopped));
                }
                self.keep(source, made, path);
            }
        }
    }

    fn symlink(&mut self, source: &Inode, name: &std::ffi::OsStr, folder: &OwnedFd, path: &str) {
        let target = match paths::target(self.open, source) {
            Ok(target) if !target.contains(&0) && !target.is_empty() => target,
            Ok(_) => return self.problem(path, "refused: the link's target is empty or holds a NUL"),
            Err(error) => return self.problems.push(Failure::from_error(path, &error)),
        };
        if let Err(error) = rustix::fs::symlinkat(std::ffi::OsStr::from_bytes(&target), folder, name) {
            return self.problem(path, io::Error::from(error).to_string());
        }
        self.copied += 1;
        let view = source.view();
        let (uid, gid) = (Uid::from_raw(view.uid()), Gid::from_raw(view.gid()));
        // Who may not give links away keeps them.
        let _ = rustix::fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
    }
}

/// Whether a name could be inserted again; kept beside the refusals so that both change together.
#[cfg(test)]
fn is_plain(name: &[u8]) -> bool {
    ext4kit_format::tree::dir::check_name(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in [&b""[..], b".", b"..", b"../x", b"a/b", b"/", b"a\0b"] {
            assert!(Copying::refusal(name).is_some() && !is_plain(name), "{name:?}");
        }
        for name in [&b"..."[..], b".x", b"-rf", b"\xff", b"a b"] {
            assert!(Copying::refusal(name).is_none() && is_plain(name), "{name:?}");
        }
    }
}
