//! DataFusion with its own Arrow reads what others make of a cache: raw segments, and what `tcx export` writes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::options::ArrowReadOptions;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use support::{add, clip, ids, segments};
use tcx_store::Keys;

fn table(batches: &[RecordBatch]) -> String {
    pretty_format_batches(batches).unwrap().to_string()
}

fn run<T>(asked: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(asked)
}

/// A cache with a row that lives and one that has been invalidated.
fn cache() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = clip(dir.path());
    add(&store, &ids(["cat", "dog"]), 1);
    store.invalidate(&Keys::text(["dog"], 0).unwrap()).unwrap();
    dir
}

#[test]
fn datafusion_reads_segments_with_the_dead_rows_in_them() {
    let dir = cache();
    let [segment] = &segments(&dir.path().join("clip_v1"))[..] else { panic!("one segment") };
    let said = run(async {
        let context = SessionContext::new();
        let path = segment.to_str().unwrap();
        context.register_arrow("segment", path, ArrowReadOptions::default()).await.unwrap();
        let asked = "select __key as id, score, caption, vector[64] as last from segment order by 1";
        table(&context.sql(asked).await.unwrap().collect().await.unwrap())
    });
    assert_eq!(said, with_last(&["cat", "dog"]));
}

#[test]
fn datafusion_reads_an_exported_parquet_file() {
    let dir = cache();
    let to = dir.path().join("out.parquet");
    let status =
        Command::new(tcx()).args(["export", "--to"]).arg(&to).arg(dir.path()).arg("clip_v1").status();
    assert!(status.unwrap().success());
    let said = run(async {
        let context = SessionContext::new();
        context.register_parquet("rows", to.to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
        let asked = "select id, score, caption, vector[64] as last from rows order by 1";
        table(&context.sql(asked).await.unwrap().collect().await.unwrap())
    });
    assert_eq!(said, with_last(&["cat"]));
}

/// What is said of these rows.
fn with_last(ids: &[&str]) -> String {
    let line = "+-----+-------+--------------------+------+";
    let rows = ids.iter().map(|id| format!("| {id} | 1     | a picture of a {id} | 3.0  |\n"));
    format!("{line}\n| id  | score | caption            | last |\n{line}\n{}{line}", rows.collect::<String>())
}

/// The command, which `cargo xtask foreign` builds beside these tests.
fn tcx() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let tcx =
        test.parent().and_then(Path::parent).unwrap().join(format!("tcx{}", std::env::consts::EXE_SUFFIX));
    assert!(tcx.exists(), "{} is missing: run this test with `cargo xtask foreign`", tcx.display());
    tcx
}
