//! Exports as text: CSV and JSON Lines. What each kind of value looks like there is documented.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::path::Path;

use support::{json, open, tcx, workplace};
use tcx_store::{Column, ColumnType, DType, DYNAMIC_DIM, Field, Identity, KeyType, Keys, Spec};

const PAIR: ColumnType = ColumnType::Dense { dtype: DType::F32, shape: &[2] };
const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "score", column: ColumnType::Dense { dtype: DType::F64, shape: &[] } },
    Field { name: "grid", column: ColumnType::Dense { dtype: DType::F16, shape: &[2, 2] } },
    Field { name: "mask", column: ColumnType::Dense { dtype: DType::Bool, shape: &[] } },
    Field { name: "pair", column: ColumnType::Optional(&PAIR) },
    Field {
        name: "map",
        column: ColumnType::Ragged { dtype: DType::U8, shape: &[DYNAMIC_DIM, DYNAMIC_DIM] },
    },
    Field { name: "image", column: ColumnType::Bytes },
    Field { name: "view", column: ColumnType::Optional(&ColumnType::Text) },
    Field { name: "kind", column: ColumnType::Dense { dtype: DType::U8, shape: &[] } },
]);

fn fill(cache: &Path) {
    let names = [("Output.kind".to_owned(), "Plain = 0, Stripes = 1".to_owned())];
    let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::from_iter(names), Vec::new()).unwrap();
    let store = open(cache, spec);
    let ids = ["a \"quoted\", one\nof two lines", "b"];
    let mut rows = store.lookup(Keys::text(ids, 3).unwrap()).unwrap();
    // 1.5, -2.0, not a number, an infinity; zeros.
    let halves = [[0x00, 0x3e, 0x00, 0xc0, 0x00, 0x7e, 0x00, 0x7c], [0; 8]].concat();
    let columns = vec![
        Column::dense(&[0.1_f64, f64::NEG_INFINITY].map(f64::to_le_bytes).concat()),
        Column::dense(&halves),
        Column::dense(&[1, 0]),
        Column::dense(&[1.0_f32, f32::NAN, 0.0, 0.0].map(f32::to_le_bytes).concat()).optional([true, false]),
        Column::varying(vec![7, 8, 9], [3, 3]),
        Column::dense(&[3_i64, 1, 0, 9].map(i64::to_le_bytes).concat()),
        Column::varying(vec![0xff, 0xd8], [2, 2]),
        Column::text(["say \"hi\", twice", ""]).optional([true, false]),
        Column::dense(&[1, 0]),
    ];
    store.insert(&mut rows, &[0, 1], columns).unwrap();
    store.flush().unwrap();
}

fn exported(to: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    fill(&dir.path().join("cache"));
    json(dir.path(), &["export", "cache", "m_v1", "--to", to]);
    fs::read_to_string(dir.path().join(to)).unwrap()
}

#[test]
fn every_kind_of_value_has_one_form_in_csv() {
    let expected = r#"id,view,score,grid,mask,pair,map,map.sizes,image,view (output),kind
"a ""quoted"", one
of two lines",3,0.1,"[[1.5,-2.0],[""NaN"",""inf""]]",true,"[1.0,""NaN""]","[[7],[8],[9]]","[3,1]",ffd8,"say ""hi"", twice",Stripes
b,3,-inf,"[[0.0,0.0],[0.0,0.0]]",false,,[],"[0,9]",,,Plain
"#;
    assert_eq!(exported("out.csv"), expected);
}

#[test]
fn every_kind_of_value_has_one_form_in_json_lines() {
    let first = r#"{"id":"a \"quoted\", one\nof two lines","view":3,"score":0.1,"grid":[[1.5,-2.0],["NaN","inf"]],"mask":true,"pair":[1.0,"NaN"],"map":[[7],[8],[9]],"map.sizes":[3,1],"image":"ffd8","view (output)":"say \"hi\", twice","kind":"Stripes"}"#;
    let second = r#"{"id":"b","view":3,"score":"-inf","grid":[[0.0,0.0],[0.0,0.0]],"mask":false,"pair":null,"map":[],"map.sizes":[0,9],"image":"","view (output)":null,"kind":"Plain"}"#;
    for to in ["out.jsonl", "out.ndjson"] {
        let lines = exported(to);
        assert_eq!(lines.lines().collect::<Vec<_>>(), [first, second], "{to}");
        lines.lines().for_each(|line| drop(serde_json::from_str::<serde_json::Value>(line).unwrap()));
    }
}

#[test]
fn integer_ids_are_numbers_in_json_lines() {
    let dir = workplace();
    json(dir.path(), &["rm", "cache", "resnet50_v1", "--id", "0", "--yes"]);
    json(dir.path(), &["export", "cache", "resnet50_v1", "--to", "out.jsonl"]);
    let lines = fs::read_to_string(dir.path().join("out.jsonl")).unwrap();
    assert_eq!(lines.lines().next(), Some(r#"{"id":1,"view":0,"value":[1.0,-2.0,"NaN"]}"#));
    assert_eq!(lines.lines().count(), 999);
}

#[test]
fn only_the_outputs_that_are_named_are_exported() {
    let dir = tempfile::tempdir().unwrap();
    fill(&dir.path().join("cache"));
    let header = |to: &str, fields: &str| {
        json(dir.path(), &["export", "cache", "m_v1", "--to", to, "--fields", fields]);
        fs::read_to_string(dir.path().join(to)).unwrap().lines().next().unwrap().to_owned()
    };
    assert_eq!(header("a.csv", "kind,score"), "id,view,score,kind", "in the order of the module");
    assert_eq!(header("b.csv", "map"), "id,view,map,map.sizes", "a tensor with its sizes");
    let other = workplace();
    json(other.path(), &["export", "cache", "clip_v1", "--to", "folder", "--fields", "score"]);
    assert!(
        other.path().join("folder/score.npy").exists() && !other.path().join("folder/vector.npy").exists()
    );
    let refused = tcx(dir.path(), &["export", "cache", "m_v1", "--to", "c.csv", "--fields", "ma,score"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let expected = "no output `ma` in `m_v1`; its outputs are score, grid, mask, pair, map, map.sizes, image, view, kind";
    assert!(said.contains(expected), "{said}");
    assert!(!dir.path().join("c.csv").exists());
}
