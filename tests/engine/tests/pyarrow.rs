//! A segment is a plain Arrow file: pyarrow opens it memory-mapped and shows the same rows.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::process::Command;

use tcx_engine_tests::{files, get_or_compute, open, options, row, spec};
use tcx_store::{
    Column, ColumnType, Compression, DType, DYNAMIC_DIM, Field, Identity, KeyType, Keys, Options, Spec, Store,
};

/// The Python with pyarrow, or the reason why there is none.
fn python() -> Result<String, String> {
    let python = std::env::var("TCX_PYTHON").map_err(|_| "TCX_PYTHON names no Python".to_owned())?;
    let pyarrow = Command::new(&python).args(["-c", "import pyarrow"]).output();
    match pyarrow {
        Ok(output) if output.status.success() => Ok(python),
        Ok(_) => Err(format!("{python} has no pyarrow; `cargo xtask test` installs one")),
        Err(error) => Err(format!("cannot run {python}: {error}; `cargo xtask test` installs one")),
    }
}

/// What the script prints; `None` without pyarrow, unless `TCX_REQUIRE` names it.
fn run(script: &str, segment: &std::path::Path) -> Option<String> {
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            tcx_test_skips::skip("pyarrow", why);
            return None;
        }
    };
    let output = Command::new(python).args(["-c", script]).arg(segment).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn pyarrow_maps_a_segment_and_shows_keys_tensors_and_text() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    get_or_compute(&store, &["cat", "dog"]);
    store.flush().unwrap();
    let script = r"
import sys, pyarrow as pa, pyarrow.ipc
source = pa.memory_map(sys.argv[1])
before = pa.total_allocated_bytes()
table = pa.ipc.open_file(source).read_all()
assert pa.total_allocated_bytes() == before, 'something was copied'
assert table.column('vector').type == pa.fixed_shape_tensor(pa.float32(), [4, 8]), table.schema
print(table.column('__key').to_pylist(), table.column('__view').to_pylist())
tensors = table.column('vector').combine_chunks()
if isinstance(tensors, pa.ChunkedArray): tensors = tensors.chunk(0)
print(tensors.storage.flatten().to_pylist()[32:36])
print(table.column('score').to_pylist())
print(table.column('caption').to_pylist()[0])
";
    let [segment] = &files(dir.path(), "seg-")[..] else { panic!("one segment") };
    let Some(said) = run(script, segment) else { return };
    let (cat, dog) = (row("cat"), row("dog"));
    let floats: Vec<f32> = dog.0.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let expected = format!("['cat', 'dog'] [0, 0]\n{:?}\n[{}, {}]\n{}\n", &floats[..4], cat.1, dog.1, cat.2);
    assert_eq!(said, expected);
}

#[test]
fn pyarrow_shows_every_dtype() {
    const fn number(name: &'static str, dtype: DType) -> Field {
        Field { name, column: ColumnType::Dense { dtype, shape: &[] } }
    }
    const OUTPUT: ColumnType = ColumnType::Struct(&[
        number("f16", DType::F16),
        number("bf16", DType::BF16),
        number("f64", DType::F64),
        number("u8", DType::U8),
        number("bool", DType::Bool),
        Field { name: "mask", column: ColumnType::Dense { dtype: DType::Bool, shape: &[2] } },
    ]);
    let dir = tempfile::tempdir().unwrap();
    let spec = Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    let store = Store::open(dir.path(), spec, &Options::default()).unwrap();
    let mut rows = store.lookup(Keys::ints([-7], 0)).unwrap();
    let half = 0x3e00_u16.to_le_bytes(); // 1.5 in f16
    let brain = 0x3fc0_u16.to_le_bytes(); // 1.5 in bf16
    let double = 1.5_f64.to_le_bytes();
    let columns = [&half[..], &brain, &double, &[200], &[1], &[0, 1]].map(Column::dense).to_vec();
    store.insert(&mut rows, &[0], columns).unwrap();
    store.flush().unwrap();
    let script = r"
import sys, pyarrow as pa, pyarrow.ipc
table = pa.ipc.open_file(pa.memory_map(sys.argv[1])).read_all()
for name in ['__key', 'f16', 'bf16', 'f64', 'u8', 'bool']: print(table.column(name).to_pylist()[0])
mask = table.column('mask').chunk(0)
print(mask.storage.to_pylist()[0], table.schema.field('bf16').metadata[b'tcx.dtype'])
";
    let [segment] = &files(dir.path(), "seg-")[..] else { panic!("one segment") };
    let Some(said) = run(script, segment) else { return };
    assert_eq!(said, "-7\n1.5\n16320\n1.5\n200\nTrue\n[0, 1] b'bf16'\n");
}

