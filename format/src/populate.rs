//! Filling a filesystem from a tree of files.
