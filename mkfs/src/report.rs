//! What the user is told about a filesystem that is made, in the words that callers of mke2fs look for.

use std::fmt::Write as _;

use ext4kit_cli::json::Schema;
use ext4kit_format::create::{Parameters, Plan};
use serde::Serialize;
use uuid::Uuid;

/// The answer of `--json`.
pub const SCHEMA: Schema =
    Schema { tool: "ext4kit-mkfs", version: env!("CARGO_PKG_VERSION"), name: "mkfs", schema_version: 1 };

/// A filesystem that was made or would be.
#[derive(Clone, Debug, Serialize)]
pub struct Made {
    /// Whether it was only planned.
    pub dry_run: bool,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Inodes.
    pub inodes: u32,
    /// Blocks kept for the super-user.
    pub reserved_blocks: u64,
    /// Groups.
    pub groups: u32,
    /// Blocks of the journal.
    pub journal_blocks: u32,
    /// Names of the features.
    pub features: Vec<String>,
    /// The UUID.
    pub uuid: String,
    /// Blocks with copies of the superblock.
    pub superblock_copies: Vec<u64>,
}

impl Made {
    /// What a plan makes.
    pub fn new(plan: &Plan, parameters: &Parameters, dry_run: bool) -> Self {
        let geometry = &plan.layout.geometry;
        let copies = geometry.backup_groups().into_iter().filter_map(|group| geometry.superblock_copy(group));
        Self {
            dry_run,
            blocks: geometry.blocks_count(),
            block_size: geometry.block_size(),
            inodes: geometry.inodes_count(),
            reserved_blocks: plan.superblock.reserved_blocks_count(),
            groups: geometry.group_count(),
            journal_blocks: parameters.journal.map_or(0, |journal| journal.blocks),
            features: geometry.features().iter().map(|feature| feature.to_string()).collect(),
            uuid: Uuid::from_bytes(parameters.identity.uuid).to_string(),
            superblock_copies: copies.map(|block| block.0).collect(),
        }
    }

    /// What `-v` adds: the filesystem's shape, as mke2fs tells it.
    pub fn details(&self) -> String {
        let Self { block_size, inodes, blocks, reserved_blocks, groups, journal_blocks, .. } = self;
        format!(
            "Block size={block_size}\n{inodes} inodes, {blocks} blocks\n{reserved_blocks} blocks reserved for the super \
             user\n{groups} block groups\nJournal: {journal_blocks} blocks\nFeatures: {}\n",
            self.features.join(" ")
        )
    }

    /// The lines that mke2fs prints first.
    pub fn text(&self) -> String {
        let mut text = format!(
            "Creating filesystem with {} {}k blocks and {} inodes\nFilesystem UUID: {}\n",
            self.blocks,
            self.block_size / 1024,
            self.inodes,
            self.uuid
        );
        if !self.superblock_copies.is_empty() {
            text.push_str("Superblock backups stored on blocks: ");
            for (index, block) in self.superblock_copies.iter().enumerate() {
                let before = match index {
                    0 => "\n\t",
                    index if index % 10 == 0 => ", \n\t",
                    _ => ", ",
                };
                let _ = write!(text, "{before}{block}");
            }
            text.push('\n');
        }
        text.push('\n');
        text
    }
}
