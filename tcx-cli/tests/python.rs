//! What `export` writes is read by other programs: pyarrow, numpy, polars, duckdb, `datasets`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use serde_json::json as j;
use support::python::run;
use support::{json, open, tcx, workplace};
use tcx_store::{Column, ColumnType, DType, DYNAMIC_DIM, Field, Identity, KeyType, Keys, Spec};

/// Tensors of which one dimension differs, and of which both do.
const MAPS: ColumnType = ColumnType::Struct(&[
    Field { name: "tokens", column: ColumnType::Ragged { dtype: DType::I16, shape: &[DYNAMIC_DIM, 2] } },
    Field {
        name: "map",
        column: ColumnType::Ragged { dtype: DType::U8, shape: &[DYNAMIC_DIM, DYNAMIC_DIM] },
    },
]);

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
fn nested_lists_of_several_sizes_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let spec = || Spec::new("m_v1", KeyType::Text, &MAPS, Identity::default(), Vec::new()).unwrap();
    let store = open(&dir.path().join("cache"), spec());
    let mut rows = store.lookup(Keys::text(["a"], 0).unwrap()).unwrap();
    let sizes: Vec<u8> = [1_i64, 1].into_iter().flat_map(i64::to_le_bytes).collect();
    let columns =
        vec![Column::varying(vec![1, 0, 2, 0], [4]), Column::varying(vec![7], [1]), Column::dense(&sizes)];
    store.insert(&mut rows, &[0], columns).unwrap();
    store.flush().unwrap();
    let script = r"
import pyarrow as pa, pyarrow.parquet
def write(name, tokens, maps, tokens_type=pa.list_(pa.list_(pa.int16())), **more):
    table = pa.table({
        'id': ['owl', 'fox', 'bee'][:len(tokens)],
        'tokens': pa.array(tokens, tokens_type),
        'map': pa.array(maps, pa.large_list(pa.list_(pa.uint8()))),
        **more,
    })
    pyarrow.parquet.write_table(table, name)
tokens, maps = [[[1, 2], [3, 4]], [], [[5, 6]]], [[[1, 2, 3]], [], [[4], [5]]]
write('nested.parquet', tokens, maps)
pairs = pa.list_(pa.list_(pa.int16(), 2))
write('pairs.parquet', tokens, maps, pairs)
write('wide.parquet', [[[1, 2, 3]]], [[[1]]])
write('torn.parquet', [[[1, 2]]], [[[1], [2, 3]]])
write('holes.parquet', [[[1, 2]]], [[[1], None]])
";
    let Some(_) = run("pyarrow", script, dir.path()) else { return };
    for from in ["nested.parquet", "pairs.parquet"] {
        assert_eq!(json(dir.path(), &["import", "cache", "m_v1", from, "--revive"])["added"], 3, "{from}");
        let shown = |id: &str| {
            let row = &json(dir.path(), &["show", "cache", "m_v1", id])["rows"][0]["outputs"];
            let of = |at: usize| (row[at]["shape"].clone(), row[at]["values"].clone());
            (of(0), of(1))
        };
        assert_eq!(shown("owl"), ((j!([2, 2]), j!([1, 2, 3, 4])), (j!([1, 3]), j!([1, 2, 3]))));
        assert_eq!(shown("fox"), ((j!([0, 2]), j!([])), (j!([0, 0]), j!([]))));
        assert_eq!(shown("bee"), ((j!([1, 2]), j!([5, 6])), (j!([2, 1]), j!([4, 5]))));
        json(dir.path(), &["rm", "cache", "m_v1", "--id", "owl", "--id", "fox", "--id", "bee", "--yes"]);
    }
    for (from, what) in [
        ("wide.parquet", "column `tokens`: expected i16 [_, 2], found a row of [1, 3]"),
        ("torn.parquet", "column `map`: the lists of a row have different lengths"),
        ("holes.parquet", "column `map`: expected no nulls, found 1"),
    ] {
        let output = tcx(dir.path(), &["import", "cache", "m_v1", from]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(5) && said.contains(what), "{from}: {said}");
    }
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

#[test]
fn the_python_of_the_guide_opens_a_segment() {
    let dir = workplace();
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide.md")).unwrap();
    let blocks: Vec<&str> =
        guide.split("```python\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 1);
    let Some(said) = run("pyarrow", blocks[0], dir.path()) else { return };
    assert_eq!(said, "['__key', '__view', 'value'] 1000 0\n");
}
