//! Structures of a JBD2 journal: big-endian, unlike the rest of the format.
