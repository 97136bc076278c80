//! Asks for confirmation before anything is deleted.

use std::io::{self, IsTerminal, Write};

use crate::failure::{Code, Failure, Result};

/// Returns if `yes`, or if the user confirms on the terminal. `action` is a phrase such as `remove 3 rows`.
///
/// # Errors
///
/// Returns an error if the user declines, or if standard input is not a terminal.
pub(crate) fn confirm(yes: bool, action: &str) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        let message = format!(
            "refusing to {action} without confirmation on a non-interactive terminal; pass --yes, or --dry-run to preview"
        );
        return Err(Failure::new(Code::Unconfirmed, message));
    }
    eprint!("Really {action}? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(Code::Unconfirmed, "not confirmed; nothing was changed"))
}
