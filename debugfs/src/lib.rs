//! ext4kit-debugfs
