//! The undo file of e2fsprogs.
