//! `cargo xtask demo`: an example with everything it needs.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use crate::failure::Result;
use crate::process;
use crate::provision::{libtorch, model, toolchain};
use crate::workspace::{Workspace, cargo};

/// Runs the example in the user's folder, so that relative paths among the arguments mean what they say.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode> {
    toolchain::require_compiler()?;
    eprintln!("1/3  libtorch");
    eprintln!("{}", libtorch::provide(workspace)?);
    let mut demo = cargo("run");
    // A profile and a package of its own: what the other examples need is not compiled.
    demo.args(["--profile", "demo", "--package", "tcx-minilm", "--manifest-path"]);
    demo.arg(workspace.root().join("Cargo.toml")).arg("--");
    if !names_model(arguments) {
        eprintln!("2/3  the model, all-MiniLM-L6-v2");
        demo.arg("--model").arg(model::provide(workspace)?);
    }
    demo.args(arguments);
    eprintln!("3/3  compile the demo (minutes the first time), and run it");
    process::hand_over(&mut demo)
}

fn names_model(arguments: &[OsString]) -> bool {
    let options = arguments.iter().take_while(|argument| *argument != "--").map(OsString::as_os_str);
    options.map(OsStr::as_encoded_bytes).any(|bytes| bytes == b"--model" || bytes.starts_with(b"--model="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> bool {
        names_model(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_model_of_the_user_s_is_noticed() {
        assert!(names("--limit 3 --model dir"));
        assert!(names("--model=dir"));
        assert!(!names("--limit 3"));
        assert!(!names("--models dir"));
        assert!(!names("-- --model"));
    }
}
