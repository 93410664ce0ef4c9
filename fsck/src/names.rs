//! Which names lead to which inodes: paths for messages, and what a repair did to the files.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use ext4kit_format::disk::inode::InodeFlags;
use ext4kit_format::store::Store;
use ext4kit_format::tree::{dir, inode};
use ext4kit_format::txn::Transaction;
use ext4kit_format::{BlockNumber, InodeNumber, Place};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::check::Options;
use crate::checks::maps::{self, Piece, View, Visitor};
use crate::finding::{Finding, MapProblem};
use crate::opening;
use crate::repairs::fields::inode_of;
use crate::source::Source;

/// The most names that a path is made of; a deeper one is not told.
const MOST_NAMES: usize = 4096;

/// A directory, and what it calls a file.
type Name = (InodeNumber, Box<[u8]>);

/// Names of all inodes, as far as directories can be read from the root down.
#[derive(Debug, Default)]
pub struct Names {
    /// Directory and name, in the order in which directories are met.
    of: FxHashMap<InodeNumber, Vec<Name>>,
    /// Sizes in bytes.
    sizes: FxHashMap<InodeNumber, u64>,
}

/// Finds out whether the map of a directory can be walked in bounded time: no part of it is met twice.
#[derive(Default)]
struct Sound {
    nodes: FxHashSet<u64>,
    damaged: bool,
}

impl Visitor for Sound {
    fn data(&mut self, _piece: Piece) {}

    fn node(&mut self, block: BlockNumber) -> bool {
        let new = self.nodes.insert(block.0);
        self.damaged |= !new;
        new
    }

    fn problem(&mut self, _place: Place, _problem: MapProblem) {
        self.damaged = true;
    }
}

impl Names {
    /// Reads all directories that the root leads to; each is read once. What is damaged has no names.
    pub fn read(source: &Source) -> Self {
        let mut names = Self::default();
        let mut met = FxHashSet::from_iter([InodeNumber::ROOT]);
        let mut pending = vec![InodeNumber::ROOT];
        while let Some(number) = pending.pop() {
            names.read_directory(source, number, (&mut met, &mut pending));
        }
        names
    }

    fn read_directory(
        &mut self,
        source: &Source,
        number: InodeNumber,
        (met, pending): (&mut FxHashSet<InodeNumber>, &mut Vec<InodeNumber>),
    ) {
        let txn = &source.overlay;
        let Ok(directory) = inode::read_unverified(txn, number) else { return };
        if !directory.view().is_directory() {
            return;
        }
        if !directory.view().flags().contains(InodeFlags::INLINE_DATA) {
            let mut sound = Sound::default();
            maps::walk(View { source, layout: source.layout() }, number, directory.view(), &mut sound);
            if sound.damaged {
                return;
            }
        }
        let last = txn.layout().geometry.inodes_count();
        // A damaged record ends the directory; what was read before it stays.
        let _ = dir::for_each(txn, &directory, &mut |listed| {
            let target = listed.found.inode;
            if target.get() <= last && listed.name != b"." && listed.name != b".." {
                self.of.entry(target).or_default().push((number, listed.name.into()));
                if met.insert(target)
                    && let Ok(file) = inode::read_unverified(txn, target)
                {
                    self.sizes.insert(target, file.view().size());
                    if file.view().is_directory() {
                        pending.push(target);
                    }
                }
            }
            Ok(ControlFlow::Continue(()))
        });
    }

    /// The path of a name, from the root.
    fn path_of(&self, first: &Name) -> Option<String> {
        let mut parts = vec![&first.1];
        let mut at = first.0;
        while at != InodeNumber::ROOT {
            let (parent, name) = self.of.get(&at)?.first()?;
            parts.push(name);
            at = *parent;
            if parts.len() > MOST_NAMES {
                return None;
            }
        }
        let mut path = String::new();
        for name in parts.iter().rev() {
            path.push('/');
            path.push_str(&String::from_utf8_lossy(name));
        }
        Some(path)
    }

    /// All paths of an inode, in order.
    pub fn paths(&self, inode: InodeNumber) -> BTreeSet<String> {
        let names = self.of.get(&inode).map(Vec::as_slice).unwrap_or_default();
        names.iter().filter_map(|name| self.path_of(name)).collect()
    }
}

/// The files before any repair. They are read when they are first asked for: a clean check never does.
pub struct Before {
    store: Arc<dyn Store>,
    settings: Options,
    names: OnceLock<Names>,
}

impl Before {
    /// The files of a store that is not written before the last question about them.
    pub fn new(store: Arc<dyn Store>, settings: Options) -> Self {
        Self { store, settings, names: OnceLock::new() }
    }

    /// Their names.
    pub fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let opened = opening::open(Arc::clone(&self.store), &self.settings);
            opened.map(|opened| Names::read(&opened.source)).unwrap_or_default()
        })
    }

    /// A path of an inode.
    pub fn path(&self, inode: InodeNumber) -> Option<String> {
        if inode == InodeNumber::ROOT {
            return Some("/".to_owned());
        }
        let names = self.names();
        names.of.get(&inode)?.iter().find_map(|name| names.path_of(name))
    }
}

/// What was lost of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The finding's code.
    pub code: u16,
    /// What was wrong.
    pub text: String,
    /// What was done, at the cost of what could not be kept.
    pub repair: String,
}

/// A file whose names or contents a repair changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Its inode.
    pub inode: u32,
    /// Its paths before; none if no name led to it.
    pub before: BTreeSet<String>,
    /// Its paths now; none if it is gone.
    pub after: BTreeSet<String>,
    /// Its size in bytes before, where it could be read.
    pub size_before: Option<u64>,
    /// Its size in bytes now: what is kept.
    pub size_after: Option<u64>,
    /// What was lost of it.
    pub lost: Vec<Loss>,
}

/// Every file whose names differ, or of which something was lost, in order of inodes.
pub fn changes(before: &Names, after: &Names, losses: &[Finding]) -> Vec<Changed> {
    let mut lost: FxHashMap<InodeNumber, Vec<Loss>> = FxHashMap::default();
    for finding in losses {
        let verdict = finding.verdict();
        if let (Some(inode), Some(repair)) = (inode_of(&finding.place).ok(), &verdict.repair) {
            let loss = Loss { code: verdict.code, text: verdict.text.clone(), repair: repair.to_string() };
            lost.entry(inode).or_default().push(loss);
        }
    }
    let inodes: BTreeSet<InodeNumber> =
        before.of.keys().chain(after.of.keys()).chain(lost.keys()).copied().collect();
    let mut changed = Vec::new();
    for inode in inodes {
        let (paths_before, paths_after) = (before.paths(inode), after.paths(inode));
        let lost = lost.remove(&inode).unwrap_or_default();
        let sizes = (before.sizes.get(&inode).copied(), after.sizes.get(&inode).copied());
        let resized = sizes.0.zip(sizes.1).is_some_and(|(before, after)| before != after);
        if paths_before != paths_after || !lost.is_empty() || resized {
            changed.push(Changed {
                inode: inode.get(),
                before: paths_before,
                after: paths_after,
                size_before: sizes.0,
                size_after: sizes.1,
                lost,
            });
        }
    }
    changed
}

/// Writes changes, a line of JSON each.
pub fn write_lines(changed: &[Changed], to: &mut dyn Write) -> io::Result<()> {
    for file in changed {
        serde_json::to_writer(&mut *to, file)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}
