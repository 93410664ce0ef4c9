//! What stays the same while a filesystem is open: geometry, features, checksum seeds, directory hash.

/// The shape of a filesystem.
#[derive(Clone, Debug)]
pub struct Layout {}
