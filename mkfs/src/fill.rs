//! Filling the new filesystem from a directory (`-d`).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ext4kit_cli::exit::Failure;
use ext4kit_cli::time::Now;
use ext4kit_format::Error;
use ext4kit_format::disk::inode::Timestamp;
use ext4kit_format::populate::{DirectorySource, Identity, PopulateOptions, ReadAhead, populate};
use ext4kit_format::txn::{Overlay, forget_old_filesystem};

use crate::extended::Extended;

/// The variable to which mke2fs brings the times of the source back.
const CLAMPING_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// Opens the directory to copy from.
pub fn open(path: &Path, extended: &Extended) -> Result<DirectorySource, Failure> {
    DirectorySource::open(path, !extended.no_copy_xattrs).map_err(|error| failure(&error))
}

/// How to copy.
pub fn options(extended: &Extended, now: Now) -> PopulateOptions {
    let created = Timestamp { seconds: now.seconds, nanoseconds: now.nanoseconds };
    PopulateOptions {
        created,
        latest: (now.variable == Some(CLAMPING_VARIABLE)).then_some(created),
        keep_root_owner: extended.root_owner.is_some(),
        keep_root_mode: extended.root_mode.is_some(),
    }
}

/// Copies the tree. An old filesystem on the target is made unrecognisable first, since contents are written at once and
/// the new superblock only at the end: what is left after a failure is no filesystem.
pub fn fill(
    overlay: &mut Overlay,
    (mut source, target): (DirectorySource, &Path),
    options: &PopulateOptions,
) -> Result<(), Failure> {
    // A device's node in the tree is copied as a node.
    if let Ok(found) = target.metadata()
        && found.is_file()
    {
        source.set_target(Identity { device: found.dev(), inode: found.ino() });
    }
    let filled = forget_old_filesystem(overlay)
        .and_then(|()| populate(overlay, &mut ReadAhead::new(source)?, options).map(drop));
    filled.map_err(|error| failure(&error))
}

/// Errors of the source name their path themselves.
fn failure(error: &Error) -> Failure {
    match error {
        Error::InSource { path, source } => {
            let inner = Failure::from_error("", source);
            let hint = match **source {
                Error::NoSpace => Some("the filesystem is too small for the tree"),
                Error::NoInodes => Some("more inodes can be had with -N or -i"),
                Error::AttributeTooBig(_) => Some("the feature ea_inode or a larger inode (-I) makes room"),
                _ => None,
            };
            let failure = Failure::new(inner.kind, path.clone(), inner.what);
            hint.into_iter().fold(failure, Failure::with_hint)
        }
        error => Failure::from_error("", error),
    }
}
