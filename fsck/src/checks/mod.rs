//! The passes, one file per subject.
//!
//! | room | what it is for |
//! | --- | --- |
//! | [`context`] | what the passes know and hand on to each other |
//! | [`part`], [`parallel`] | passes in parts on many threads, taken together in order |
//! | [`bits`], [`claims`], [`directory_list`] | what all threads fill in: sets, counts, who owns a cluster, who names a directory |
//! | [`superblock`], [`groups`], [`journal`] | pass 0 |
//! | [`inodes`], [`plain`], [`maps`], [`special`], [`attributes`], [`shared`] | pass 1: start reading at [`inodes`] |
//! | [`directories`], [`index`], [`names`] | pass 2 |
//! | [`connect`], [`links`], [`bitmaps`] | passes 3, 4 and 5 |

pub mod attributes;
pub mod bitmaps;
pub mod bits;
pub mod claims;
pub mod connect;
pub mod context;
pub mod directories;
pub mod directory_list;
pub mod disguise;
pub mod groups;
pub mod index;
pub mod inodes;
pub mod journal;
pub mod links;
pub mod maps;
pub mod names;
pub mod parallel;
pub mod part;
pub mod plain;
pub mod proof;
pub mod shared;
pub mod special;
pub mod superblock;
