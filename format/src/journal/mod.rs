//! JBD2 logs: scan, list, replay.
