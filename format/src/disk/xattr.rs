//! Extended attributes in inodes and blocks.
