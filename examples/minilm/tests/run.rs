//! The program from start to end on a few texts. It leaves its cache in `target/xtask`, where a later step of
//! `cargo xtask test` reads it with the command `tcx`.

use std::io;
use std::path::Path;
use std::process::Command;

#[test]
fn the_demo_computes_each_text_once() -> io::Result<()> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let model = std::env::var_os("TCX_MODEL")
        .map_or_else(|| target.join("models/all-MiniLM-L6-v2"), |model| Path::new(&model).to_owned());
    if !model.join("model.safetensors").is_file() {
        tcx_test_skips::skip("model", "the model is missing; `cargo xtask setup --model` provides it");
        return Ok(());
    }
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
