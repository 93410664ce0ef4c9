//! Extent trees: header, leaf and index records, and the checksum tail of a node.
