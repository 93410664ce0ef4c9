//! Contents of files: `cat` and `dump`.

use std::fs::{File, FileTimes, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ext4kit_cli::exit::{Failure, FailureKind};
use ext4kit_format::disk::inode::{Inode, Timestamp};
use ext4kit_format::tree::{file, map};
use ext4kit_format::txn::Transaction;
use ext4kit_format::{Error, LogicalBlock};
use serde::Serialize;

use crate::answer::{Answer, Bytes, Outcome, Report};
use crate::session::Open;
use crate::table::Call;
use crate::words::text;

/// Bytes that are read at a time.
const STEP: usize = 1 << 20;
/// The largest file that is given as JSON.
const MOST_AS_DATA: u64 = 64 << 20;

/// Why contents did not arrive.
pub(super) enum Stopped {
    /// The image.
    Image(Error),
    /// Where they went.
    Target(io::Error),
}

/// Passes the contents of a file on, piece by piece, with the byte where each belongs. Holes are passed over.
pub(super) fn stream(
    open: &Open,
    inode: &Inode,
    to: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
) -> Result<(), Stopped> {
    let size = inode.view().size();
    let bits = open.txn.layout().geometry.block_bits();
    let mut buffer = vec![0; STEP];
    let mut at = 0u64;
    if !crate::walk::has_map(inode) {
        let most = u64::from(open.txn.layout().geometry.block_size());
        let bytes = file::read_all(&open.txn, inode, most).map_err(Stopped::Image)?;
        return to(0, &bytes).map_err(Stopped::Target);
    }
    while at < size {
        let Ok(logical) = u32::try_from(at >> bits) else {
            return Err(Stopped::Image(Error::FileTooBig(inode.number())));
        };
        let segment = map::lookup(&open.txn, inode, LogicalBlock(logical)).map_err(Stopped::Image)?;
        let end = (segment.end() << bits).min(size).max(at + 1);
        if segment.state == map::State::Hole {
            at = end;
            continue;
        }
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(STEP).min(STEP);
            let count = file::read(&open.txn, inode, at, &mut buffer[..wanted]).map_err(Stopped::Image)?;
            if count == 0 {
                return Ok(());
            }
            to(at, &buffer[..count]).map_err(Stopped::Target)?;
            at += count as u64;
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Contents {
    size: u64,
    contents: Bytes,
}

impl Report for Contents {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(&self.contents.0)
    }
}

/// `cat`.
pub fn cat(call: &mut Call<'_>) -> Outcome {
    let inode = call.inode(&call.words(1, 1)?[0])?;
    if call.json {
        let contents =
            file::read_all(&call.open()?.txn, &inode, MOST_AS_DATA).map_err(|error| call.failed(&error))?;
        return Ok(Answer::of(Contents { size: inode.view().size(), contents: Bytes(contents) }));
    }
    let name = call.name.clone();
    let open = call.session.open(&name)?;
    let out = &mut *call.out;
    let mut done = 0u64;
    let zeros = vec![0u8; STEP];
    let fill = |done: &mut u64, to: u64, out: &mut dyn Write| {
        while *done < to {
            let count = usize::try_from(to - *done).unwrap_or(STEP).min(STEP);
            out.write_all(&zeros[..count])?;
            *done += count as u64;
        }
        Ok(())
    };
    let streamed = stream(open, &inode, &mut |at, bytes| {
        fill(&mut done, at, out)?;
        done += bytes.len() as u64;
        out.write_all(bytes)
    });
    let streamed = streamed.and_then(|()| fill(&mut done, inode.view().size(), out).map_err(Stopped::Target));
    streamed.map(|()| Answer::silent()).map_err(|stopped| failure(&name, "standard output", stopped))
}

/// A failure on the way of contents.
pub(super) fn failure(command: &str, target: &str, stopped: Stopped) -> Failure {
    match stopped {
        Stopped::Image(error) => Failure::from_error(command, &error),
        Stopped::Target(error) => Failure::new(FailureKind::Io, target, error.to_string()),
    }
}

/// `dump`.
pub fn dump(call: &mut Call<'_>) -> Outcome {
    let flags = call.flags("p", 2, 2)?;
    let inode = call.inode(&flags.rest[0])?;
    let target = &flags.rest[1];
    let path = Path::new(std::ffi::OsStr::from_bytes(target));
    let opened = File::create(path).map_err(|error| {
        let what = format!("{error} while opening {} for dump_inode", text(target));
        Failure::new(FailureKind::Io, call.name.clone(), what)
    })?;
    copy_out(call.open()?, &inode, &opened).map_err(|stopped| failure(&call.name, &text(target), stopped))?;
    let kept = if flags.has('p') { keep(&inode, &opened, path) } else { Ok(()) };
    let problems = kept.err().map(|error| Failure::new(FailureKind::Io, text(target), error.to_string()));
    Ok(Answer::silent().with(problems))
}

/// Writes the contents into a file that is empty; what was a hole stays one.
pub(super) fn copy_out(open: &Open, inode: &Inode, target: &File) -> Result<(), Stopped> {
    use std::os::unix::fs::FileExt;
    stream(open, inode, &mut |at, bytes| target.write_all_at(bytes, at))?;
    target.set_len(inode.view().size()).map_err(Stopped::Target)
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole =
        if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    let nanoseconds = Duration::from_nanos(time.nanoseconds.min(999_999_999).into());
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

/// Gives a file owner, permissions and times of an inode. Who may not give files away keeps them, without a complaint.
pub(super) fn keep(inode: &Inode, target: &File, path: &Path) -> io::Result<()> {
    let view = inode.view();
    let owned = std::os::unix::fs::fchown(target, Some(view.uid()), Some(view.gid()));
    let mut mode = u32::from(view.mode() & 0o7777);
    if let Err(error) = owned {
        if error.kind() != io::ErrorKind::PermissionDenied {
            return Err(error);
        }
        // Set-id bits would lend the rights of the wrong owner.
        mode &= 0o1777;
    }
    debug_assert!(!path.as_os_str().is_empty(), "it was opened");
    target.set_permissions(Permissions::from_mode(mode))?;
    let times = FileTimes::new()
        .set_accessed(system_time(view.access_time()))
        .set_modified(system_time(view.modification_time()));
    target.set_times(times)
}
