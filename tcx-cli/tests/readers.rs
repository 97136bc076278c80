//! Every kind of output as other programs read it, from what `export` writes and from the segments themselves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use std::sync::Arc;

use support::python::run;
use support::{files, json};
use tcx_store::{
    Column, ColumnType, Compression, DType, DYNAMIC_DIM, Field, Identity, KeyType, Keys, Options, Spec, Store,
};

const PAIR: ColumnType = ColumnType::Dense { dtype: DType::F32, shape: &[2] };
const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "half", column: ColumnType::Dense { dtype: DType::F16, shape: &[2] } },
    Field { name: "brain", column: ColumnType::Dense { dtype: DType::BF16, shape: &[2] } },
    Field { name: "inner", column: ColumnType::Struct(&[Field { name: "pair", column: PAIR }]) },
    Field { name: "maybe_pair", column: ColumnType::Optional(&PAIR) },
    Field {
        name: "score",
        column: ColumnType::Optional(&ColumnType::Dense { dtype: DType::F64, shape: &[] }),
    },
    Field { name: "count", column: ColumnType::Dense { dtype: DType::I64, shape: &[] } },
    Field { name: "mask", column: ColumnType::Dense { dtype: DType::Bool, shape: &[2] } },
    Field { name: "tokens", column: ColumnType::Ragged { dtype: DType::I16, shape: &[DYNAMIC_DIM, 2] } },
    Field { name: "image", column: ColumnType::Bytes },
    Field { name: "note", column: ColumnType::Optional(&ColumnType::Text) },
]);

fn open(cache: &Path, compression: Compression) -> Arc<Store> {
    let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    Store::open(cache, spec, &Options { compression, ..Options::default() }).unwrap()
}

/// Fills a cache with two rows: `full` has every value, `bare` as few as can be.
fn fill(store: &Store) {
    let mut rows = store.lookup(Keys::text(["full", "bare"], 0).unwrap()).unwrap();
    let columns = vec![
        // 1.5, -2.0; 0.5, an infinity.
        Column::dense(&[0x00, 0x3e, 0x00, 0xc0, 0x00, 0x38, 0x00, 0x7c]),
        // 1.0, -2.0; 0.5, 0.0.
        Column::dense(&[0x80, 0x3f, 0x00, 0xc0, 0x00, 0x3f, 0x00, 0x00]),
        Column::dense(&[0.25_f32, -3.0, 7.5, 8.0].map(f32::to_le_bytes).concat()),
        Column::dense(&[9_f32, 10.0, 0.0, 0.0].map(f32::to_le_bytes).concat()).optional([true, false]),
        Column::dense(&[0.1_f64, 0.0].map(f64::to_le_bytes).concat()).optional([true, false]),
        Column::dense(&[i64::MIN, 5].map(i64::to_le_bytes).concat()),
        Column::dense(&[1, 0, 0, 1]),
        Column::varying([1_i16, -2, 3, 4].map(i16::to_le_bytes).concat(), [8, 8]),
        Column::varying(vec![0xff, 0xd8], [2, 2]),
        Column::text(["ein Käfer", ""]).optional([true, false]),
    ];
    store.insert(&mut rows, &[0, 1], columns).unwrap();
    store.flush().unwrap();
}

/// What every reader says of the two rows of an export.
const ROWS: &str = "\
id: ['full', 'bare']
view: [0, 0]
half: [[1.5, -2.0], [0.5, inf]]
brain: [[1.0, -2.0], [0.5, 0.0]]
inner.pair: [[0.25, -3.0], [7.5, 8.0]]
maybe_pair: [[9.0, 10.0], None]
score: [0.1, None]
count: [-9223372036854775808, 5]
mask: [[True, False], [False, True]]
tokens: [[1, -2, 3, 4], []]
image: ['ffd8', '']
note: ['ein Käfer', None]
";

/// Prints columns as lists.
const TELL: &str = r"
import sys
sys.stdout.reconfigure(encoding='utf-8')
def plain(value):
    if isinstance(value, (bytes, bytearray, memoryview)): return bytes(value).hex()
    if hasattr(value, 'to_list'): value = value.to_list()
    if hasattr(value, 'tolist'): value = value.tolist()
    return [plain(own) for own in value] if isinstance(value, (list, tuple)) else value
def tell(columns):
    for name, values in columns.items(): print(name + ':', plain(values))
";

/// A folder with the export of the two rows in every format that can hold them.
fn exported() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fill(&open(&dir.path().join("cache"), Compression::None));
    for to in ["out.arrow", "out.arrows", "out.parquet"] {
        json(dir.path(), &["export", "cache", "m_v1", "--to", to]);
    }
    dir
}

fn check(package: &str, script: &str, times: usize) {
    let dir = exported();
    let Some(said) = run(package, &format!("{TELL}{script}"), dir.path()) else { return };
    assert_eq!(said, ROWS.repeat(times));
}

