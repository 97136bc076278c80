//! The recipes of docs/recipes.md work with the tools that they are for. `cargo xtask recipes` provides these, and runs this.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::{TCX, clip, fill_clip, json, open, tcx, workplace};
use tcx_store::Keys;

/// The folder with an environment for each tool.
const ENVIRONMENTS: &str = "TCX_RECIPES";

/// A tool, and a folder to use it in.
struct Recipe {
    python: PathBuf,
    dir: tempfile::TempDir,
}

impl Recipe {
    /// With the caches of [`workplace`]; `None` without the tool, unless `TCX_REQUIRE` names it.
    fn of(tool: &str) -> Option<Self> {
        let Some(environments) = std::env::var_os(ENVIRONMENTS) else {
            let why = format!("{ENVIRONMENTS} names no folder with {tool}: `cargo xtask recipes` has one");
            tcx_test_skips::skip_here(tool, why);
            return None;
        };
        let python = Path::new(&environments).join(tool).join("bin/python");
        let recipe = Self { python, dir: workplace() };
        // As a user calls it. The program that pip has made names the folder in which it was installed.
        let program = recipe.path(&format!("bin/{tool}"));
        fs::create_dir(recipe.path("bin")).unwrap();
        fs::write(&program, format!("#!/bin/sh\nexec '{}' -m {tool} \"$@\"\n", recipe.python.display()))
            .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Some(recipe)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program that finds `tcx` and the tool, and keeps what it writes in the folder.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let programs = [self.path("bin"), Path::new(TCX).parent().unwrap().to_owned()];
        let others = std::env::var_os("PATH").unwrap();
        let path = programs.into_iter().chain(std::env::split_paths(&others));
        let mut command = Command::new(program);
        command.current_dir(self.dir.path()).env("PATH", std::env::join_paths(path).unwrap());
        for (name, folder) in
            [("HOME", "home"), ("XDG_CACHE_HOME", "home"), ("DVC_SITE_CACHE_DIR", "home/dvc")]
        {
            command.env(name, self.path(folder));
        }
        // MLflow stores runs in files only if it is asked to.
        command.env("MLFLOW_TRACKING_URI", "file:runs").env("MLFLOW_ALLOW_FILE_STORE", "true");
        command
            .env("DO_NOT_TRACK", "true")
            .env("MLFLOW_DISABLE_TELEMETRY", "true")
            .env("DVC_NO_ANALYTICS", "true");
        command
    }
}

fn of_examples(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/recipes").join(name)
}

/// What a program that succeeds has printed.
fn printed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

#[test]
fn the_page_shows_lines_of_the_recipes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/recipes.md");
    let page = fs::read_to_string(page).unwrap();
    let recipes = ["mlflow_artifact.py", "dvc.sh", "Snakefile"]
        .map(|name| fs::read_to_string(of_examples(name)).unwrap());
    let blocks = page.split("\n```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap().1);
    let mut count = 0;
    for (block, recipe) in blocks.zip(&recipes) {
        let mut lines = recipe.lines();
        for shown in block.lines() {
            assert!(
                lines.any(|line| line == shown),
                "`{shown}` is no line of the recipe, or not in this order"
            );
        }
        count += 1;
    }
    assert_eq!(count, recipes.len());
}

#[test]
fn mlflow_logs_and_restores_a_module() {
    let Some(recipe) = Recipe::of("mlflow") else { return };
    let dir = recipe.dir.path();
    let mut script = recipe.command(&recipe.python);
    let said = printed(script.arg(of_examples("mlflow_artifact.py")).args(["cache", "clip_v1", "restored"]));
    let again = json(dir, &["pack", "restored", "clip_v1", "--to", "again.tcxpack"]);
    assert!(said.contains("3 rows restored") && said.contains(again["digest"].as_str().unwrap()), "{said}");
    assert_eq!(json(dir, &["diff", "cache", "restored", "clip_v1"])["modules"][0]["same"], 3);
    assert_eq!(tcx(dir, &["verify", "restored"]).status.code(), Some(0));
}

