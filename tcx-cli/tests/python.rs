//! What `export` writes is read by other programs: pyarrow, numpy, polars, duckdb, `datasets`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use std::process::Command;

use support::{json, tcx, workplace};

/// The Python with this package, or the reason why there is none.
fn python(package: &str) -> Result<String, String> {
    let python = std::env::var("TCX_PYTHON").map_err(|_| "TCX_PYTHON names no Python".to_owned())?;
    match Command::new(&python).args(["-c", &format!("import {package}")]).output() {
        Ok(output) if output.status.success() => Ok(python),
        Ok(_) => Err(format!("{python} has no {package}; install it there")),
        Err(error) => Err(format!("cannot run {python}: {error}")),
    }
}

/// Whether the environment asks that tests which need this are run, not skipped.
fn required(package: &str) -> bool {
    let asked = std::env::var("TCX_REQUIRE").unwrap_or_default();
    asked.split(',').any(|name| name.trim() == package || package == "pyarrow" && name.trim() == "all")
}

/// What the script prints in `dir`; `None` if the package is not there and nobody requires it.
fn run(package: &str, script: &str, dir: &Path) -> Option<String> {
    let python = match python(package) {
        Ok(python) => python,
        Err(why) => {
            assert!(!required(package), "{package} is required: {why}");
            eprintln!("skipped: {why}");
            return None;
        }
    };
    let mut command = Command::new(python);
    command.args(["-c", script]).current_dir(dir).env("HF_HOME", dir.join("hf")).env("HF_HUB_OFFLINE", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// A folder with the export of three rows in every format.
fn exported() -> tempfile::TempDir {
    let dir = workplace();
    for to in ["out.arrow", "out.arrows", "out.parquet", "out"] {
        json(dir.path(), &["export", "cache", "clip_v1", "--to", to]);
    }
    dir
}

/// What each of them says of these rows.
const ROWS: &str = "['cat', 'dog', 'horse'] [5.0, 5.25, 5.5, 5.75] [30, 30, 50] a picture of a cat\n";

#[test]
fn pyarrow_reads_arrow_streams_and_parquet() {
    let dir = exported();
    let script = r"
import pyarrow as pa, pyarrow.ipc, pyarrow.parquet
for table in [pa.ipc.open_file('out.arrow').read_all(), pa.ipc.open_stream('out.arrows').read_all(), pyarrow.parquet.read_table('out.parquet')]:
    rows = table.to_pylist()
    print([row['id'] for row in rows], rows[2]['vector'], [row['score'] for row in rows], rows[0]['caption'])
    assert table.schema.field('vector').metadata[b'shape'] == b'[2,2]'
    assert table.schema.metadata[b'tcx.module'] == b'clip_v1'
";
    let Some(said) = run("pyarrow", script, dir.path()) else { return };
    assert_eq!(said, ROWS.repeat(3));
}

#[test]
fn numpy_reads_a_folder_of_arrays() {
    let dir = exported();
    let script = r"
import json, numpy as np
vector, score = np.load('out/vector.npy', mmap_mode='r'), np.load('out/score.npy')
assert vector.shape == (3, 2, 2) and vector.dtype == np.float32
print(open('out/ids.txt').read().split(), vector[2].ravel().tolist(), score.tolist(), json.loads(open('out/caption.jsonl').readline()))
";
    let Some(said) = run("numpy", script, dir.path()) else { return };
    assert_eq!(said, ROWS);
}

#[test]
fn polars_reads_arrow_and_parquet() {
    let dir = exported();
    let script = r"
import polars as pl
for frame in [pl.read_ipc('out.arrow'), pl.read_parquet('out.parquet')]:
    print(frame['id'].to_list(), frame['vector'].to_list()[2], frame['score'].to_list(), frame['caption'][0])
";
    let Some(said) = run("polars", script, dir.path()) else { return };
    assert_eq!(said, ROWS.repeat(2));
}

#[test]
fn duckdb_asks_parquet() {
    let dir = exported();
    let script = r"
import duckdb
rows = duckdb.sql('select id, vector, score, caption from ''out.parquet'' order by id').fetchall()
ids, vectors, scores, captions = zip(*rows)
print(list(ids), list(vectors[2]), list(scores), captions[0])
";
    let Some(said) = run("duckdb", &script.replace("''", "\\'"), dir.path()) else { return };
    assert_eq!(said, ROWS);
}

#[test]
fn datasets_loads_streams_and_parquet() {
    let dir = exported();
    let script = r"
import datasets
datasets.disable_progress_bars()
for rows in [datasets.Dataset.from_file('out.arrows'), datasets.Dataset.from_parquet('out.parquet')]:
    print(rows['id'][:], rows[2]['vector'], rows['score'][:], rows[0]['caption'])
";
    let Some(said) = run("datasets", script, dir.path()) else { return };
    assert_eq!(said, ROWS.repeat(2));
}

#[test]
fn what_pyarrow_writes_is_imported() {
    let dir = exported();
    let script = r"
import pyarrow as pa, pyarrow.parquet
table = pa.table({
    'id': ['owl', 'fox'],
    'vector': pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], pa.list_(pa.list_(pa.float32()))),
    'score': [7, 8],
    'caption': ['an owl', 'a fox'],
})
pyarrow.parquet.write_table(table, 'theirs.parquet')
";
    let Some(_) = run("pyarrow", script, dir.path()) else { return };
    assert_eq!(json(dir.path(), &["import", "cache", "clip_v1", "theirs.parquet"])["added"], 2);
    let shown = json(dir.path(), &["show", "cache", "clip_v1", "fox"]);
    assert_eq!(shown["rows"][0]["outputs"][0]["values"], serde_json::json!([5.0, 6.0, 7.0, 8.0]));
    assert_eq!(tcx(dir.path(), &["verify", "cache"]).status.code(), Some(0));
}
