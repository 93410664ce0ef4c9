//! Searching the whole filesystem: `ncheck`, `icheck`, `find`.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use ext4kit_format::disk::dirent;
use ext4kit_format::disk::inode::{FileKind, Inode};
use ext4kit_format::tree::inode;
use serde::Serialize;

use crate::answer::{Answer, Bytes, Outcome, Report};
use crate::table::Call;
use crate::walk::{self, Piece};
use crate::words::{number, number_or, text};
use crate::{inodes, listing, paths};

#[derive(Serialize)]
struct Named {
    inode: u32,
    path: Bytes,
    /// Whether the entry says the kind that the inode is; only with `-c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    type_matches: Option<bool>,
}

#[derive(Serialize)]
struct Names {
    names: Vec<Named>,
}

impl Report for Names {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "Inode\tPathname")?;
        for Named { inode, path, type_matches } in &self.names {
            write!(to, "{inode}\t")?;
            to.write_all(&path.0)?;
            if *type_matches == Some(false) {
                write!(to, " <--- filetype does not match the inode")?;
            }
            writeln!(to)?;
        }
        Ok(())
    }
}

/// `ncheck`.
pub fn ncheck(call: &mut Call<'_>) -> Outcome {
    let flags = call.flags("c", 1, usize::MAX)?;
    let mut wanted = HashSet::new();
    for word in &flags.rest {
        let parsed = number(word).and_then(|number| u32::try_from(number).ok());
        let bad = || call.refuse(format!("Invalid inode number - '{}'", text(word)));
        wanted.insert(parsed.ok_or_else(bad)?);
    }
    let open = call.open()?;
    // As debugfs does it: the search ends when there are as many names as the inodes say.
    let links = |inode: u32| {
        let read =
            ext4kit_format::InodeNumber::new(inode).and_then(|inode| inode::read(&open.txn, inode).ok());
        read.map_or(
            0,
            |inode| if inode.view().is_directory() { 1 } else { usize::from(inode.view().links()) },
        )
    };
    let most: usize = wanted.iter().map(|inode| links(*inode)).sum();
    let (mut names, mut failed) = (Vec::new(), Vec::new());
    let errors = inodes::for_each(&open.txn, &mut |directory| {
        let view = directory.view();
        if names.len() >= most {
            return false;
        }
        if !view.is_directory() || view.links() == 0 {
            return true;
        }
        let found = match listing::entries(&open.txn, directory, false) {
            Ok(found) => found,
            Err(error) => {
                failed.push(error);
                return true;
            }
        };
        failed.extend(found.errors);
        let named = found.entries.iter().filter(|entry| !dirent::is_dot(&entry.name));
        for entry in named {
            if names.len() >= most {
                break;
            }
            let Some(number) = entry.inode.filter(|number| wanted.contains(&number.get())) else { continue };
            // debugfs puts a slash between the directory's path and the name also where the path is the root's.
            let mut path = paths::path_of(open, directory.number())
                .unwrap_or_else(|_| format!("<{}>", directory.number()).into_bytes());
            path.push(b'/');
            path.extend_from_slice(&entry.name);
            let type_matches = flags.has('c').then(|| {
                let kind = inode::read(&open.txn, number).map(|inode| inode.view().mode());
                kind.is_ok_and(|mode| dirent::FileType::from_mode(mode).0 == entry.file_type)
            });
            names.push(Named { inode: number.get(), path: Bytes(path), type_matches });
        }
        true
    });
    failed.extend(errors);
    Ok(Answer::of(Names { names }).with(failed.iter().map(|error| call.failed(error))))
}

#[derive(Serialize)]
struct Owned {
    block: u64,
    inode: Option<u32>,
}

#[derive(Serialize)]
struct Owners {
    blocks: Vec<Owned>,
}

impl Report for Owners {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "Block\tInode number")?;
        self.blocks.iter().try_for_each(|Owned { block, inode }| match inode {
            Some(inode) => writeln!(to, "{block}\t{inode}"),
            None => writeln!(to, "{block}\t<block not found>"),
        })
    }
}

/// The first of the wanted blocks' owners that is not known yet.
fn claim(inode: &Inode, piece: Piece, wanted: &mut BTreeMap<u64, Option<u32>>) {
    let (start, length) = match piece {
        Piece::ExtentNode { block, .. } | Piece::Pointers { block, .. } => (block, 1),
        Piece::Data { block, length, .. } => (block, length),
    };
    for (_, owner) in wanted.range_mut(start..start.saturating_add(length)) {
        owner.get_or_insert(inode.number().get());
    }
}

/// `icheck`.
pub fn icheck(call: &mut Call<'_>) -> Outcome {
    let words = call.words(1, usize::MAX)?;
    let parsed: Result<Vec<u64>, _> = words.iter().map(|word| number_or(&call.name, "block", word)).collect();
    let blocks = parsed?;
    let mut wanted: BTreeMap<u64, Option<u32>> = blocks.iter().map(|block| (*block, None)).collect();
    let txn = &call.open()?.txn;
    let mut failed = Vec::new();
    let errors = inodes::for_each(txn, &mut |inode| {
        let view = inode.view();
        if view.links() == 0 {
            return true;
        }
        claim(inode, Piece::ExtentNode { level: 0, block: view.attribute_block().0 }, &mut wanted);
        let mapped = matches!(view.kind(), Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink));
        let blocks = inode::sectors(txn, view) > 0;
        if mapped && blocks && walk::has_map(inode) {
            let walked = walk::pieces(txn, inode);
            failed.extend(walked.errors);
            walked.pieces.into_iter().for_each(|piece| claim(inode, piece, &mut wanted));
        }
        wanted.values().any(Option::is_none)
    });
    failed.extend(errors);
    let owner = |block: &u64| wanted.get(block).copied().flatten();
    let blocks = blocks.iter().map(|block| Owned { block: *block, inode: owner(block) }).collect();
    Ok(Answer::of(Owners { blocks }).with(failed.iter().map(|error| call.failed(error))))
}

