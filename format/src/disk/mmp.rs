//! The multi-mount protection block.
