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
fn an_output_that_may_be_absent_is_not_exported_as_an_array() {
    let dir = tempfile::tempdir().unwrap();
    fill(&dir.path().join("cache"), &["full", "bare"]);
    let output = tcx(dir.path(), &["export", "cache", "m_v1", "--to", "out"]);
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains(
            "`score`, optional f32 [2], is not an array, since it may be absent; export to Parquet or Arrow"
        ),
        "{said}"
    );
    assert!(!dir.path().join("out").exists());
}

/// Outputs whose rows differ in length: of `a`, all are longer than of `b`, whose are empty.
fn fill_varying(cache: &Path) {
    const OUTPUT: ColumnType = ColumnType::Struct(&[
        Field { name: "tokens", column: ColumnType::Ragged { dtype: DType::BF16, shape: &[DYNAMIC_DIM, 2] } },
        Field {
            name: "map",
            column: ColumnType::Ragged { dtype: DType::I16, shape: &[DYNAMIC_DIM, DYNAMIC_DIM] },
        },
        Field { name: "image", column: ColumnType::Bytes },
    ]);
    let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    let store = open(cache, spec);
    let mut rows = store.lookup(Keys::text(["a", "b", "c"], 0).unwrap()).unwrap();
    // 1.0, -2.0, 3.0, 0.5 and 1.0, -2.0.
    let tokens = [0x80, 0x3f, 0x00, 0xc0, 0x40, 0x40, 0x00, 0x3f, 0x80, 0x3f, 0x00, 0xc0];
    let columns = vec![
        Column::varying(tokens.to_vec(), [8, 8, 12]),
        Column::varying([1_i16, 2, 3, 4, 5, 6, 7].map(i16::to_le_bytes).concat(), [12, 12, 14]),
        Column::dense(&[2_i64, 3, 0, 5, 1, 1].map(i64::to_le_bytes).concat()),
        Column::varying(vec![0xff, 0xd8, 1], [2, 2, 3]),
    ];
    store.insert(&mut rows, &[0, 1, 2], columns).unwrap();
    store.flush().unwrap();
}

#[test]
fn rows_that_differ_in_length_come_back_from_a_folder_of_arrays() {
    let dir = tempfile::tempdir().unwrap();
    for cache in ["cache", "copy"] {
        fill_varying(&dir.path().join(cache));
    }
    json(dir.path(), &["export", "cache", "m_v1", "--to", "out"]);
    for id in ["a", "b", "c"] {
        json(dir.path(), &["rm", "copy", "m_v1", "--id", id, "--yes"]);
    }
    assert_eq!(json(dir.path(), &["import", "copy", "m_v1", "out", "--revive"])["added"], 3);
    assert_eq!(json(dir.path(), &["diff", "cache", "copy"])["modules"][0]["same"], 3);
}

#[test]
fn numpy_reads_values_and_offsets() {
    let dir = tempfile::tempdir().unwrap();
    fill_varying(&dir.path().join("cache"));
    json(dir.path(), &["export", "cache", "m_v1", "--to", "out"]);
    let script = r"
import numpy as np
of = lambda name: (np.load(f'out/{name}.values.npy'), np.load(f'out/{name}.offsets.npy'))
values, offsets = of('tokens')
print(values.dtype, values.shape, offsets.tolist(), values[offsets[0]:offsets[1]].tolist(), values[offsets[2]:offsets[3]].tolist())
values, offsets = of('map')
sizes = np.load('out/map.sizes.npy')
print([values[offsets[row]:offsets[row + 1]].reshape(sizes[row]).tolist() for row in range(3)])
values, offsets = of('image')
print([values[offsets[row]:offsets[row + 1]].tobytes().hex() for row in range(3)])
";
    let Some(said) = support::python::run("numpy", script, dir.path()) else { return };
    let expected = "float32 (3, 2) [0, 2, 2, 3] [[1.0, -2.0], [3.0, 0.5]] [[1.0, -2.0]]\n\
                    [[[1, 2, 3], [4, 5, 6]], [], [[7]]]\n['ffd8', '', '01']\n";
    assert_eq!(said, expected);
}

#[test]
fn a_folder_whose_offsets_do_not_fit_its_values_is_not_imported() {
    let dir = tempfile::tempdir().unwrap();
    fill_varying(&dir.path().join("cache"));
    json(dir.path(), &["export", "cache", "m_v1", "--to", "out"]);
    let offsets = dir.path().join("out/tokens.offsets.npy");
    let good = std::fs::read(&offsets).unwrap();
    let (header, _) = good.split_at(good.len() - 4 * 8);
    for wrong in [[0_i64, 2, 2, 4], [0, 2, 1, 3], [1, 2, 2, 3], [0, 0, 0, i64::MAX], [0, -1, 2, 3]] {
        let bytes = [header, &wrong.map(i64::to_le_bytes).concat()].concat();
        std::fs::write(&offsets, bytes).unwrap();
        let output = tcx(dir.path(), &["import", "cache", "m_v1", "out"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(5) && said.contains("offsets that ascend from 0 to 3"),
            "{said}"
        );
    }
    std::fs::write(&offsets, &good).unwrap();
    let values = dir.path().join("out/tokens.values.npy");
    let shorter = std::fs::read(&values).unwrap();
    std::fs::write(&values, &shorter[..shorter.len() - 1]).unwrap();
    let output = tcx(dir.path(), &["import", "cache", "m_v1", "out"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(5) && said.contains("expected 3 rows of 8 bytes"), "{said}");
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
