//! Pass 2: names that are in a directory twice.
//!
//! Each name is remembered by 16 bytes until its directory is over; then equal hashes are looked for, and only where there
//! are any are names compared. In a sound hash tree equal names lie in one leaf, or in two that share a hash where they
//! meet, so of each leaf only the names at its edges stay.

use std::hash::Hasher;

use ext4kit_format::InodeNumber;
use ext4kit_format::disk::dirhash::{self, HashVersion};
use rustc_hash::FxHasher;

/// A name: its hash, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    hash: u64,
    /// The block, by its place among those of the directory.
    pub at: u32,
    /// Where in the block its entry begins, in bytes.
    pub offset: u32,
}

/// The names of a directory that were met so far.
#[derive(Debug, Default)]
pub struct Names {
    met: Vec<Named>,
    /// Whether a name was where the hash tree does not look for it: then its double may be anywhere.
    pub stray: bool,
}

/// How the names of a directory are hashed: as its tree does, else in any way that is quick.
#[derive(Clone, Copy, Debug)]
pub struct Hashing {
    /// The tree's hash, where there is a tree whose hash can be computed.
    pub version: Option<HashVersion>,
    /// The seed of the filesystem.
    pub seed: [u32; 4],
}

impl Hashing {
    /// The hash of a name; in its upper half that of the tree.
    pub fn hash(self, name: &[u8]) -> u64 {
        if let Some(hash) = self.version.and_then(|version| dirhash::hash(version, self.seed, name)) {
            return u64::from(hash.major) << 32 | u64::from(hash.minor);
        }
        let mut hasher = FxHasher::default();
        hasher.write(name);
        hasher.finish()
    }
}

/// The least and the largest hash of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashRange {
    /// The least.
    pub least: u32,
    /// The largest.
    pub most: u32,
}

impl HashRange {
    /// Whether a name of this hash belongs into the leaf.
    pub fn contains(self, hash: u64) -> bool {
        let major = hash >> 32;
        major >= self.least.into() && major <= self.most.into()
    }

    /// Whether names of this hash may be in another leaf as well.
    fn is_edge(self, hash: u64) -> bool {
        let major = hash >> 32;
        major <= u64::from(self.least | 1) || major >= u64::from(self.most & !1)
    }
}

impl Names {
    /// Remembers a name.
    pub fn add(&mut self, hash: u64, at: u32, offset: u32) {
        self.met.push(Named { hash, at, offset });
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.met.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.met.is_empty()
    }

    /// Forgets the names from one on, all of one leaf, that cannot be met again and are not twice in the leaf.
    pub fn close_leaf(&mut self, from: usize, range: HashRange) {
        let Some(leaf) = self.met.get_mut(from..) else { return };
        leaf.sort_unstable();
        let (mut kept, mut before) = (from, None);
        for at in from..self.met.len() {
            let Some(named) = self.met.get(at).copied() else { break };
            let after = at.checked_add(1).and_then(|next| self.met.get(next)).map(|next| next.hash);
            let twice = before == Some(named.hash) || after == Some(named.hash);
            before = Some(named.hash);
            if twice || range.is_edge(named.hash) {
                self.met.swap(kept, at);
                kept = kept.saturating_add(1);
            }
        }
        self.met.truncate(kept);
    }

    /// Takes over the names of a later part of the directory.
    pub fn append(&mut self, later: &mut Self) {
        self.met.append(&mut later.met);
        self.stray |= later.stray;
    }

    /// The entries whose names were met before, with these names, in the order of the directory.
    pub fn repeated(mut self, look: impl Fn(Named) -> Option<Look>) -> Vec<(Named, Vec<u8>)> {
        self.met.sort_unstable();
        let mut found = Vec::new();
        for alike in self.met.chunk_by(|left, right| left.hash == right.hash) {
            if alike.len() < 2 {
                continue;
            }
            let mut names: Vec<(Look, Named)> =
                alike.iter().filter_map(|named| Some((look(*named)?, *named))).collect();
            names.sort_by(|left, right| (&left.0.name, left.1).cmp(&(&right.0.name, right.1)));
            for ((before, _), (again, named)) in names.iter().zip(names.iter().skip(1)) {
                if before.name == again.name && !again.is_told_with(before) {
                    found.push((*named, again.name.clone()));
                }
            }
        }
        found.sort_unstable_by_key(|(named, _)| (named.at, named.offset));
        found
    }
}

/// An entry that is looked at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its name.
    pub name: Vec<u8>,
    /// What it names.
    pub inode: InodeNumber,
    /// Whether that is a directory.
    pub is_directory: bool,
}

impl Look {
    /// Whether it is the second name of a directory beside the other entry, which is told as such.
    fn is_told_with(&self, other: &Self) -> bool {
        self.is_directory && self.inode == other.inode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(names: &[&str]) -> impl Fn(Named) -> Option<Look> {
        move |named| {
            let name = names.get(named.offset as usize)?.as_bytes().to_vec();
            Some(Look { name, inode: InodeNumber::ROOT, is_directory: false })
        }
    }

    fn repeated(names: Names, texts: &[&str]) -> Vec<u32> {
        names.repeated(look(texts)).into_iter().map(|(named, _)| named.offset).collect()
    }

    #[test]
    fn only_equal_names_are_repeated_and_not_equal_hashes() {
        let texts = ["a", "b", "a", "c", "a", "b"];
        for same_hash in [true, false] {
            let mut names = Names::default();
            for (at, text) in (0u32..).zip(texts) {
                let hash = if same_hash { 1 } else { text.as_bytes()[0].into() };
                names.add(hash, 0, at);
            }
            assert_eq!(repeated(names, &texts), [2, 4, 5]);
        }
    }

    #[test]
    fn a_leaf_keeps_its_edges_and_what_is_twice_in_it() {
        let range = HashRange { least: 10, most: 31 };
        let mut names = Names::default();
        names.add(5 << 32, 0, 0);
        for (offset, major) in (0u32..).zip([12u64, 10, 30, 20, 14, 20, 16]) {
            names.add(major << 32, 1, offset);
        }
        names.close_leaf(1, range);
        let left: Vec<u64> = names.met.iter().map(|named| named.hash >> 32).collect();
        assert_eq!(left, [5, 10, 20, 20, 30]);
    }
}
