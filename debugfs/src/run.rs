//! All of it in order: options, filesystem, commands, exit code.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use ext4kit_cli::arguments;
use ext4kit_cli::exit::{Convention, Failure, FailureKind};
use ext4kit_cli::json::Schema;
use ext4kit_cli::report as output;

use crate::answer::{Answer, Outcome};
use crate::options::Options;
use crate::prompt;
use crate::session::{self, Session};
use crate::table::{Call, Command, NOT_BUILT, lookup};
use crate::words;

const PROGRAM: &str = "debugfs";
/// Scripts echo their lines behind it.
const PROMPT: &str = "debugfs: ";

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It did what it should, or was empty.
    Well,
    /// The command failed.
    Failed,
    /// There is no such command.
    Unknown,
}

/// Runs the program with its arguments, the first of which is its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let classic = arguments.first().is_some_and(|name| is_classic(name.as_bytes()));
    let options = match arguments::parse::<Options>(arguments, Convention::Plain) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let version = format!("{PROGRAM} {} (ext4kit)", env!("CARGO_PKG_VERSION"));
    if classic || options.version {
        // debugfs begins with such a line, and callers skip it.
        let _ = writeln!(io::stderr(), "{version}");
    }
    if options.version {
        return ExitCode::SUCCESS;
    }
    let strict = options.strict || !classic;
    match work(&options) {
        Ok(worst) if worst == Done::Unknown || (strict && worst == Done::Failed) => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(failure) => {
            output::failure(PROGRAM, &failure, Convention::Plain, options.json.then(|| schema(PROGRAM)))
        }
    }
}

fn is_classic(program: &[u8]) -> bool {
    program.rsplit(|byte| *byte == b'/').next() == Some(PROGRAM.as_bytes())
}

fn schema(name: &'static str) -> Schema {
    Schema { tool: PROGRAM, version: env!("CARGO_PKG_VERSION"), name, schema_version: 1 }
}

/// Opens the filesystem and runs every command; the worst that became of one.
fn work(options: &Options) -> Result<Done, Failure> {
    session::refuse_unbuilt(options)?;
    if options.direct {
        // Reads come from the device once each; there is no cache of ours to go past, and none of the machine's that
        // would be wrong.
        let _ = writeln!(io::stderr(), "{PROGRAM}: -D has no effect: reads are not cached here");
    }
    let mut session = Session::new();
    let mut worst = Done::Well;
    if let Some(device) = &options.device {
        match session::open(device, options) {
            Ok(open) => session.open = Some(open),
            Err(failure) => {
                worst = Done::Failed;
                let place =
                    if options.json { failure.place } else { format!("{PROGRAM}: {}", failure.place) };
                let failure = Failure { place, ..failure };
                report_failure(
                    schema(PROGRAM),
                    &failure,
                    options.json,
                    (&mut io::stdout(), &mut io::stderr()),
                );
            }
        }
    }
    let mut runner = Runner { session, json: options.json, worst };
    if let Some(request) = &options.request {
        runner.line(request.as_bytes());
    } else if let Some(script) = &options.script {
        let file: Box<dyn io::Read> = if script.as_os_str() == "-" {
            Box::new(io::stdin())
        } else {
            let opened = File::open(script);
            Box::new(opened.map_err(|error| {
                Failure::new(FailureKind::Io, script.display().to_string(), error.kind().to_string())
            })?)
        };
        runner.script(BufReader::new(file), true)?;
    } else if io::stdin().is_terminal() {
        prompt::converse(&mut runner)?;
    } else {
        runner.script(io::stdin().lock(), false)?;
    }
    Ok(runner.worst)
}

/// A session on its way through lines.
pub struct Runner {
    /// The session.
    pub session: Session,
    /// Whether answers are JSON.
    pub json: bool,
    /// The worst that became of a line.
    pub worst: Done,
}

