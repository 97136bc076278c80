//! Paths in the checkout, and calls of Cargo.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Result};

/// The checkout that this program was built from.
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// `cargo run` names this package's folder; a binary started by hand still knows where it was built.
    pub(crate) fn find() -> Result<Self> {
        let package = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = package.parent().filter(|root| root.join("Cargo.toml").is_file());
        match root {
            Some(root) => Ok(Self { root: root.to_path_buf() }),
            None => Err(Failure::new(format!(
                "no workspace around {}: start this program as `cargo xtask` inside the checkout",
                package.display()
            ))),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where `.cargo/config.toml` points `LIBTORCH`, whatever `CARGO_TARGET_DIR` says.
    pub(crate) fn libtorch(&self) -> PathBuf {
        self.root.join("target/libtorch")
    }

    pub(crate) fn model(&self) -> PathBuf {
        self.root.join("target/models/all-MiniLM-L6-v2")
    }

    /// Where `.cargo/config.toml` points `ORT_DYLIB_PATH`.
    pub(crate) fn onnxruntime(&self) -> PathBuf {
        self.root.join("target/onnxruntime/libonnxruntime.so")
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.root.join("target/python")
    }
}

/// A call of Cargo without the variables that `cargo run` has set for this package: build scripts that watch one of them
/// would run again.
pub(crate) fn cargo(subcommand: &str) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if is_about_this_package(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command.arg(subcommand);
    command
}

fn is_about_this_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_checkout_and_its_folders() {
        let workspace = Workspace::find().unwrap();
        assert!(workspace.root().join("xtask/Cargo.toml").is_file());
        assert!(workspace.libtorch().starts_with(workspace.root()));
    }

    #[test]
    fn cargo_forgets_this_package() {
        let cargo = cargo("build");
        let removed = |name: &str| cargo.get_envs().any(|(key, value)| key == name && value.is_none());
        assert!(removed("CARGO_PKG_NAME"));
        assert!(removed("CARGO_MANIFEST_DIR"));
        assert!(!removed("CARGO_HOME"));
    }
}
