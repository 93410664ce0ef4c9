//! Blocks of the orphan file.
