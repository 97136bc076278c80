//! The question before anything is deleted.

use std::io::{self, IsTerminal, Write};

use crate::failure::{Code, Failure, Result};

/// Goes on if `yes`, or if the person at the terminal says so.
///
/// # Errors
///
/// A no; nobody to ask.
pub(crate) fn confirm(yes: bool, question: &str) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        let message =
            format!("{question} Nobody is at the terminal to say so: add --yes, or --dry-run to look first");
        return Err(Failure::new(Code::Unconfirmed, message));
    }
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(Code::Unconfirmed, "nothing was done"))
}
