//! Outputs that differ in size, or that not every sample has: shown, exported and imported as they are.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;

use support::{json, open, tcx};
use tcx_store::{Column, ColumnType, DType, DYNAMIC_DIM, Field, Identity, KeyType, Keys, Spec};

const SCORE: ColumnType = ColumnType::Dense { dtype: DType::F32, shape: &[2] };
const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "score", column: ColumnType::Optional(&SCORE) },
    Field { name: "tokens", column: ColumnType::Ragged { dtype: DType::I16, shape: &[DYNAMIC_DIM, 2] } },
    Field {
        name: "map",
        column: ColumnType::Ragged { dtype: DType::U8, shape: &[DYNAMIC_DIM, DYNAMIC_DIM] },
    },
    Field { name: "image", column: ColumnType::Bytes },
    Field { name: "caption", column: ColumnType::Optional(&ColumnType::Text) },
]);

/// Fills a cache with two rows: `full` has every value, `bare` as few as can be.
fn fill(cache: &Path, ids: &[&str]) {
    let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    let store = open(cache, spec);
    let mut rows = store.lookup(Keys::text(ids, 0).unwrap()).unwrap();
    let logits: Vec<u8> = [1.5_f32, -2.0].into_iter().flat_map(f32::to_le_bytes).chain([0; 8]).collect();
    let sizes: Vec<u8> = [3_i64, 1, 0, 9].into_iter().flat_map(i64::to_le_bytes).collect();
    let columns = vec![
        Column::dense(&logits).optional([true, false]),
        Column::varying(vec![1, 0, 2, 0, 3, 0, 4, 0], [8, 8]),
        Column::varying(vec![7, 8, 9], [3, 3]),
        Column::dense(&sizes),
        Column::varying(vec![0xff, 0xd8], [2, 2]),
        Column::text(["a cat", ""]).optional([true, false]),
    ];
    store.insert(&mut rows, &[0, 1], columns).unwrap();
    store.flush().unwrap();
}

#[test]
fn every_kind_is_shown_with_its_shape_or_as_absent() {
    let dir = tempfile::tempdir().unwrap();
    fill(&dir.path().join("cache"), &["full", "bare"]);
    let shown = tcx(dir.path(), &["head", "cache", "m_v1"]).stdout;
    let expected = r#"full
  score      f32 [2]  [1.5, -2]  min -2, max 1.5, mean -0.25
  tokens     i16 [2, 2]  [1, 2, 3, 4]  min 1, max 4, mean 2.5
  map        u8 [3, 1]  [7, 8, 9]  min 7, max 9, mean 8
  map.sizes  i64 [2]  [3, 1]  min 1, max 3, mean 2
  image      bytes  ffd8  2 bytes
  caption    String  "a cat"  5 characters
bare
  score      optional f32 [2]  none
  tokens     i16 [0, 2]  []  no elements
  map        u8 [0, 9]  []  no elements
  map.sizes  i64 [2]  [0, 9]  min 0, max 9, mean 4.5
  image      bytes    0 bytes
  caption    optional String  none
"#;
    assert_eq!(String::from_utf8(shown).unwrap(), expected);
    let bare = &json(dir.path(), &["show", "cache", "m_v1", "bare"])["rows"][0]["outputs"];
    assert_eq!(bare[0], serde_json::json!({"name": "score", "type": "optional f32 [2]", "value": null}));
    let outputs = &json(dir.path(), &["info", "cache", "m_v1"])["outputs"];
    assert_eq!(
        (&outputs[0]["optional"], &outputs[1]["shape"]),
        (&true.into(), &serde_json::json!([null, 2]))
    );
    json(dir.path(), &["report", "cache", "--to", "report.html"]);
    assert_eq!(tcx(dir.path(), &["verify", "cache"]).status.code(), Some(0));
}

#[test]
fn every_kind_comes_back_from_every_format_that_can_hold_it() {
    for to in ["out.arrow", "out.arrows", "out.parquet"] {
        let dir = tempfile::tempdir().unwrap();
        for cache in ["cache", "copy"] {
            fill(&dir.path().join(cache), &["full", "bare"]);
        }
        json(dir.path(), &["export", "cache", "m_v1", "--to", to]);
        for id in ["full", "bare"] {
            json(dir.path(), &["rm", "copy", "m_v1", "--id", id, "--yes"]);
        }
        assert_eq!(json(dir.path(), &["import", "copy", "m_v1", to, "--revive"])["added"], 2);
        assert_eq!(json(dir.path(), &["diff", "cache", "copy"])["modules"][0]["same"], 2, "{to}");
        fill(&dir.path().join("other"), &["x", "y"]);
        assert_eq!(json(dir.path(), &["merge", "other", "copy"])["modules"][0]["added"], 2);
    }
}

