//! An empty filesystem, from geometry to blocks.
