//! The three feature words of a superblock.
