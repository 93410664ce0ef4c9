//! An opened filesystem.
