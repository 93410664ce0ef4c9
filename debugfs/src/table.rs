//! Every command: names, arguments, help, handler.

use std::io::Write;

use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_format::Error;
use ext4kit_format::disk::inode::Inode;
use ext4kit_format::tree::inode;

use crate::answer::Outcome;
use crate::commands::{blocks, contents, directories, dumps, files, hashes, journal, places, quotas, search};
use crate::commands::{space, stats, status, trees, xattrs};
use crate::paths;
use crate::session::{Open, Session};
use crate::words::{Flags, Word, text};

/// A command.
pub struct Command {
    /// Its full name.
    pub name: &'static str,
    /// Its other names.
    pub aliases: &'static [&'static str],
    /// What follows the name.
    pub arguments: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// The name of its answer's schema.
    pub schema: &'static str,
    /// What runs it.
    pub handler: Handler,
}

/// What runs a command.
pub type Handler = fn(&mut Call<'_>) -> Outcome;

/// A command on its way.
pub struct Call<'a> {
    /// What it works on.
    pub session: &'a mut Session,
    /// The row of the table.
    pub command: &'static Command,
    /// The name that was typed.
    pub name: String,
    /// The words behind the name.
    pub words: Vec<Word>,
    /// Where a command may stream contents that are too large for a value. Not used for JSON.
    pub out: &'a mut dyn Write,
    /// Whether the answer will be JSON.
    pub json: bool,
}

impl Call<'_> {
    /// The failure that shows how the command is used.
    pub fn usage(&self) -> Failure {
        let text = format!("Usage: {} {}", self.command.name, self.command.arguments);
        Failure::usage(self.name.clone(), text.trim_end())
    }

    /// Reads flags; the number of other words has to lie in the range.
    pub fn flags(&self, letters: &str, least: usize, most: usize) -> Result<Flags, Failure> {
        let flags = Flags::parse(&self.words, letters).map_err(|wrong| {
            let usage = self.usage();
            Failure { what: format!("{wrong}; {}", usage.what), ..usage }
        })?;
        if (least..=most).contains(&flags.rest.len()) { Ok(flags) } else { Err(self.usage()) }
    }

    /// The words, whose number has to lie in the range. A word that begins with a dash is a word.
    pub fn words(&self, least: usize, most: usize) -> Result<&[Word], Failure> {
        if (least..=most).contains(&self.words.len()) { Ok(&self.words) } else { Err(self.usage()) }
    }

    /// The open filesystem.
    pub fn open(&self) -> Result<&Open, Failure> {
        self.session.open(&self.name)
    }

    /// The inode that a file's name or `<number>` stands for.
    pub fn inode(&self, word: &[u8]) -> Result<Inode, Failure> {
        let open = self.open()?;
        let number = paths::find(open, word).map_err(|error| self.not_found(word, &error))?;
        inode::read(&open.txn, number).map_err(|error| self.failed(&error))
    }

    /// The same for a directory.
    pub fn directory(&self, word: &[u8]) -> Result<Inode, Failure> {
        let inode = self.inode(word)?;
        if inode.view().is_directory() {
            Ok(inode)
        } else {
            Err(Failure::new(FailureKind::Invalid, text(word), "Ext2 inode is not a directory"))
        }
    }

    /// A path that could not be followed. One that leads nowhere is told in debugfs' words, for scripts look for them:
    /// its exit code says nothing.
    pub fn not_found(&self, word: &[u8], error: &Error) -> Failure {
        match error {
            Error::NotFound(_) => {
                Failure::new(FailureKind::Invalid, text(word), "File not found by ext2_lookup")
            }
            error => Failure::from_error(&text(word), error),
        }
    }

    /// A failure of this command.
    pub fn failed(&self, error: &Error) -> Failure {
        Failure::from_error(&self.name, error)
    }

    /// A failure of this command with a text.
    pub fn refuse(&self, what: impl Into<String>) -> Failure {
        Failure::new(FailureKind::Invalid, self.name.clone(), what)
    }
}

macro_rules! command {
    ($name:literal, [$($alias:literal),*], $arguments:literal, $help:literal, $handler:path) => {
        Command {
            name: $name,
            aliases: &[$($alias),*],
            arguments: $arguments,
            help: $help,
            schema: concat!("debugfs-", $name),
            handler: $handler,
        }
    };
}

