//! Pass 3: whether every directory hangs below the root, and says so itself.

use ext4kit_format::{InodeNumber, Place};

use super::context::Context;
use crate::finding::ConnectProblem as Problem;

/// What is known of a directory's way up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown,
    /// On the way that is being followed.
    Followed,
    /// Ends at the root, or was reported.
    Done,
}

/// Checks all directories.
pub fn check(context: &mut Context<'_>) {
    let directories = std::mem::take(&mut context.known.directories);
    let find = |number: u32| InodeNumber::new(number).and_then(|number| directories.find(number));
    if find(InodeNumber::ROOT.get()).is_none() {
        context.find(Place::Inode(InodeNumber::ROOT), Problem::RootMissing {});
    }
    let mut ways = vec![Way::Unknown; directories.len()];
    for start in 0..directories.len() {
        let mut at = start;
        let mut followed = Vec::new();
        // Each step marks a directory, and a marked one ends the walk.
        while let (Some(way), Some(directory)) = (ways.get(at).copied(), directories.get(at)) {
            if way != Way::Unknown {
                if way == Way::Followed {
                    context.find(Place::Inode(directory.inode), Problem::Loop { inode: directory.inode });
                }
                break;
            }
            mark(&mut ways, at, Way::Followed);
            followed.push(at);
            if directory.inode == InodeNumber::ROOT || context.orphans.contains(&directory.inode) {
                break;
            }
            let Some(parent) = find(directory.parent) else {
                let problem = Problem::Unconnected { inode: directory.inode, parent: directory.dotdot };
                context.find(Place::Inode(directory.inode), problem);
                break;
            };
            at = parent;
        }
        for at in followed {
            mark(&mut ways, at, Way::Done);
        }
    }
    for directory in directories.iter() {
        let root = directory.inode == InodeNumber::ROOT;
        let wanted = if root { Some(InodeNumber::ROOT) } else { InodeNumber::new(directory.parent) };
        if let Some(wanted) = wanted
            && directory.dotdot != 0
            && directory.dotdot != wanted.get()
        {
            let problem = Problem::ParentWrong { stored: directory.dotdot, wanted };
            context.find(Place::Inode(directory.inode), problem);
        }
    }
    match context.ledger.kept.lost_and_found {
        None => context.find(Place::Inode(InodeNumber::ROOT), Problem::LostAndFoundMissing {}),
        Some(inode) if find(inode.get()).is_none() => {
            context.find(Place::Inode(inode), Problem::LostAndFoundWrong { why: "is no directory" });
        }
        Some(_) => {}
    }
    context.known.directories = directories;
}

fn mark(ways: &mut [Way], at: usize, way: Way) {
    if let Some(slot) = ways.get_mut(at) {
        *slot = way;
    }
}
