//! Structures of a JBD2 journal: big-endian, unlike the rest of the format.
//!
//! A log is a ring of blocks. A transaction in it is one or more descriptor blocks ([`tags`]), each followed by the
//! blocks that its tags name, then revoke blocks ([`revoke`]), and at the end a commit block ([`commit`]). Every one
//! of these begins with a [`BlockHeader`] that carries the transaction's sequence number; a logged block that begins
//! with the same magic number is *escaped*: its first four bytes are zeroed and its tag says so.
//!
//! How tags look and which checksums exist follows from the features in the journal's superblock; [`LogFormat`]
//! holds what was derived from them, and every reader and writer here takes it.
//!
//! Facts: jbd2's on-disk header and the kernel's recovery code, checked on journals that kernels left behind.

pub mod commit;
mod features;
mod format;
mod header;
pub mod revoke;
pub mod superblock;
pub mod tags;

pub use features::{CompatFeatures, IncompatFeatures};
pub use format::{ChecksumVersion, LogFormat, escape, unescape};
pub use header::{BlockHeader, BlockType, MAGIC};