#[test]
fn pyarrow_reads_compressed_segments() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { compression, ..options() };
        let store = Store::open(dir.path(), spec("224"), &options).unwrap();
        let ids: Vec<String> = (0..2000).map(|i| format!("id{i}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        get_or_compute(&store, &ids);
        store.flush().unwrap();
        let script = r"
import sys, pyarrow as pa, pyarrow.ipc
file = pa.ipc.open_file(pa.memory_map(sys.argv[1]))
table = file.read_all()
table.validate(full=True)
print(file.num_record_batches > 1, table.num_rows, table.column('__key').to_pylist()[1999])
print(table.column('score').to_pylist()[1234])
print(table.column('caption').to_pylist()[1234])
print(table.column('vector').chunk(0).storage.flatten().to_pylist()[0:2])
";
        let [segment] = &files(dir.path(), "seg-")[..] else { panic!("one segment") };
        let Some(said) = run(script, segment) else { return };
        let (first, later) = (row("id0"), row("id1234"));
        let floats: Vec<f32> = first.0.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let expected = format!("True 2000 id1999\n{}\n{}\n{:?}\n", later.1, later.2, &floats[..2]);
        assert_eq!(said, expected, "{compression:?}");
    }
}

#[test]
fn pyarrow_shows_bytes_tensors_that_differ_in_size_and_nulls() {
    const TOKENS: ColumnType = ColumnType::Ragged { dtype: DType::F32, shape: &[DYNAMIC_DIM, 2] };
    const OUTPUT: ColumnType = ColumnType::Struct(&[
        Field { name: "image", column: ColumnType::Bytes },
        Field { name: "tokens", column: TOKENS },
        Field {
            name: "maps",
            column: ColumnType::Ragged { dtype: DType::U8, shape: &[DYNAMIC_DIM, DYNAMIC_DIM] },
        },
        Field {
            name: "score",
            column: ColumnType::Optional(&ColumnType::Dense { dtype: DType::F64, shape: &[] }),
        },
        Field {
            name: "corner",
            column: ColumnType::Optional(&ColumnType::Dense { dtype: DType::I16, shape: &[2] }),
        },
        Field { name: "caption", column: ColumnType::Optional(&ColumnType::Text) },
        Field { name: "pieces", column: ColumnType::Optional(&TOKENS) },
    ]);
    let dir = tempfile::tempdir().unwrap();
    let spec = Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    let store = Store::open(dir.path(), spec, &Options::default()).unwrap();
    let mut rows = store.lookup(Keys::ints([1, 2, 3], 0)).unwrap();
    let floats = |floats: &[f32]| floats.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let (second, not_first) = ([false, true, false], [false, true, true]);
    let columns = vec![
        Column::varying(vec![0, 255, 7], [2, 2, 3]),
        Column::varying(floats(&[1., 2., 3., 4., 5., 6.]), [16, 16, 24]),
        Column::varying(vec![1, 2, 3], [2, 3, 3]),
        Column::dense(&[1_i64, 2, 1, 1, 0, 9].map(i64::to_le_bytes).concat()),
        Column::dense(&[0., 1.5, 0.].map(f64::to_le_bytes).concat()).optional(second),
        Column::dense(&[0, 0, 3, 4, 5, 6_i16].map(i16::to_le_bytes).concat()).optional(not_first),
        Column::text(["", "", "a dog"]).optional(not_first),
        Column::varying(floats(&[7., 8.]), [0, 8, 8]).optional(second),
    ];
    store.insert(&mut rows, &[0, 1, 2], columns).unwrap();
    store.flush().unwrap();
    let script = r"
import sys, pyarrow as pa, pyarrow.ipc
table = pa.ipc.open_file(pa.memory_map(sys.argv[1])).read_all()
table.validate(full=True)
for name in ['image', 'tokens', 'maps', 'maps.sizes', 'score', 'corner', 'caption', 'pieces']:
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray): column = column.chunk(0)
    if isinstance(column, pa.ExtensionArray): column = column.storage
    print(column.null_count, column.to_pylist())
fields = [table.schema.field(name) for name in ['tokens', 'score']]
print(fields[0].metadata[b'tcx.shape'], [field.nullable for field in fields])
";
    let [segment] = &files(dir.path(), "seg-")[..] else { panic!("one segment") };
    let Some(said) = run(script, segment) else { return };
    let expected = r"0 [b'\x00\xff', b'', b'\x07']
0 [[1.0, 2.0, 3.0, 4.0], [], [5.0, 6.0]]
0 [[1, 2], [3], []]
0 [[1, 2], [1, 1], [0, 9]]
2 [None, 1.5, None]
1 [None, [3, 4], [5, 6]]
1 [None, '', 'a dog']
2 [None, [7.0, 8.0], None]
b'[null,2]' [False, True]
";
    assert_eq!(said, expected);
}