/// The commands.
pub const COMMANDS: &[Command] = &[
    command!("show_debugfs_params", ["params"], "", "Show how the filesystem is open", status::params),
    command!("show_super_stats", ["stats"], "[-h]", "Show superblock and groups", stats::show_super_stats),
    command!("features", ["feature"], "", "List the filesystem's features", stats::features),
    command!("supported_features", [], "", "List the features that are known", stats::supported_features),
    command!(
        "change_root_directory",
        ["chroot"],
        "<directory>",
        "Change where absolute paths begin",
        status::chroot
    ),
    command!("change_working_directory", ["cd"], "<directory>", "Change the working directory", status::cd),
    command!("print_working_directory", ["pwd"], "", "Print the working directory", status::pwd),
    command!(
        "list_directory",
        ["ls"],
        "[-c] [-d] [-l] [-p] [-r] [file]",
        "List a directory",
        directories::ls
    ),
    command!("show_inode_info", ["stat"], "<file>", "Show an inode", files::stat),
    command!(
        "dump_extents",
        ["extents", "ex"],
        "[-n] [-l] <file>",
        "List the extents of an inode",
        blocks::extents
    ),
    command!("blocks", [], "<file>", "List the blocks of an inode", blocks::blocks),
    command!("bmap", [], "<file> <logical block>", "Tell where a block of a file lies", blocks::bmap),
    command!("cat", [], "<file>", "Print a file", contents::cat),
    command!("dump_inode", ["dump"], "[-p] <file> <output_file>", "Copy a file out", contents::dump),
    command!("rdump", [], "<directory>... <native directory>", "Copy directories out", trees::rdump),
    command!("htree_dump", ["htree"], "<directory>", "Show the hash tree of a directory", hashes::htree_dump),
    command!("dx_hash", ["hash"], "[-h hash_alg] [-s hash_seed] <filename>", "Hash a name", hashes::dx_hash),
    command!(
        "dirsearch",
        [],
        "<directory> <filename>",
        "Tell where a name lies in a directory",
        directories::dirsearch
    ),
    command!("imap", [], "<file>", "Tell where an inode lies", places::imap),
    command!("testi", [], "<file>", "Tell whether an inode is in use", space::testi),
    command!("testb", [], "<block> [count]", "Tell whether blocks are in use", space::testb),
    command!("find_free_block", ["ffb"], "[count [goal]]", "Find free blocks", space::find_free_block),
    command!("find_free_inode", ["ffi"], "[directory [mode]]", "Find a free inode", space::find_free_inode),
    command!("ncheck", [], "[-c] <inode number> ...", "Find the names of inodes", search::ncheck),
    command!("icheck", [], "<block number> ...", "Find the inodes that blocks belong to", search::icheck),
    command!(
        "find",
        [],
        "[directory] [-name GLOB] [-type LETTER] [-size [+|-]N[c|k|m|g]]",
        "Find files",
        search::find
    ),
    command!("tree", [], "[directory]", "Show a directory as a tree", trees::tree),
    command!(
        "logdump",
        [],
        "[-acsOS] [-n<num_trans>] [-b<block>] [-i<filespec>] [-f<journal_file>] [output_file]",
        "Show the journal",
        journal::logdump
    ),
    command!("ea_list", [], "<file>", "List extended attributes", xattrs::ea_list),
    command!(
        "ea_get",
        [],
        "[-f outfile]|[-xVC] [-r] <file> <attr>",
        "Get an extended attribute",
        xattrs::ea_get
    ),
    command!(
        "block_dump",
        ["bdump", "bd"],
        "[-x] [-f inode] <block>",
        "Show the bytes of a block",
        dumps::block_dump
    ),
    command!(
        "inode_dump",
        ["idump", "id"],
        "[-b]|[-e]|[-x] <file>",
        "Show the bytes of an inode",
        dumps::inode_dump
    ),
    command!("list_quota", ["lq"], "<quota_type>", "List quotas", quotas::list_quota),
    command!("get_quota", ["gq"], "<quota_type> <id>", "Show one quota", quotas::get_quota),
    command!("help", [], "[command]", "Tell about a command", status::help),
    command!("list_requests", ["lr", "?"], "", "List the commands", status::list_requests),
    command!("quit", ["q"], "", "Leave", status::quit),
];

/// The commands of debugfs that change the filesystem, or are not built for another reason.
pub const NOT_BUILT: &[&str] = &[
    "open_filesys",
    "open",
    "close_filesys",
    "close",
    "freefrag",
    "e2freefrag",
    "filefrag",
    "dirty_filesys",
    "dirty",
    "init_filesys",
    "link",
    "ln",
    "unlink",
    "mkdir",
    "rmdir",
    "rm",
    "kill_file",
    "copy_inode",
    "clri",
    "freei",
    "seti",
    "freeb",
    "setb",
    "modify_inode",
    "mi",
    "expand_dir",
    "expand",
    "mknod",
    "list_deleted_inodes",
    "lsdel",
    "undelete",
    "undel",
    "write",
    "lcd",
    "set_super_value",
    "ssv",
    "set_inode_field",
    "sif",
    "set_block_group",
    "set_bg",
    "fallocate",
    "punch",
    "truncate",
    "symlink",
    "dump_unused",
    "set_current_time",
    "dump_mmp",
    "set_mmp_value",
    "smmp",
    "extent_open",
    "eo",
    "zap_block",
    "zap",
    "ea_set",
    "ea_rm",
    "journal_open",
    "jo",
    "journal_close",
    "jc",
    "journal_write",
    "jw",
    "journal_run",
    "jr",
    "orphan_inodes",
    "orphan",
];

/// The command of a name.
pub fn lookup(name: &[u8]) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| {
        command.name.as_bytes() == name || command.aliases.iter().any(|alias| alias.as_bytes() == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_given_twice() {
        let mut names: Vec<_> =
            COMMANDS.iter().flat_map(|c| c.aliases.iter().copied().chain([c.name])).collect();
        names.extend(NOT_BUILT);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
