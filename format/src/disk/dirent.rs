//! Directory entries and the checksum tail of a directory block.
