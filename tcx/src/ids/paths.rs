//! Paths as ids: the text that a path consists of.

use std::path::{Path, PathBuf};

use crate::ids::{StringId, StringIds};
use crate::{Error, Result};

impl StringId<Path> for StringIds {
    fn read(id: &Path) -> &str {
        // An id may not be empty, so this is no id where `check` was not asked.
        id.to_str().unwrap_or_default()
    }

    fn check(id: &Path) -> Result<()> {
        text(id).map(drop)
    }
}

impl StringId<PathBuf> for StringIds {
    fn read(id: &PathBuf) -> &str {
        <Self as StringId<Path>>::read(id)
    }

    fn check(id: &PathBuf) -> Result<()> {
        <Self as StringId<Path>>::check(id)
    }
}

/// The text of a path.
///
/// # Errors
///
/// Returns an error that names the path if it is not UTF-8.
pub(super) fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        // With the bytes that are no text.
        let shown = format!("`{}`", path.as_os_str().as_encoded_bytes().escape_ascii());
        let error = Error::batch(format!("the path {shown} cannot be an id: it is not UTF-8"));
        error.with_expected("a path in UTF-8", shown).with_remedy(
            "rename the file, or give the module `key = bytes` and pass `path.as_os_str().as_encoded_bytes()`",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::KeyKind;

    #[test]
    fn a_path_is_the_id_that_its_text_is() {
        let text = StringIds::pack(&["train/a.png"], 0).unwrap();
        let path = Path::new("train/a.png");
        for keys in [
            StringIds::pack(&[path], 0),
            StringIds::pack(&[path.to_owned()], 0),
            StringIds::pack(&[&path.to_owned()], 0),
            StringIds::pack(&[Arc::<Path>::from(path)], 0),
        ] {
            assert_eq!(keys.unwrap().key(0), text.key(0));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_utf8_is_an_error_that_names_it() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"train/\xff.png"));
        for error in [
            StringIds::pack(&[Path::new("a"), path], 0).unwrap_err(),
            StringIds::pack(&[&path.to_owned()], 0).unwrap_err(),
            StringIds::pack(&[std::borrow::Cow::Borrowed(path)], 0).unwrap_err(),
            StringIds::pack(&[Box::<Path>::from(path)], 0).unwrap_err(),
            crate::Stamped::<StringIds, u64>::pack(&[&(path, 1)], 0).unwrap_err(),
        ] {
            assert_eq!(error.kind(), crate::ErrorKind::InvalidBatch);
            assert!(error.to_string().starts_with(r"the path `train/\xff.png` cannot be an id"), "{error}");
        }
    }
}