impl Runner {
    /// Runs every line of a script; a failing command does not end it.
    fn script(&mut self, lines: impl BufRead, echo: bool) -> Result<(), Failure> {
        for line in lines.split(b'\n') {
            let line = line.map_err(|error| Failure::new(FailureKind::Io, "script", error.to_string()))?;
            let comment = line.first() == Some(&b'#');
            if echo && !self.json {
                let prompt: &[u8] = if comment { b"" } else { PROMPT.as_bytes() };
                // A closed pipe is found out by the command itself.
                let _ = io::stdout().write_all(&[prompt, &line, b"\n"].concat());
            }
            if !comment {
                self.line(&line);
            }
            if self.session.done {
                break;
            }
        }
        Ok(())
    }

    /// Runs one line and prints what comes of it.
    pub fn line(&mut self, line: &[u8]) -> Done {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let done = self.line_to(line, &mut out, &mut io::stderr().lock());
        let done = if out.flush().is_err() { done.max(Done::Failed) } else { done };
        self.worst = self.worst.max(done);
        done
    }

    /// Runs one line, with answers going to `out` and failures to `errors`, or with JSON to `out` as well.
    pub fn line_to(&mut self, line: &[u8], out: &mut dyn Write, errors: &mut dyn Write) -> Done {
        let Some(mut words) = words::split(line) else {
            let failure = Failure::usage(PROGRAM, "Unbalanced quotes in command line");
            report_failure(schema(PROGRAM), &failure, self.json, (out, errors));
            return Done::Failed;
        };
        if words.is_empty() {
            return Done::Well;
        }
        let name = words.remove(0);
        let Some(command) = lookup(&name) else {
            let name = words::text(&name);
            let not_built = NOT_BUILT.contains(&name.as_str());
            let what = if not_built {
                format!("{name} is not built yet; this debugfs only reads so far")
            } else {
                format!("Command not found {name}")
            };
            report_failure(schema(PROGRAM), &Failure::usage(PROGRAM, what), self.json, (out, errors));
            return Done::Unknown;
        };
        let mut call = Call {
            session: &mut self.session,
            command,
            name: words::text(&name),
            words,
            out: &mut *out,
            json: self.json,
        };
        let outcome = (command.handler)(&mut call);
        print(command, outcome, self.json, (out, errors))
    }
}

impl PartialOrd for Done {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Done {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let rank = |done: &Self| match done {
            Self::Well => 0,
            Self::Failed => 1,
            Self::Unknown => 2,
        };
        rank(self).cmp(&rank(other))
    }
}

/// Prints an answer, then its failures.
fn print(
    command: &Command,
    outcome: Outcome,
    json: bool,
    (out, errors): (&mut dyn Write, &mut dyn Write),
) -> Done {
    let schema = schema(command.schema);
    let Answer { shown, problems } = match outcome {
        Ok(answer) => answer,
        Err(failure) => Answer { shown: None, problems: vec![failure] },
    };
    let printed = match (&shown, json) {
        (Some(shown), false) => shown.text(out),
        (Some(shown), true) => {
            let mut data = shown.data();
            if let (Some(object), false) = (data.as_object_mut(), problems.is_empty()) {
                let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
                object.insert("problems".to_owned(), texts.into());
            }
            schema.write_result(&data, out)
        }
        (None, true) if problems.is_empty() => schema.write_result(&serde_json::json!({}), out),
        (None, true) => {
            problems.iter().try_for_each(|failure| schema.write_failure(failure, Convention::Plain, out))
        }
        (None, false) => Ok(()),
    };
    let printed = printed.and_then(|()| out.flush());
    if !json || shown.is_some() {
        for failure in &problems {
            let _ = writeln!(errors, "{failure}");
        }
    }
    if problems.is_empty() && printed.is_ok() { Done::Well } else { Done::Failed }
}

/// Tells of a failure: as `place: what`, or as JSON among the answers.
fn report_failure(
    schema: Schema,
    failure: &Failure,
    json: bool,
    (out, errors): (&mut dyn Write, &mut dyn Write),
) {
    // Nothing is left to do where even this cannot be written; the exit code still tells.
    let _ = if json {
        schema.write_failure(failure, Convention::Plain, out).and_then(|()| out.flush())
    } else {
        writeln!(errors, "{failure}")
    };
}
