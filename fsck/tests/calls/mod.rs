//! Calls of the program, for tests of what its callers see.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use ext4kit_testkit::image::TempImage;

/// The program with options, on an image.
pub fn command(options: &[&str], image: &TempImage) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ext4kit-fsck"));
    command.args(options).arg(image.path());
    // The machine's own settings must not decide.
    command.env("E2FSCK_CONFIG", "/nonexistent").env_remove("SOURCE_DATE_EPOCH");
    command
}

/// Exit code, standard output and standard error, the image called `IMAGE`.
pub fn told(output: Output, image: &TempImage) -> (i32, String, String) {
    let text =
        |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(&*image.path().to_string_lossy(), "IMAGE");
    (output.status.code().expect("it was not killed"), text(output.stdout), text(output.stderr))
}

/// One call without anything in its way.
pub fn fsck(options: &[&str], image: &TempImage) -> (i32, String, String) {
    told(command(options, image).output().unwrap(), image)
}

/// One call with text to read on its standard input.
#[allow(dead_code, reason = "not every test file asks questions")]
pub fn answered(mut command: Command, text: &str, image: &TempImage) -> (i32, String, String) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    told(child.wait_with_output().unwrap(), image)
}
