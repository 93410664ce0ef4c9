//! Fast-commit records in the tail of a journal.
