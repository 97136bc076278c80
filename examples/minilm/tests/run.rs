//! The program from start to end on a few texts. It leaves its cache in `target/xtask`, where a later step of
//! `cargo xtask test` reads it with the command `tcx`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The model's folder, if it is there.
fn model() -> Option<PathBuf> {
    let model = std::env::var_os("TCX_MODEL").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/models/all-MiniLM-L6-v2"),
        PathBuf::from,
    );
    if model.join("model.safetensors").is_file() {
        return Some(model);
    }
    tcx_test_skips::skip("model", "the model is missing; `cargo xtask setup --model` provides it");
    None
}

#[test]
fn the_demo_computes_each_text_once() -> io::Result<()> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let Some(model) = model() else { return Ok(()) };
    let mut demo = Command::new(env!("CARGO_BIN_EXE_minilm"));
    demo.args(["--limit", "40", "--fresh", "--cache"]).arg(target.join("xtask/minilm-cache"));
    let output = demo.arg("--model").arg(model).output()?;
    let (table, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{log}");
    let row = |name: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line[name.len().min(line.len())..].split_whitespace().take(3).map(str::to_owned).collect()
    };
    assert_eq!(row("cold"), ["40", "0", "40"], "{table}{log}");
    assert_eq!(row("warm"), ["40", "40", "0"], "{table}{log}");
    assert_eq!(row("new process"), ["40", "40", "0"], "{table}{log}");
    assert_eq!(row("a tenth edited"), ["40", "36", "4"], "{table}{log}");
    Ok(())
}

/// The environment names a cache that the program has filled with tch, as `cargo xtask backends` does.
#[cfg(all(feature = "candle", not(feature = "ort")))]
#[test]
fn candle_finds_what_tch_has_computed() -> io::Result<()> {
    let Some(cache) = std::env::var_os("TCX_MINILM_OF_TCH") else {
        eprintln!(
            "skipped: `TCX_MINILM_OF_TCH` names no cache of this program with tch; `cargo xtask backends` does"
        );
        return Ok(());
    };
    let Some(model) = model() else { return Ok(()) };
    let mut epoch = Command::new(env!("CARGO_BIN_EXE_minilm"));
    epoch.args(["--epoch", "--limit", "40", "--cache"]).arg(cache).arg("--model").arg(model);
    let output = epoch.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")).output()?;
    let (figures, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{log}");
    // The rows, and those that were found and computed.
    assert!(figures.starts_with("40 40 0 "), "{figures}{log}");
    Ok(())
}
