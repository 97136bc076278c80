//! `cargo xtask demo`: an example with everything it needs.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use crate::failure::{Failure, Result};
use crate::process;
use crate::provision::{libtorch, model, onnxruntime, toolchain};
use crate::workspace::{Workspace, cargo};

/// Runs the example in the user's folder, so that relative paths among the arguments mean what they say.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode> {
    let (backend, arguments) = split_backend(arguments)?;
    let mut demo = cargo("run");
    // A profile and a package of its own: what the other examples need is not compiled.
    demo.args(["--profile", "demo", "--package", "tcx-minilm", "--manifest-path"]);
    demo.arg(workspace.root().join("Cargo.toml"));
    match backend {
        Backend::Tch => {
            toolchain::require_compiler()?;
            eprintln!("1/3  libtorch");
            eprintln!("{}", libtorch::provide(workspace)?);
        }
        Backend::Candle => {
            eprintln!("1/3  libtorch is not needed");
            demo.args(["--no-default-features", "--features", "candle"]);
        }
        Backend::Ort => {
            eprintln!("1/3  ONNX Runtime");
            demo.env(onnxruntime::VARIABLE, onnxruntime::provide(workspace)?);
            demo.args(["--no-default-features", "--features", "ort"]);
        }
    }
    demo.arg("--");
    if !names_model(&arguments) {
        eprintln!("2/3  the model, all-MiniLM-L6-v2");
        demo.arg("--model").arg(model::provide(workspace)?);
    }
    demo.args(arguments);
    eprintln!("3/3  compile the demo (minutes the first time), and run it");
    process::hand_over(&mut demo)
}

/// The library that computes the network.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Backend {
    Tch,
    Candle,
    Ort,
}

impl Backend {
    fn named(name: &str) -> Result<Self> {
        match name {
            "tch" => Ok(Self::Tch),
            "candle" => Ok(Self::Candle),
            "ort" => Ok(Self::Ort),
            other => {
                Err(Failure::new(format!("`--backend`: expected `tch`, `candle` or `ort`, found `{other}`")))
            }
        }
    }
}

/// Takes `--backend NAME` or `--backend=NAME` out of the arguments: the library is chosen when the demo is compiled.
fn split_backend(arguments: &[OsString]) -> Result<(Backend, Vec<OsString>)> {
    let (mut backend, mut others) = (None, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_str().unwrap_or_default();
        if text == "--backend" {
            let name = rest.next().map(|name| name.to_string_lossy()).unwrap_or_default();
            backend = Some(Backend::named(&name)?);
        } else if let Some(name) = text.strip_prefix("--backend=") {
            backend = Some(Backend::named(name)?);
        } else if text == "--" {
            // In `demo --backend candle -- --limit 3` it separates the demo's arguments. Later it is one of them.
            let separates = backend.is_some() && others.is_empty();
            others.extend((!separates).then(|| argument.clone()));
            others.extend(rest.by_ref().cloned());
        } else {
            others.push(argument.clone());
        }
    }
    Ok((backend.unwrap_or(Backend::Tch), others))
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

    #[test]
    fn the_library_is_taken_out_of_the_arguments() {
        let split = |line: &str| {
            let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            split_backend(&arguments).map(|(backend, others)| (backend, others.join(" ".as_ref())))
        };
        assert_eq!(split("--limit 3").unwrap(), (Backend::Tch, "--limit 3".into()));
        assert_eq!(split("--backend candle --limit 3").unwrap(), (Backend::Candle, "--limit 3".into()));
        assert_eq!(split("--backend ort -- --limit 3").unwrap(), (Backend::Ort, "--limit 3".into()));
        assert_eq!(split("docs --backend=tch").unwrap(), (Backend::Tch, "docs".into()));
        assert_eq!(split("--limit 3 --backend ort docs").unwrap(), (Backend::Ort, "--limit 3 docs".into()));
        assert_eq!(split("-- --backend").unwrap(), (Backend::Tch, "-- --backend".into()));
        assert_eq!(
            split("--backend tch --limit 3 -- --a").unwrap(),
            (Backend::Tch, "--limit 3 -- --a".into())
        );
        for wrong in ["--backend", "--backend onnx", "--backend="] {
            let error = split(wrong).unwrap_err().to_string();
            assert!(error.contains("expected `tch`, `candle` or `ort`"), "{wrong}: {error}");
        }
    }
}
