//! ext4kit-testkit
