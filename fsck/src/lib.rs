//! ext4kit-fsck
