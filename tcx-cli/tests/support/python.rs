//! Scripts in Python, where there is one with the package that they need.

use std::path::Path;
use std::process::Command;

/// The Python with this package, or the reason why there is none.
fn python(package: &str) -> Result<String, String> {
    let python = std::env::var("TCX_PYTHON").map_err(|_| "TCX_PYTHON names no Python".to_owned())?;
    match Command::new(&python).args(["-c", &format!("import {package}")]).output() {
        Ok(output) if output.status.success() => Ok(python),
        Ok(_) => Err(format!("{python} has no {package}: `cargo xtask foreign` has one that does")),
        Err(error) => Err(format!("cannot run {python}: {error}")),
    }
}

/// What the script prints in `dir`; `None` without the package, unless `TCX_REQUIRE` names it.
pub(crate) fn run(package: &str, script: &str, dir: &Path) -> Option<String> {
    let python = match python(package) {
        Ok(python) => python,
        Err(why) => {
            if package == "pyarrow" {
                tcx_test_skips::skip(package, why);
            } else {
                tcx_test_skips::skip_here(package, why);
            }
            return None;
        }
    };
    let mut command = Command::new(python);
    command.args(["-c", script]).current_dir(dir).env("HF_HOME", dir.join("hf")).env("HF_HUB_OFFLINE", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}
