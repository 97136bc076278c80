//! `cargo xtask env`: lines for a shell to evaluate.

use std::path::Path;

use crate::provision::libtorch::{Libtorch, Source};

/// The export lines with which any crate builds and runs against this libtorch.
pub(crate) fn exports(libtorch: &Libtorch) -> String {
    let chosen = match &libtorch.source {
        // The value does not matter to torch-sys, only that there is one.
        Source::PyTorch => "export LIBTORCH_USE_PYTORCH=1\n".to_owned(),
        Source::Given(folder) | Source::Assembled(folder) => format!("export LIBTORCH={}\n", quoted(folder)),
    };
    let variable = if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };
    let libraries = quoted(&libtorch.libraries);
    // The shell's own value goes behind: the one that this program sees was made longer by Cargo.
    format!("{chosen}export {variable}={libraries}\"${{{variable}:+:${variable}}}\"\n")
}

/// The line for ONNX Runtime, if it was set up.
pub(crate) fn library(onnxruntime: &Path) -> String {
    if onnxruntime.is_file() {
        format!("export {}={}\n", super::onnxruntime::VARIABLE, quoted(onnxruntime))
    } else {
        String::new()
    }
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn libtorch(source: Source, libraries: &str) -> Libtorch {
        Libtorch { source, libraries: PathBuf::from(libraries), version: None }
    }

    #[test]
    fn a_folder_is_exported_with_its_libraries() {
        let lines = exports(&libtorch(Source::Assembled("/a b/libtorch".into()), "/a b/libtorch/lib"));
        assert_eq!(
            lines,
            "export LIBTORCH='/a b/libtorch'\n\
             export LD_LIBRARY_PATH='/a b/libtorch/lib'\"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"\n"
        );
    }

    #[test]
    fn pytorch_is_exported_by_name() {
        assert!(
            exports(&libtorch(Source::PyTorch, "/torch/lib")).starts_with("export LIBTORCH_USE_PYTORCH=1\n")
        );
    }

    #[test]
    fn the_shell_reads_back_the_very_path() {
        let lines = exports(&libtorch(Source::Given("/it's \"$HOME\"".into()), "/it's/lib"));
        let script = format!("{lines}printf '%s|%s' \"$LIBTORCH\" \"$LD_LIBRARY_PATH\"");
        let mut shell = std::process::Command::new("sh");
        let read = shell.arg("-c").arg(script).env("LD_LIBRARY_PATH", "/mine").output().unwrap();
        assert_eq!(String::from_utf8(read.stdout).unwrap(), "/it's \"$HOME\"|/it's/lib:/mine");
    }
}