#[test]
fn dvc_tracks_and_restores_a_cache() {
    let Some(recipe) = Recipe::of("dvc") else { return };
    let dir = recipe.dir.path();
    let cache = recipe.path("cache");
    let before = json(dir, &["pack", "cache", "clip_v1", "--to", "before.tcxpack"]);
    printed(recipe.command("sh").arg(of_examples("dvc.sh")).arg("cache"));
    assert_eq!(json(dir, &["pack", "cache", "clip_v1", "--to", "after.tcxpack"])["digest"], before["digest"]);

    let dvc = |arguments: &[&str]| printed(recipe.command("dvc").args(arguments));
    let store = open(&cache, clip("224"));
    assert_eq!(store.lookup(Keys::text(["cat", "dog", "horse"], 0).unwrap()).unwrap().missing(), 0);
    drop(store);
    assert!(dvc(&["status"]).contains("up to date"), "a program that read has changed the version");

    fill_clip(&open(&cache, clip("224")), &["zebra"]);
    assert!(dvc(&["status"]).contains("changed"), "new rows have not changed the version");
    dvc(&["add", "cache"]);
    for (links, rows) in [("hardlink", Some(4)), ("symlink", None), ("copy", Some(4))] {
        dvc(&["config", "cache.type", links]);
        fs::remove_dir_all(&cache).unwrap();
        dvc(&["checkout", "cache.dvc"]);
        let stats = tcx(dir, &["stats", "cache", "clip_v1", "--json"]);
        let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap_or_default();
        assert_eq!(stats["rows"].as_u64(), rows, "{links}: {stats:#}");
        assert_eq!(tcx(dir, &["verify", "cache"]).status.success(), rows.is_some(), "{links}");
    }
}

#[test]
fn snakemake_runs_a_rule_again_when_rows_are_missing() {
    let Some(recipe) = Recipe::of("snakemake") else { return };
    let dir = recipe.dir.path();
    // A program that computes missing rows, and says that it ran.
    fs::write(recipe.path("extract.sh"), "echo ran >> runs.txt && tcx merge cache computed clip_v1 --revive")
        .unwrap();
    fs::write(recipe.path("clip.safetensors"), "weights").unwrap();
    fill_clip(&open(&recipe.path("computed"), clip("224")), &["cat", "dog", "horse", "unicorn", "zebra"]);
    let snakemake = || {
        let mut command = recipe.command("snakemake");
        command.args(["--cores", "1", "--snakefile"]).arg(of_examples("Snakefile")).args([
            "--config",
            "cache=./cache",
            "module=clip_v1",
            "ids=ids.txt",
            "weights=clip.safetensors",
            "extract=sh extract.sh",
        ]);
        command
    };
    let runs = || fs::read_to_string(recipe.path("runs.txt")).unwrap_or_default().lines().count();
    let rows =
        || json(dir, &["coverage", "cache", "clip_v1", "ids.txt"])["missing"].as_array().unwrap().len();
    assert_eq!(rows(), 1, "`unicorn` is missing");
    // Run, and nothing to do.
    for _ in 0..2 {
        let said = printed(&mut snakemake());
        assert_eq!((runs(), rows()), (1, 0), "{said}");
    }
    let table = fs::metadata(recipe.path("clip_v1.parquet")).unwrap().modified().unwrap();
    tcx(dir, &["rm", "cache", "clip_v1", "--id", "cat", "--yes"]);
    for _ in 0..2 {
        let said = printed(&mut snakemake());
        assert_eq!((runs(), rows()), (2, 0), "{said}");
    }
    assert!(fs::metadata(recipe.path("clip_v1.parquet")).unwrap().modified().unwrap() > table);
    fs::write(recipe.path("ids.txt"), "zebra\ncat\n").unwrap();
    fs::write(recipe.path("clip.safetensors"), "weights").unwrap();
    for _ in 0..2 {
        let said = printed(&mut snakemake());
        assert_eq!((runs(), rows()), (3, 0), "{said}");
    }
    // An id that the program cannot compute fails the rule each time.
    fs::write(recipe.path("ids.txt"), "zebra\nyeti\n").unwrap();
    for run in [4, 5] {
        assert!(!snakemake().output().unwrap().status.success());
        assert_eq!((runs(), rows()), (run, 1));
    }
}
