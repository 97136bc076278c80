//! `cargo xtask bench --compile`: what cached modules add to a debug `cargo check`. Two generated crates are checked, one with
//! the annotations and one without; tch is used without a libtorch.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::process;
use crate::workspace::{Workspace, cargo};

const MODULES: usize = 100;
/// The columns of each module's output.
const COLUMNS: usize = 5;
/// Each crate is checked so often; the median counts.
const TIMES: usize = 5;
/// What the modules may add.
const TARGET: Duration = Duration::from_secs(3);

/// Measures, prints, and writes `target/bench/compile.json`.
pub(crate) fn bench(workspace: &Workspace) -> Result<()> {
    let dir = workspace.root().join("target/bench/compile");
    generate(workspace, &dir)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", dir.display())))?;
    for name in ["with", "without"] {
        check(&dir, name)?;
    }
    let (with, without) = (median(&dir, "with")?, median(&dir, "without")?);
    let added = with.saturating_sub(without);
    println!(
        "{MODULES} cached modules of {COLUMNS} columns add {:.2} s to `cargo check`: {:.2} s with, {:.2} s without \
         (medians of {TIMES}, not incremental; the goal is at most {} s)",
        added.as_secs_f64(),
        with.as_secs_f64(),
        without.as_secs_f64(),
        TARGET.as_secs(),
    );
    let report = format!(
        "{{\"modules\": {MODULES}, \"columns\": {COLUMNS}, \"with_s\": {:.3}, \"without_s\": {:.3}, \"added_s\": {:.3}}}\n",
        with.as_secs_f64(),
        without.as_secs_f64(),
        added.as_secs_f64(),
    );
    let path = dir.with_extension("json");
    fs::write(&path, report)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

fn median(dir: &Path, name: &str) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let source = dir.join(name).join("src/lib.rs");
        let touched = fs::read(&source).and_then(|text| fs::write(&source, text));
        touched.map_err(|error| Failure::new(format!("cannot write {}: {error}", source.display())))?;
        let start = Instant::now();
        check(dir, name)?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[TIMES / 2])
}

fn check(dir: &Path, name: &str) -> Result<()> {
    let mut check = cargo("check");
    check.args(["--quiet", "--package", name]).current_dir(dir);
    check.env("CARGO_TARGET_DIR", dir.join("target")).env("CARGO_INCREMENTAL", "0");
    process::run(&mut check, &format!("`cargo check` of the generated crate `{name}`"))
}

fn generate(workspace: &Workspace, dir: &Path) -> std::io::Result<()> {
    let root = workspace.root();
    for name in ["with", "without"] {
        fs::create_dir_all(dir.join(name).join("src"))?;
        fs::write(dir.join(name).join("Cargo.toml"), manifest(root, name))?;
    }
    fs::write(dir.join("Cargo.toml"), "[workspace]\nresolver = \"3\"\nmembers = [\"with\", \"without\"]\n")?;
    // The versions that everything else here is built with.
    fs::copy(root.join("Cargo.lock"), dir.join("Cargo.lock"))?;
    fs::write(dir.join("with/src/lib.rs"), source(true))?;
    fs::write(dir.join("without/src/lib.rs"), source(false))
}

fn manifest(root: &Path, name: &str) -> String {
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         tcx-cache = {{ path = {:?}, features = [\"doc-only\"] }}\ntch = {{ version = \"0.26\", features = [\"doc-only\"] }}\n",
        root.join("tcx").to_string_lossy()
    )
}

/// The crate, with what tcx wants written or as plain structs and functions.
fn source(with: bool) -> String {
    let mut text = "//! Generated.\n\nuse tch::Tensor;\n".to_owned();
    let only = |line: &'static str| if with { line } else { "" };
    text += only("use tcx::{CacheableOutput, Extractor, cached_module};\n");
    for number in 0..MODULES {
        let annotation =
            if with { format!("#[cached_module(id = \"m{number}_v1\")]\n") } else { String::new() };
        let head = if with { format!("impl Extractor for M{number}") } else { format!("impl M{number}") };
        let (derive, visible) = (only("#[derive(CacheableOutput)]\n"), if with { "" } else { "pub " });
        let (types, input) = if with {
            (format!("    type Input = Tensor;\n    type Output = O{number};\n"), "Self::Input")
        } else {
            (String::new(), "Tensor")
        };
        let (f32s, f16s) = (only("    #[tensor(f32, [2048])]\n"), only("    #[tensor(f16, [16, 64])]\n"));
        // Writing into a string cannot fail.
        let _ = write!(
            text,
            "\n{derive}pub struct O{number} {{\n{f32s}    pub a: Tensor,\n{f16s}    pub b: Tensor,\n    pub c: Vec<f32>,\n    \
             pub d: Vec<String>,\n    pub e: Vec<[f32; 4]>,\n}}\n\n{annotation}pub struct M{number} {{\n    pub size: i64,\n    \
             pub name: String,\n}}\n\n{head} {{\n{types}    {visible}fn forward(&self, x: &{input}) -> tcx::Result<O{number}> {{\n        \
             let n = x.size()[0] as usize + self.name.len();\n        Ok(O{number} {{ a: x * self.size, b: x + 1, \
             c: vec![0.; n], d: vec![String::new(); n], e: vec![[0.; 4]; n] }})\n    }}\n}}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_of_the_crates_has_the_annotations() {
        let (with, without) = (source(true), source(false));
        assert_eq!(with.matches("#[cached_module(").count(), MODULES);
        assert_eq!(with.matches("#[derive(CacheableOutput)]").count(), MODULES);
        assert!(!without.contains("#["));
        assert_eq!(without.matches("fn forward").count(), MODULES);
    }
}
