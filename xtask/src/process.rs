//! Runs other programs.

use std::io;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use crate::failure::{Failure, Result};

/// Runs a program whose chatter belongs on stderr; `what` says in the error what it was for.
pub(crate) fn run(command: &mut Command, what: &str) -> Result<()> {
    command.stdout(Stdio::from(io::stderr()));
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("{what} failed ({})", ended(status)))) }
}

/// What a program printed, or as an error, the last line of its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| cannot_start(command, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
    Err(Failure::new(last.map_or_else(|| ended(output.status), |line| line.trim().to_owned())))
}

/// Replaces this process by the program, which then handles Ctrl-C and sets the exit code.
#[cfg(unix)]
pub(crate) fn hand_over(program: &mut Command) -> Result<ExitCode> {
    use std::os::unix::process::CommandExt as _;
    let error = program.exec();
    Err(cannot_start(program, &error))
}

#[cfg(not(unix))]
pub(crate) fn hand_over(program: &mut Command) -> Result<ExitCode> {
    let status = program.status().map_err(|error| cannot_start(program, &error))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// An exit status in words.
pub(crate) fn ended(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    }
}

/// The failure of a program that cannot be started.
pub(crate) fn cannot_start(command: &Command, error: &io::Error) -> Failure {
    Failure::new(format!("cannot start `{}`: {error}", command.get_program().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_last_complaint_is_the_failure() {
        let failure =
            output(Command::new("sh").args(["-c", "echo one >&2; echo two >&2; exit 3"])).unwrap_err();
        assert_eq!(failure.to_string(), "two");
        assert_eq!(output(Command::new("sh").args(["-c", "echo yes"])).unwrap(), "yes");
    }

    #[test]
    fn a_failure_tells_its_purpose_and_exit_code() {
        let failure = run(Command::new("sh").args(["-c", "exit 3"]), "the experiment").unwrap_err();
        assert_eq!(failure.to_string(), "the experiment failed (exit code 3)");
    }

    #[test]
    fn a_missing_program_is_named() {
        let failure = output(&mut Command::new("no-such-program")).unwrap_err();
        assert!(failure.to_string().contains("`no-such-program`"));
    }
}
