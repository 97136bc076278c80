//! Running the command of the user for one work range.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::stop::Stop;
use crate::failure::{Failure, Result};

/// The number of the work range, for names of temporary files.
const RANGE: &str = "TCX_RANGE";
/// How often it is looked whether the command has ended: at first, and at most.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// The command.
pub(super) struct Program<'a> {
    command: &'a [OsString],
    /// Whether its output goes to standard error, since a JSON document goes to standard output.
    is_aside: bool,
}

/// How a run ended.
pub(super) enum Ended {
    Well,
    Failed(String),
}

impl<'a> Program<'a> {
    pub(super) fn new(command: &'a [OsString], is_aside: bool) -> Self {
        Self { command, is_aside }
    }

    /// Runs it with these ids on its standard input.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be started, or if an id is no line.
    pub(super) fn run(&self, range: Option<u64>, ids: &[String], stop: &Stop) -> Result<Ended> {
        if let Some(id) = ids.iter().find(|id| id.contains(['\n', '\r'])) {
            return Err(Failure::usage(format!(
                "the id {id:?} contains the end of a line, and the command gets one id a line; give such samples other ids"
            )));
        }
        let mut child = self.start(range)?;
        if let Some(mut input) = child.stdin.take() {
            let text: String = ids.iter().flat_map(|id| [id, "\n"]).collect();
            // Not waited for: a process that the command has left behind may have the other end.
            thread::spawn(move || {
                // A command that does not read all of its input decides by its status whether that is a failure.
                let _ = input.write_all(text.as_bytes());
            });
        }
        let status = wait(&mut child, stop)?;
        if status.success() {
            return Ok(Ended::Well);
        }
        let range = range.map_or_else(String::new, |range| format!(" in work range {range}"));
        Ok(Ended::Failed(format!(
            "the command failed{range} ({status}): other workers take over; the rows that it has flushed are kept"
        )))
    }

    fn start(&self, range: Option<u64>) -> Result<Child> {
        let (program, arguments) = self.command.split_first().ok_or_else(|| Failure::usage("no command"))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped());
        command.env(RANGE, range.map_or_else(String::new, |range| range.to_string()));
        if self.is_aside {
            command.stdout(std::io::stderr());
        }
        // Ctrl-C in a terminal would reach it beside what is passed on, and what it has started would not get what is passed on.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().map_err(|error| Failure::file("run", program.as_ref(), &error))
    }
}

/// Waits for a command. If this process is asked to stop, so is the command with all that it has started, which may flush before it ends.
fn wait(child: &mut Child, stop: &Stop) -> Result<ExitStatus> {
    let (mut pause, most) = LOOKS;
    let mut was_asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            if was_asked {
                stop.wait_for_rest(child);
            }
            return Ok(status);
        }
        if stop.is_stopped() && !was_asked {
            was_asked = true;
            stop.pass_on(child);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(most);
    }
}
