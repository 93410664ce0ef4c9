//! Root and inner nodes of an indexed directory.
