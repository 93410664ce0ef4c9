//! ext4kit-cli
