//! Block and inode bitmaps.