#[test]
fn pyarrow_reads_every_kind_of_output() {
    let script = r"
import pyarrow as pa, pyarrow.ipc, pyarrow.parquet
for table in [pa.ipc.open_file('out.arrow').read_all(), pa.ipc.open_stream('out.arrows').read_all(), pyarrow.parquet.read_table('out.parquet')]:
    table.validate(full=True)
    tell(table.to_pydict())
";
    check("pyarrow", script, 3);
}

#[test]
fn polars_reads_every_kind_of_output() {
    let script = r"
import polars as pl
for frame in [pl.read_ipc('out.arrow'), pl.scan_ipc('out.arrow').collect(),
              pl.read_ipc_stream('out.arrows'), pl.read_parquet('out.parquet'), pl.scan_parquet('out.parquet').collect()]:
    tell(frame.to_dict(as_series=False))
";
    check("polars", script, 5);
}

#[test]
fn duckdb_reads_every_kind_of_output() {
    let script = r"
import duckdb
found = duckdb.sql('select * from ''out.parquet''')
rows = found.fetchall()
tell({name: [row[at] for row in rows] for at, name in enumerate(found.columns)})
";
    check("duckdb", &script.replace("''", "\\'"), 1);
}

#[test]
fn datasets_reads_every_kind_of_output() {
    let script = r"
import datasets
datasets.disable_progress_bars()
for rows in [datasets.Dataset.from_file('out.arrows'), datasets.Dataset.from_parquet('out.parquet')]:
    tell({name: rows[name][:] for name in rows.column_names})
";
    check("datasets", script, 2);
}

#[test]
fn polars_reads_segments_with_the_dead_rows_in_them() {
    // As they are stored: bf16 as its bits, bool as numbers.
    let expected = ROWS
        .replace("id:", "__key:")
        .replace("view:", "__view:")
        .replace("[[1.0, -2.0], [0.5, 0.0]]", "[[16256, 49152], [16128, 0]]")
        .replace("[[True, False], [False, True]]", "[[1, 0], [0, 1]]");
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir.path().join("cache"), compression);
        fill(&store);
        store.invalidate(&Keys::text(["bare"], 0).unwrap()).unwrap();
        let [segment] = &files(&dir.path().join("cache/m_v1"), "seg-")[..] else { panic!("one segment") };
        std::fs::copy(segment, dir.path().join("seg.arrow")).unwrap();
        let script = r"
import polars as pl
for frame in [pl.read_ipc('seg.arrow'), pl.scan_ipc('seg.arrow').collect()]:
    tell(frame.to_dict(as_series=False))
";
        let Some(said) = run("polars", &format!("{TELL}{script}"), dir.path()) else { return };
        assert_eq!(said, expected.repeat(2), "{compression:?}");
    }
}

#[test]
fn compressed_files_are_imported() {
    for (name, script) in [
        ("lz4 feather", "feather.write_feather(table, 'theirs', compression='lz4')"),
        ("zstd feather", "feather.write_feather(table, 'theirs', compression='zstd')"),
        ("snappy parquet", "parquet.write_table(table, 'theirs', compression='snappy')"),
        ("zstd parquet", "parquet.write_table(table, 'theirs', compression='zstd')"),
        ("gzip parquet", "parquet.write_table(table, 'theirs', compression='gzip')"),
        ("lz4 parquet", "parquet.write_table(table, 'theirs', compression='lz4')"),
    ] {
        let read =
            "from pyarrow import feather, ipc, parquet\ntable = ipc.open_file('out.arrow').read_all()\n";
        imported("pyarrow", name, &format!("{read}{script}"));
    }
}

#[test]
fn what_polars_and_duckdb_write_is_imported_as_it_was() {
    for (package, script) in [
        ("polars", "import polars as pl\npl.read_ipc('out.arrow').write_ipc('theirs')"),
        ("polars", "import polars as pl\npl.read_ipc('out.arrow').write_parquet('theirs')"),
        ("duckdb", "import duckdb\nduckdb.sql(\"copy (from 'out.parquet') to 'theirs' (format parquet)\")"),
    ] {
        imported(package, script, script);
    }
}

/// What the script makes of the export is imported as it was.
fn imported(package: &str, name: &str, script: &str) {
    let dir = exported();
    let copy = open(&dir.path().join("copy"), Compression::None);
    fill(&copy);
    if run(package, script, dir.path()).is_none() {
        return;
    }
    copy.invalidate(&Keys::text(["full", "bare"], 0).unwrap()).unwrap();
    let added = json(dir.path(), &["import", "copy", "m_v1", "theirs", "--revive"])["added"].clone();
    let same = json(dir.path(), &["diff", "cache", "copy"])["modules"][0]["same"].clone();
    assert_eq!((added, same), (2.into(), 2.into()), "{name}");
}
