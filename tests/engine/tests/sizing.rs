//! The room that rows take is what the rule of docs/operations.md says.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;
use std::sync::Arc;

use tcx_engine_tests::options;
use tcx_store::{Column, ColumnType, DType, DYNAMIC_DIM, Field, Identity, KeyType, Keys, Spec, Store};

const ROW: usize = 256;
const ROWS: usize = 40_000;

const DENSE: ColumnType = ColumnType::Dense { dtype: DType::F32, shape: &[64] };

fn open(dir: &Path, output: &ColumnType) -> Arc<Store> {
    let spec = Spec::new("sized_v1", KeyType::Text, output, Identity::default(), Vec::new()).unwrap();
    Store::open(dir, spec, &options()).unwrap()
}

/// Rows of these columns take, with their ids, so many bytes each.
fn judge(output: &ColumnType, columns: Vec<Column>, bytes: usize) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), output);
    let ids: Vec<String> = (0..ROWS).map(|row| format!("images/{row:013}")).collect();
    let mut rows = store.lookup(Keys::text(&ids, 0).unwrap()).unwrap();
    store.insert(&mut rows, &(0..ROWS).collect::<Vec<_>>(), columns).unwrap();
    store.flush().unwrap();
    let taken = store.disk_usage().unwrap().bytes as f64;
    let rule = (ROWS * (bytes + ids[0].len())) as f64;
    assert!((taken / rule - 1.).abs() < 0.01, "{taken} bytes, {rule} by the rule");
}

fn dense() -> Column {
    Column::dense(&(0..ROWS * ROW).map(|byte| byte as u8).collect::<Vec<_>>())
}

#[test]
fn a_cache_takes_the_bytes_of_rows_and_ids_and_29_for_each() {
    judge(&DENSE, vec![dense()], ROW + 29);
}

#[test]
fn outputs_whose_size_differs_take_8_bytes_more_for_each_row() {
    let caption = |row: usize| "x".repeat(row % 9); // 4 on average
    let tokens: Vec<u8> = (0..ROWS * 6).map(|byte| byte as u8).collect();
    let ends: Vec<usize> = (1..=ROWS).map(|row| row * 6).collect();
    let output = ColumnType::Struct(&[
        Field { name: "vector", column: DENSE },
        Field { name: "caption", column: ColumnType::Text },
        Field { name: "tokens", column: ColumnType::Ragged { dtype: DType::I16, shape: &[DYNAMIC_DIM] } },
    ]);
    let columns = vec![dense(), Column::text((0..ROWS).map(caption)), Column::varying(tokens, ends)];
    judge(&output, columns, ROW + (4 + 8) + (6 + 8) + 29);
}
