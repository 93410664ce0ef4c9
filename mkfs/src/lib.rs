//! ext4kit-mkfs
