//! Creates a file or folder under a temporary name, and renames it when it is complete.

use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// Fails if `to` exists.
pub(crate) fn check_absent(to: &Path) -> Result<()> {
    if to.symlink_metadata().is_ok() {
        return Err(Failure::usage(format!(
            "{} exists; name another path, or remove it first",
            to.display()
        )));
    }
    Ok(())
}

/// Writes what is to be at `to`; `write` gets the temporary path, which is removed if it fails.
///
/// # Errors
///
/// Returns an error if `to` exists, so that no file is overwritten.
pub(crate) fn create<T>(to: &Path, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    check_absent(to)?;
    let mut draft = to.as_os_str().to_owned();
    draft.push(format!(".tmp-{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let renamed = write(&draft).and_then(|written| {
        std::fs::rename(&draft, to).map_err(|error| Failure::file("write", to, &error))?;
        Ok(written)
    });
    renamed.inspect_err(|_| {
        // Best effort: a leftover draft does no harm.
        let _ = if draft.is_dir() { std::fs::remove_dir_all(&draft) } else { std::fs::remove_file(&draft) };
    })
}
