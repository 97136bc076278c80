//! Which libtorch is used: the user's own if one is named, else one assembled from pinned wheels.

mod assemble;
mod given;

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::workspace::Workspace;

/// The release that this version of tch works with.
const VERSION: &str = "2.13.0";

/// A libtorch that is there and was looked at.
pub(crate) struct Libtorch {
    pub(crate) source: Source,
    /// The folder of its shared libraries.
    pub(crate) libraries: PathBuf,
    /// `None` if the user's libtorch does not say.
    pub(crate) version: Option<String>,
}

/// Where a libtorch comes from.
#[derive(Debug, PartialEq)]
pub(crate) enum Source {
    /// `LIBTORCH_USE_PYTORCH`: the torch that Python imports.
    PyTorch,
    /// `LIBTORCH`: a folder of the user's.
    Given(PathBuf),
    /// This program's own, under `target/`.
    Assembled(PathBuf),
}

impl fmt::Display for Libtorch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "libtorch {}: ", self.version.as_deref().unwrap_or("of unknown version"))?;
        match &self.source {
            Source::PyTorch => {
                write!(
                    f,
                    "Python's torch (LIBTORCH_USE_PYTORCH is set), libraries in {}",
                    self.libraries.display()
                )
            }
            Source::Given(folder) => write!(f, "{} (from LIBTORCH)", folder.display()),
            Source::Assembled(folder) => write!(f, "{} (assembled from pinned wheels)", folder.display()),
        }
    }
}

/// The libtorch to use, assembled first if need be.
pub(crate) fn provide(workspace: &Workspace) -> Result<Libtorch> {
    let own = workspace.libtorch();
    match choose(env::var_os("LIBTORCH_USE_PYTORCH").as_deref(), env::var_os("LIBTORCH").as_deref(), &own)? {
        Source::PyTorch => given::pytorch(),
        Source::Given(folder) => given::folder(folder),
        Source::Assembled(folder) => assemble::provide(folder),
    }
}

/// The choice that torch-sys makes too. Cargo's configuration sets `LIBTORCH` to `own` for everything it runs,
/// this program included: only another value is the user's.
fn choose(use_pytorch: Option<&OsStr>, libtorch: Option<&OsStr>, own: &Path) -> Result<Source> {
    if use_pytorch.is_some() {
        return Ok(Source::PyTorch);
    }
    let Some(folder) = libtorch.map(Path::new).filter(|folder| !is_same(folder, own)) else {
        return Ok(Source::Assembled(own.to_path_buf()));
    };
    if folder.is_absolute() {
        return Ok(Source::Given(folder.to_path_buf()));
    }
    Err(Failure::new(format!(
        "LIBTORCH is `{}`, expected an absolute path: build scripts run in other folders than yours; \
         make it absolute, or unset it to have a libtorch provided",
        folder.display()
    )))
}

/// Equal also if a link lies on the way to the checkout.
fn is_same(folder: &Path, own: &Path) -> bool {
    let checkout = |path: &Path| path.parent()?.parent()?.canonicalize().ok();
    folder == own
        || (folder.ends_with("target/libtorch")
            && checkout(folder).is_some_and(|it| Some(it) == checkout(own)))
}

/// Fails unless this is the release that tch works with; torch-sys has the same check and the same way out.
fn require_version(found: &str, whose: &str) -> Result<()> {
    let release = found.split('+').next().unwrap_or(found);
    if release == VERSION || env::var_os("LIBTORCH_BYPASS_VERSION_CHECK").is_some() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{whose} has libtorch {found}, expected {VERSION}; name one of that version, or unset the variable to \
         have one provided (LIBTORCH_BYPASS_VERSION_CHECK=1 tries this one anyway)"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "/checkout/target/libtorch";

    fn chosen(use_pytorch: Option<&str>, libtorch: Option<&str>) -> Result<Source> {
        choose(use_pytorch.map(OsStr::new), libtorch.map(OsStr::new), Path::new(OWN))
    }

    #[test]
    fn pytorch_wins_over_a_folder_and_a_folder_over_ours() {
        assert_eq!(chosen(Some("1"), Some("/opt/libtorch")).unwrap(), Source::PyTorch);
        assert_eq!(chosen(None, Some("/opt/libtorch")).unwrap(), Source::Given("/opt/libtorch".into()));
        assert_eq!(chosen(None, None).unwrap(), Source::Assembled(OWN.into()));
    }

    #[test]
    fn what_cargo_s_configuration_sets_is_not_the_user_s() {
        assert_eq!(chosen(None, Some(OWN)).unwrap(), Source::Assembled(OWN.into()));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_the_checkout_does_not_mislead() {
        let root = tempfile::tempdir().unwrap();
        let (real, link) = (root.path().join("real"), root.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(is_same(&link.join("target/libtorch"), &real.join("target/libtorch")));
        assert!(!is_same(&root.path().join("target/libtorch"), &real.join("target/libtorch")));
    }

    #[test]
    fn a_relative_or_empty_folder_is_refused() {
        for value in ["libtorch", ""] {
            let message = chosen(None, Some(value)).unwrap_err().to_string();
            assert!(message.contains("LIBTORCH") && message.contains("absolute"), "{message}");
        }
    }

    #[test]
    fn other_versions_are_refused_with_both_named() {
        require_version("2.13.0", "LIBTORCH").unwrap();
        require_version("2.13.0+cu129", "LIBTORCH").unwrap();
        let message = require_version("2.12.1+cpu", "LIBTORCH").unwrap_err().to_string();
        assert!(message.contains("2.12.1+cpu") && message.contains(VERSION), "{message}");
    }
}
