//! The C++ compiler that torch-sys needs.

use std::env;
use std::ffi::OsString;
use std::process::Command;

use crate::failure::{Failure, Result};

/// Fails, with the remedy, where no C++ compiler answers; otherwise torch-sys would fail minutes later.
pub(crate) fn require_compiler() -> Result<()> {
    match chosen(env::vars_os()) {
        Some(compiler) if !answers(&compiler) => Err(missing(&compiler)),
        _ => Ok(()),
    }
}

/// The compiler that the `cc` crate will take, where that is plain to see: `CXX` or `c++`. Its variables for
/// one target (`CXX_<target>`, `HOST_CXX`, `TARGET_CXX`) and Windows' search of its own are left to it.
fn chosen(variables: impl Iterator<Item = (OsString, OsString)>) -> Option<String> {
    if cfg!(windows) {
        return None;
    }
    let mut compiler = "c++".to_owned();
    for (name, value) in variables {
        match name.to_string_lossy().as_ref() {
            "CXX" => compiler = value.to_string_lossy().into_owned(),
            "HOST_CXX" | "TARGET_CXX" => return None,
            name if name.starts_with("CXX_") => return None,
            _ => {}
        }
    }
    // `CXX` may carry a wrapper or flags after the program: `ccache g++`.
    compiler.split_whitespace().next().map(str::to_owned)
}

fn answers(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn missing(compiler: &str) -> Failure {
    Failure::new(format!(
        "no C++ compiler: `{compiler} --version` does not run; install one (Debian and Ubuntu: \
         `apt install g++`, Fedora: `dnf install gcc-c++`) or name yours in CXX"
    ))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn chosen_from(variables: &[(&str, &str)]) -> Option<String> {
        chosen(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn the_compiler_is_chosen_as_the_build_scripts_do() {
        assert_eq!(chosen_from(&[("HOME", "/")]).as_deref(), Some("c++"));
        assert_eq!(chosen_from(&[("CXX", "ccache clang++")]).as_deref(), Some("ccache"));
        assert_eq!(chosen_from(&[("CXX_x86_64_unknown_linux_gnu", "g++")]), None);
    }

    #[test]
    fn a_missing_compiler_is_named_with_its_remedy() {
        assert!(!answers("no-such-compiler"));
        let message = missing("no-such-compiler").to_string();
        assert!(message.contains("no-such-compiler") && message.contains("apt install g++"));
    }
}