/// What a file has to be to be found.
#[derive(Default)]
struct Predicates {
    name: Option<Vec<u8>>,
    kind: Option<FileKind>,
    size: Option<(std::cmp::Ordering, u64, u64)>,
}

impl Predicates {
    fn hold(&self, name: &[u8], inode: &Inode) -> bool {
        let view = inode.view();
        self.name.as_deref().is_none_or(|pattern| matches_glob(pattern, name))
            && self.kind.is_none_or(|kind| view.kind() == Some(kind))
            && self.size.is_none_or(|(order, size, unit)| view.size().div_ceil(unit).cmp(&size) == order)
    }
}

/// Whether a name matches a pattern of `*`, `?` and plain bytes. Goes back to the last star only, so it takes no more
/// than the product of both lengths.
fn matches_glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut within) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while within < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, within));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[within] => {
                at += 1;
                within += 1;
            }
            _ => match star {
                Some((behind, from)) => {
                    star = Some((behind, from + 1));
                    at = behind + 1;
                    within = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

fn predicates(call: &Call<'_>) -> Result<(Vec<u8>, Predicates), ext4kit_cli::exit::Failure> {
    let mut found = Predicates::default();
    let mut start = b".".to_vec();
    let mut words = call.words.iter().peekable();
    if let Some(word) = words.next_if(|word| !word.starts_with(b"-")) {
        start.clone_from(word);
    }
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| call.usage())?;
        match word.as_slice() {
            b"-name" => found.name = Some(value.clone()),
            b"-type" => {
                found.kind = Some(match value.as_slice() {
                    b"f" => FileKind::Regular,
                    b"d" => FileKind::Directory,
                    b"l" => FileKind::Symlink,
                    b"c" => FileKind::CharacterDevice,
                    b"b" => FileKind::BlockDevice,
                    b"p" => FileKind::Fifo,
                    b"s" => FileKind::Socket,
                    _ => return Err(call.refuse(format!("{} is no type: f d l c b p s", text(value)))),
                });
            }
            b"-size" => found.size = Some(size_predicate(call, value)?),
            _ => return Err(call.usage()),
        }
    }
    Ok((start, found))
}

fn size_predicate(
    call: &Call<'_>,
    value: &[u8],
) -> Result<(std::cmp::Ordering, u64, u64), ext4kit_cli::exit::Failure> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let (order, rest) = match value.split_first() {
        Some((b'+', rest)) => (Greater, rest),
        Some((b'-', rest)) => (Less, rest),
        _ => (Equal, value),
    };
    let (digits, unit) = match rest.split_last() {
        Some((b'c', digits)) => (digits, 1),
        Some((b'k', digits)) => (digits, 1 << 10),
        Some((b'm' | b'M', digits)) => (digits, 1 << 20),
        Some((b'g' | b'G', digits)) => (digits, 1 << 30),
        _ => (rest, 1),
    };
    let size = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    let size = size.ok_or_else(|| call.refuse(format!("{} is no size", text(value))))?;
    Ok((order, size, unit))
}

#[derive(Serialize)]
struct FoundFile {
    inode: u32,
    kind: &'static str,
    size: u64,
    path: Bytes,
}

#[derive(Serialize)]
struct FoundFiles {
    files: Vec<FoundFile>,
}

impl Report for FoundFiles {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        self.files.iter().try_for_each(|file| {
            to.write_all(&file.path.0)?;
            writeln!(to)
        })
    }
}

/// `find`. A directory is entered once, so that a loop ends.
pub fn find(call: &mut Call<'_>) -> Outcome {
    let (start, predicates) = predicates(call)?;
    let top = call.inode(&start)?;
    let open = call.open()?;
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    let mut stack = vec![(start, top)];
    while let Some((path, inode)) = stack.pop() {
        let name = path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty()).unwrap_or(b"/");
        if predicates.hold(name, &inode) {
            let view = inode.view();
            let kind = super::files::kind_text(view.kind());
            let (number, size) = (inode.number().get(), view.size());
            files.push(FoundFile { inode: number, kind, size, path: Bytes(path.clone()) });
        }
        if !inode.view().is_directory() || !seen.insert(inode.number()) {
            continue;
        }
        match listing::entries(&open.txn, &inode, false) {
            Err(error) => errors.push(error),
            Ok(found) => {
                errors.extend(found.errors);
                for entry in found.entries.iter().rev().filter(|entry| !dirent::is_dot(&entry.name)) {
                    let Some(number) = entry.inode else { continue };
                    let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
                    match inode::read(&open.txn, number) {
                        Ok(child) => stack.push(([&path, slash, &entry.name].concat(), child)),
                        Err(error) => errors.push(error),
                    }
                }
            }
        }
    }
    Ok(Answer::of(FoundFiles { files }).with(errors.iter().map(|error| call.failed(error))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        let table: [(&str, &str, bool); 9] = [
            ("*", "", true),
            ("*.txt", "a.txt", true),
            ("*.txt", "a.txt.gz", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a*b*c", "aXbYbZc", true),
            ("**", "x", true),
            ("", "x", false),
            ("abc", "abc", true),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(matches_glob(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
