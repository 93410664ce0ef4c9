//! Quotas, read from the tree in the quota file.

use std::collections::HashSet;
use std::io::{self, Write};

use ext4kit_cli::exit::Failure;
use ext4kit_format::disk::features::RoCompat;
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::disk::quota::{self, BLOCK_SIZE, QuotaHeader, QuotaKind, QuotaRecord, Revision};
use ext4kit_format::tree::{file, inode};
use ext4kit_format::{Defect, InodeNumber, Place, Result};
use serde::Serialize;

use crate::answer::{Answer, Outcome, Report};
use crate::session::Open;
use crate::table::Call;
use crate::words::{number, text};

#[derive(Serialize)]
struct Row {
    id: u32,
    space: u64,
    space_soft: u64,
    space_hard: u64,
    inodes: u64,
    inodes_soft: u64,
    inodes_hard: u64,
}

#[derive(Serialize)]
struct Quotas {
    kind: &'static str,
    quotas: Vec<Row>,
}

impl Report for Quotas {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let id = format!("{} id", self.kind);
        writeln!(
            to,
            "{id:>10} {:>10} {:>8} {:>8}    {:>8} {:>8} {:>8}",
            "space", "quota", "limit", "inodes", "quota", "limit"
        )?;
        self.quotas.iter().try_for_each(|row| {
            let Row { id, space, space_soft, space_hard, inodes, inodes_soft, inodes_hard } = row;
            // Identifiers are printed as signed numbers, as debugfs does.
            let id = id.cast_signed();
            writeln!(
                to,
                "{id:10} {space:10} {space_soft:8} {space_hard:8}    {inodes:8} {inodes_soft:8} {inodes_hard:8}"
            )
        })
    }
}

impl From<&QuotaRecord> for Row {
    fn from(record: &QuotaRecord) -> Self {
        Self {
            id: record.id,
            space: record.space,
            space_soft: record.space_soft.saturating_mul(1024),
            space_hard: record.space_hard.saturating_mul(1024),
            inodes: record.inodes,
            inodes_soft: record.inode_soft,
            inodes_hard: record.inode_hard,
        }
    }
}

/// The quota file that a word names.
fn quota_file(
    call: &Call<'_>,
    word: &[u8],
) -> std::result::Result<(QuotaKind, &'static str, Inode), Failure> {
    let open = call.open()?;
    let superblock = open.image.superblock();
    let (kind, name, number) = match word {
        b"user" => (QuotaKind::User, "user", superblock.s_usr_quota_inum.get()),
        b"group" => (QuotaKind::Group, "group", superblock.s_grp_quota_inum.get()),
        b"project" => (QuotaKind::Project, "project", superblock.s_prj_quota_inum.get()),
        _ => {
            let what = format!("Invalid quota type: {} (valid types are: user group project)", text(word));
            return Err(Failure::usage(call.name.clone(), what));
        }
    };
    if !superblock.features().ro_compat.contains(RoCompat::QUOTA) {
        return Err(call.refuse("quota feature not enabled"));
    }
    let number = InodeNumber::new(number).ok_or_else(|| call.refuse(format!("there is no {name} quota")))?;
    let inode = inode::read(&open.txn, number).map_err(|error| call.failed(&error))?;
    Ok((kind, name, inode))
}

/// A quota file being read. Blocks of the tree are met once, so the file's size bounds the walk.
struct Reader<'a> {
    open: &'a Open,
    inode: &'a Inode,
    revision: Revision,
    blocks: u32,
    seen: HashSet<u32>,
    found: Vec<QuotaRecord>,
}

fn block(open: &Open, inode: &Inode, index: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0; BLOCK_SIZE];
    file::read(&open.txn, inode, u64::from(index) * BLOCK_SIZE as u64, &mut bytes)?;
    Ok(bytes)
}

fn read(open: &Open, kind: QuotaKind, inode: &Inode) -> (Vec<QuotaRecord>, Option<ext4kit_format::Error>) {
    let blocks = u32::try_from(inode.view().size() / BLOCK_SIZE as u64).unwrap_or(u32::MAX);
    let place = |index| Place::QuotaBlock { inode: inode.number(), index };
    let first = block(open, inode, 0);
    let revision = first.and_then(|bytes| {
        let parsed = QuotaHeader::parse(&bytes, kind, blocks).map(|(_, revision)| revision);
        parsed.map_err(|defect| defect.at(place(0)))
    });
    let revision = match revision {
        Ok(revision) => revision,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut reader = Reader { open, inode, revision, blocks, seen: HashSet::new(), found: Vec::new() };
    let error = reader.node(quota::TREE_ROOT, 0).err();
    (reader.found, error)
}

impl Reader<'_> {
    /// A block of the tree and what hangs from it; the depth is that of the format, so this may call itself.
    fn node(&mut self, index: u32, level: u8) -> Result<()> {
        let place = Place::QuotaBlock { inode: self.inode.number(), index };
        let bytes = block(self.open, self.inode, index)?;
        if level == quota::TREE_DEPTH {
            if self.seen.insert(index) {
                let records = quota::records(&bytes, self.revision).map_err(|defect| defect.at(place))?;
                self.found.extend(records.into_iter().map(|(_, record)| record));
            }
            return Ok(());
        }
        if !self.seen.insert(index) {
            return Err(Defect::Loop { what: "quota tree" }.at(place));
        }
        let children: Vec<(u8, u32)> = quota::children(&bytes).collect();
        for (_, child) in children {
            quota::check_block("quota tree reference", child, self.blocks)
                .map_err(|defect| defect.at(place.clone()))?;
            if child != 0 {
                self.node(child, level + 1)?;
            }
        }
        Ok(())
    }
}

/// `list_quota`.
pub fn list_quota(call: &mut Call<'_>) -> Outcome {
    let words = call.words(1, 1)?;
    let (kind, name, inode) = quota_file(call, &words[0])?;
    let (records, error) = read(call.open()?, kind, &inode);
    let quotas = Quotas { kind: name, quotas: records.iter().map(Row::from).collect() };
    Ok(Answer::of(quotas).with(error.map(|error| call.failed(&error))))
}

/// `get_quota`.
pub fn get_quota(call: &mut Call<'_>) -> Outcome {
    let words = call.words(2, 2)?;
    let id = number(&words[1]).and_then(|id| u32::try_from(id).ok());
    let id = id.ok_or_else(|| Failure::usage(call.name.clone(), format!("Bad id - {}", text(&words[1]))))?;
    let (kind, name, inode) = quota_file(call, &words[0])?;
    let (records, error) = read(call.open()?, kind, &inode);
    let rows: Vec<Row> = records.iter().filter(|record| record.id == id).map(Row::from).collect();
    let missing = rows.is_empty().then(|| call.refuse(format!("{name} {id} has no quota record")));
    let answer =
        if rows.is_empty() { Answer::silent() } else { Answer::of(Quotas { kind: name, quotas: rows }) };
    Ok(answer.with(error.map(|error| call.failed(&error))).with(missing))
}