#[test]
fn what_is_no_array_is_not_exported_as_one() {
    let dir = tempfile::tempdir().unwrap();
    fill(&dir.path().join("cache"), &["full", "bare"]);
    let output = tcx(dir.path(), &["export", "cache", "m_v1", "--to", "out"]);
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("`score`, optional f32 [2], is not an array; export to Parquet or Arrow"),
        "{said}"
    );
    assert!(!dir.path().join("out").exists());
}

#[test]
fn outputs_named_as_the_id_and_the_view_are_come_back_as_outputs() {
    const OUTPUT: ColumnType = ColumnType::Struct(&[
        Field { name: "id", column: ColumnType::Text },
        Field { name: "view", column: ColumnType::Dense { dtype: DType::I64, shape: &[] } },
    ]);
    let fill = |cache: &Path| {
        let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
        let store = open(cache, spec);
        let mut rows = store.lookup(Keys::text(["a", "b"], 0).unwrap()).unwrap();
        let numbers: Vec<u8> = [7_i64, 8].into_iter().flat_map(i64::to_le_bytes).collect();
        store.insert(&mut rows, &[0, 1], vec![Column::text(["b", "x"]), Column::dense(&numbers)]).unwrap();
        store.flush().unwrap();
    };
    for to in ["out.arrow", "out.parquet"] {
        let dir = tempfile::tempdir().unwrap();
        for cache in ["cache", "copy"] {
            fill(&dir.path().join(cache));
        }
        json(dir.path(), &["export", "cache", "m_v1", "--to", to]);
        json(dir.path(), &["rm", "copy", "m_v1", "--id", "a", "--id", "b", "--yes"]);
        assert_eq!(json(dir.path(), &["import", "copy", "m_v1", to, "--revive"])["added"], 2, "{to}");
        assert_eq!(json(dir.path(), &["diff", "cache", "copy"])["modules"][0]["same"], 2, "{to}");
    }
}

#[test]
fn an_output_that_is_named_as_the_folder_s_own_file_comes_back_as_an_output() {
    const NUMBER: ColumnType = ColumnType::Dense { dtype: DType::I64, shape: &[] };
    const OUTPUT: ColumnType = ColumnType::Struct(&[
        Field { name: "views", column: NUMBER },
        Field { name: "ids", column: NUMBER },
        Field { name: "tcx", column: NUMBER },
    ]);
    let fill = |cache: &Path, view: u32| {
        let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
        let store = open(cache, spec);
        let mut rows = store.lookup(Keys::text(["a", "b"], view).unwrap()).unwrap();
        let numbers: Vec<u8> = [7_i64, 8].into_iter().flat_map(i64::to_le_bytes).collect();
        store.insert(&mut rows, &[0, 1], vec![Column::dense(&numbers); 3]).unwrap();
        store.flush().unwrap();
    };
    for view in [0, 2] {
        let dir = tempfile::tempdir().unwrap();
        for cache in ["cache", "copy"] {
            fill(&dir.path().join(cache), view);
        }
        json(dir.path(), &["export", "cache", "m_v1", "--to", "out"]);
        json(dir.path(), &["rm", "copy", "m_v1", "--id", "a", "--id", "b", "--yes"]);
        assert_eq!(json(dir.path(), &["import", "copy", "m_v1", "out", "--revive"])["added"], 2);
        assert_eq!(json(dir.path(), &["diff", "cache", "copy"])["modules"][0]["same"], 2, "view {view}");
    }
}

#[test]
fn a_folder_whose_lines_are_not_those_of_its_ids_is_not_imported() {
    const OUTPUT: ColumnType = ColumnType::Struct(&[Field { name: "caption", column: ColumnType::Text }]);
    let dir = tempfile::tempdir().unwrap();
    let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    let store = open(&dir.path().join("cache"), spec);
    let mut rows = store.lookup(Keys::text(["z"], 0).unwrap()).unwrap();
    store.insert(&mut rows, &[0], vec![Column::text(["Z"])]).unwrap();
    store.flush().unwrap();
    let folder = dir.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("caption.jsonl"), "\"A\"\n\"B\"\n\"C\"\n").unwrap();
    for ids in ["a\n\nc\n", "a\nb\n"] {
        std::fs::write(folder.join("ids.txt"), ids).unwrap();
        let output = tcx(dir.path(), &["import", "cache", "m_v1", "folder"]);
        assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
