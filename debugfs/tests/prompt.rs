//! The conversation at a terminal, which `script` plays.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ext4kit_testkit::image::TempImage;
use ext4kit_testkit::{fixture, oracle};

/// What the editor writes last before it waits for keys: the cursor behind the prompt.
const PROMPT: &[u8] = b"debugfs:  \r\x1b[10C\x1b[?2026l";

/// What is on the screen after keys were typed; the history lies in a file of this folder.
fn converse(folder: &Path, keys: &str, variables: &[(&str, &str)]) -> Option<String> {
    let script = oracle::find("script")?;
    let image = TempImage::of(&fixture::load("images/small-ext4.img.zst")).unwrap();
    let program =
        format!("stty rows 10; {} {}", env!("CARGO_BIN_EXE_ext4kit-debugfs"), image.path().display());
    let mut command = Command::new(script);
    command.args(["-qec", &program, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.env("TERM", "xterm").env("TZ", "GMT0").env("SHELL", "/bin/sh");
    command.env("EXT4KIT_HISTORY", history(folder)).env("DEBUGFS_PAGER", "__none__");
    let mut child = command.envs(variables.iter().copied()).spawn().unwrap();
    let (mut keyboard, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut screen = Vec::new();
    let mut buffer = [0; 4096];
    for line in keys.split_inclusive('\r') {
        // The editor takes the keyboard over for each line anew; what was typed before it did is lost.
        let before = screen.len();
        while !screen[before..].windows(PROMPT.len()).any(|seen| seen == PROMPT) {
            let count = output.read(&mut buffer).unwrap();
            assert_ne!(count, 0, "the program ended: {}", String::from_utf8_lossy(&screen));
            screen.extend_from_slice(&buffer[..count]);
        }
        keyboard.write_all(line.as_bytes()).unwrap();
    }
    output.read_to_end(&mut screen).unwrap();
    child.wait().unwrap();
    Some(String::from_utf8_lossy(&screen).into_owned())
}

fn history(folder: &Path) -> PathBuf {
    folder.join("state/history")
}

#[test]
fn lines_are_kept_for_the_next_session() {
    let folder = tempfile::tempdir().unwrap();
    let Some(screen) = converse(folder.path(), "cat /hello\rquit\r", &[]) else { return };
    assert!(screen.contains("\nhello\r"), "{screen:?}");
    let kept = std::fs::read_to_string(history(folder.path())).unwrap();
    assert!(kept.contains("cat /hello\nquit\n"), "{kept:?}");
    let mode = std::fs::metadata(history(folder.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Twice up, to the line before `quit`.
    let screen = converse(folder.path(), "\x1b[A\x1b[A\rquit\r", &[]).unwrap();
    assert!(screen.contains("\nhello\r"), "{screen:?}");
    let none = tempfile::tempdir().unwrap();
    converse(none.path(), "cat /hello\rquit\r", &[("EXT4KIT_HISTORY", "")]);
    assert!(!history(none.path()).exists());
}

#[test]
fn commands_and_paths_are_completed() {
    let folder = tempfile::tempdir().unwrap();
    let Some(screen) = converse(folder.path(), "cat /hel\t\rbmap di\tfi\t 0\rpw\t\rquit\r", &[]) else {
        return;
    };
    assert!(screen.contains("\nhello\r"), "{screen:?}");
    assert!(screen.contains("[pwd]   INODE:      2"), "{screen:?}");
    let kept = std::fs::read_to_string(history(folder.path())).unwrap();
    assert!(kept.contains("cat /hello\nbmap dir/file 0\npwd\n"), "{kept:?}");
}

#[test]
fn long_answers_go_through_the_pager() {
    let folder = tempfile::tempdir().unwrap();
    let keys = "cat /hello\rstats\rquit\r";
    let Some(screen) = converse(folder.path(), keys, &[("DEBUGFS_PAGER", "sed s/^/paged:/")]) else { return };
    assert!(screen.contains("paged:Filesystem UUID:"), "{screen:?}");
    assert!(screen.contains("\nhello\r") && !screen.contains("paged:hello"), "{screen:?}");
    let screen = converse(folder.path(), keys, &[("PAGER", "sed s/^/paged:/")]).unwrap();
    assert!(screen.contains("Filesystem UUID:") && !screen.contains("paged:"), "{screen:?}");
    // A pager that its reader leaves early does not end the conversation.
    let screen = converse(folder.path(), keys, &[("DEBUGFS_PAGER", "true")]).unwrap();
    assert!(!screen.contains("Filesystem UUID:"), "{screen:?}");
}
