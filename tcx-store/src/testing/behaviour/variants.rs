//! The names of variants are in the metadata of segments, where no lookup reads them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_ipc::reader::FileReader;

use crate::testing::names;
use crate::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};

const KIND: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[] };

/// An enum with so many variants that the identity has only their hash.
fn store(dir: &Path, named: Option<&str>) -> Arc<Store> {
    let identity = Identity::from_iter([("Output".to_owned(), "blake3:0123, 900 bytes".to_owned())]);
    let provenance = named.map(|names| ("Output".to_owned(), names.to_owned()));
    let spec = Spec::new("m_v1", KeyType::Int, &KIND, identity, provenance.into_iter().collect()).unwrap();
    Store::open(dir, spec, &Options::default()).unwrap()
}

/// Computes the rows that are missing of three; returns how many they were.
fn compute(store: &Store, ids: [i64; 3]) -> usize {
    let mut rows = store.lookup(Keys::ints(ids, 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    store.insert(&mut rows, &missing, vec![Column::dense(&vec![7; missing.len()])]).unwrap();
    store.flush().unwrap();
    missing.len()
}

/// What each segment says of the variants.
fn metadata(dir: &Path) -> Vec<Option<String>> {
    let segments = names(dir, "seg-").into_iter().map(|name| {
        let file = fs::File::open(dir.join("m_v1").join(name)).unwrap();
        let schema = FileReader::try_new(file, None).unwrap().schema();
        schema.field_with_name("value").unwrap().metadata().get("tcx.variants").cloned()
    });
    let mut segments: Vec<_> = segments.collect();
    segments.sort();
    segments
}

#[test]
fn a_folder_that_was_written_without_names_is_a_hit_for_a_program_that_writes_them() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(compute(&store(dir.path(), None), [1, 2, 3]), 3);
    assert_eq!(metadata(dir.path()), [None]);
    let before = fs::read(dir.path().join("m_v1/change-00000000000000000000")).unwrap();
    let named = store(dir.path(), Some("Plain = 0, Stripes = 7"));
    assert_eq!(compute(&named, [1, 2, 3]), 0);
    assert_eq!(compute(&named, [3, 4, 5]), 2);
    assert_eq!(metadata(dir.path()), [None, Some(r#"{"Plain":0,"Stripes":7}"#.to_owned())]);
    assert_eq!(compute(&store(dir.path(), None), [1, 2, 5]), 0, "and the other way round");
    named.compact().unwrap();
    assert_eq!(compute(&store(dir.path(), Some("Other = 7")), [1, 4, 5]), 0);
    assert_eq!(fs::read(dir.path().join("m_v1/change-00000000000000000000")).unwrap(), before);
}
