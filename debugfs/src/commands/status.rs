//! The session itself: where the user stands, what there is to ask for.

use std::io::{self, Write};

use ext4kit_format::InodeNumber;
use serde::Serialize;

use crate::answer::{Answer, Bytes, Outcome, Report};
use crate::paths;
use crate::table::{COMMANDS, Call, Command, lookup};
use crate::words::text;

#[derive(Serialize)]
struct Parameters {
    open: bool,
    mode: &'static str,
    filesystem: Option<String>,
}

impl Report for Parameters {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let name = self.filesystem.as_deref().unwrap_or("--none--");
        if self.open {
            writeln!(to, "Open mode: {}", self.mode)?;
        }
        writeln!(to, "Filesystem in use: {name}")
    }
}

/// `show_debugfs_params`.
pub fn params(call: &mut Call<'_>) -> Outcome {
    call.words(0, 0)?;
    let open = call.session.open.as_ref();
    let mode = "read-only";
    Ok(Answer::of(Parameters { open: open.is_some(), mode, filesystem: open.map(|open| open.name.clone()) }))
}

/// `cd`.
pub fn cd(call: &mut Call<'_>) -> Outcome {
    let word = call.words(1, 1)?[0].clone();
    let number = call.directory(&word)?.number();
    call.session.open_mut("cd")?.current = number;
    Ok(Answer::silent())
}

/// `chroot`.
pub fn chroot(call: &mut Call<'_>) -> Outcome {
    let word = call.words(1, 1)?[0].clone();
    let number = call.directory(&word)?.number();
    call.session.open_mut("chroot")?.root = number;
    Ok(Answer::silent())
}

#[derive(Serialize)]
struct Place {
    inode: u32,
    path: Bytes,
}

#[derive(Serialize)]
struct Places {
    current: Place,
    root: Place,
}

impl Report for Places {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for (what, place) in [("[pwd]", &self.current), ("[root]", &self.root)] {
            write!(to, "{what:<8}INODE: {:6}  PATH: ", place.inode)?;
            to.write_all(&place.path.0)?;
            writeln!(to)?;
        }
        Ok(())
    }
}

/// `pwd`.
pub fn pwd(call: &mut Call<'_>) -> Outcome {
    call.words(0, 0)?;
    let open = call.open()?;
    let place = |number: InodeNumber| {
        let path = paths::path_of(open, number).map_err(|error| call.failed(&error))?;
        Ok::<_, ext4kit_cli::exit::Failure>(Place { inode: number.get(), path: Bytes(path) })
    };
    Ok(Answer::of(Places { current: place(open.current)?, root: place(open.root)? }))
}

#[derive(Serialize)]
struct HelpRow {
    name: &'static str,
    aliases: &'static [&'static str],
    arguments: &'static str,
    help: &'static str,
}

impl HelpRow {
    fn of(command: &Command) -> Self {
        let Command { name, aliases, arguments, help, .. } = *command;
        Self { name, aliases, arguments, help }
    }
}

#[derive(Serialize)]
struct Help {
    commands: Vec<HelpRow>,
    #[serde(skip)]
    one: bool,
}

impl Report for Help {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        if self.one {
            return self.commands.iter().try_for_each(|row| {
                writeln!(to, "{} {}", row.name, row.arguments)?;
                if !row.aliases.is_empty() {
                    writeln!(to, "  also: {}", row.aliases.join(", "))?;
                }
                writeln!(to, "  {}", row.help)
            });
        }
        writeln!(to, "Available debugfs requests:\n")?;
        for row in &self.commands {
            let names = [&[row.name], row.aliases].concat().join(", ");
            if names.len() > 24 {
                writeln!(to, "{names}")?;
                writeln!(to, "{:25}{}", "", row.help)?;
            } else {
                writeln!(to, "{names:<25}{}", row.help)?;
            }
        }
        Ok(())
    }
}

/// `help`.
pub fn help(call: &mut Call<'_>) -> Outcome {
    match call.words(0, 1)?.first() {
        None => list_requests(call),
        Some(word) => match lookup(word) {
            Some(command) => Ok(Answer::of(Help { commands: vec![HelpRow::of(command)], one: true })),
            None => Err(call.refuse(format!("there is no command {}", text(word)))),
        },
    }
}

/// `list_requests`.
pub fn list_requests(call: &mut Call<'_>) -> Outcome {
    call.words(0, 0)?;
    Ok(Answer::of(Help { commands: COMMANDS.iter().map(HelpRow::of).collect(), one: false }))
}

/// `quit`.
pub fn quit(call: &mut Call<'_>) -> Outcome {
    call.words(0, 0)?;
    call.session.done = true;
    Ok(Answer::silent())
}
