//! The hash of a name, which orders an indexed directory.
