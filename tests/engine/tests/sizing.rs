//! The room that rows take is what the README's rule says.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;
use std::sync::Arc;

use tcx_engine_tests::options;
use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Spec, Store};

const ROW: usize = 256;
const ROWS: usize = 40_000;

fn open(dir: &Path) -> Arc<Store> {
    let output = ColumnType::Dense { dtype: DType::F32, shape: &[64] };
    let spec = Spec::new("sized_v1", KeyType::Text, &output, Identity::default(), Vec::new()).unwrap();
    Store::open(dir, spec, &options()).unwrap()
}

#[test]
fn a_cache_takes_the_bytes_of_rows_and_ids_and_29_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let ids: Vec<String> = (0..ROWS).map(|row| format!("images/{row:013}")).collect();
    let mut rows = store.lookup(Keys::text(&ids, 0).unwrap()).unwrap();
    let values: Vec<u8> = (0..ROWS * ROW).map(|byte| byte as u8).collect();
    store.insert(&mut rows, &(0..ROWS).collect::<Vec<_>>(), vec![Column::dense(&values)]).unwrap();
    store.flush().unwrap();
    let taken = store.disk_usage().unwrap().bytes as f64;
    let rule = (ROWS * (ROW + ids[0].len() + 29)) as f64;
    assert!((taken / rule - 1.).abs() < 0.01, "{taken} bytes, {rule} by the rule");
}
