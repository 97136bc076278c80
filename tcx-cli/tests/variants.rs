//! Enums keep the names of their variants outside Rust: in what is shown, exported, imported and reported.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::path::Path;

use serde_json::json as j;
use support::python::run;
use support::{json, open, tcx};
use tcx_store::{Column, ColumnType, DType, DYNAMIC_DIM, Field, Identity, KeyType, Keys, Spec};

const KIND: ColumnType = ColumnType::Dense { dtype: DType::I16, shape: &[] };
const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "vector", column: ColumnType::Dense { dtype: DType::F32, shape: &[4] } },
    Field { name: "tokens", column: ColumnType::Ragged { dtype: DType::F32, shape: &[DYNAMIC_DIM, 2] } },
    Field { name: "kind", column: KIND },
    Field { name: "maybe", column: ColumnType::Optional(&KIND) },
    Field { name: "level", column: ColumnType::Dense { dtype: DType::F32, shape: &[] } },
]);
const NAMES: &str = "Plain = 0, Stripes = 1, Dots = 300";

fn spec(names: &str) -> Spec {
    let entries = ["kind", "maybe"].map(|leaf| (format!("Output.{leaf}"), names.to_owned()));
    Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::from_iter(entries), Vec::new()).unwrap()
}

/// Rows with the numbers 0, 1, 300, 1, 0, 1, …
fn fill(cache: &Path, names: &str, rows: usize) {
    let store = open(cache, spec(names));
    let mut lookup = store.lookup(Keys::ints(0..rows as i64, 0)).unwrap();
    let all: Vec<usize> = (0..rows).collect();
    let floats = |count: usize| -> Vec<u8> {
        (0..count).flat_map(|at| ((at * at % 97) as f32).to_le_bytes()).collect()
    };
    let ends: Vec<usize> = (1..=rows).map(|row| (0..row).map(|at| at % 3 * 8).sum()).collect();
    let kinds: Vec<u8> = (0..rows).flat_map(|at| [0_i16, 1, 300, 1][at % 4].to_le_bytes()).collect();
    let columns = vec![
        Column::dense(&floats(rows * 4)),
        Column::varying(floats(ends[rows - 1] / 4), ends),
        Column::dense(&kinds),
        Column::dense(&kinds).optional((0..rows).map(|at| at != 1)),
        Column::dense(&floats(rows)),
    ];
    store.insert(&mut lookup, &all, columns).unwrap();
    store.flush().unwrap();
}

fn filled(rows: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fill(&dir.path().join("cache"), NAMES, rows);
    dir
}

#[test]
fn a_row_shows_the_name_of_its_variant() {
    let dir = filled(3);
    let shown = String::from_utf8(tcx(dir.path(), &["show", "cache", "m_v1", "2"]).stdout).unwrap();
    assert!(shown.contains("  kind    i16 []  300 (Dots)\n"), "{shown}");
    assert!(shown.contains("  maybe   i16 []  300 (Dots)\n"), "{shown}");
    let kind = &json(dir.path(), &["show", "cache", "m_v1", "1"])["rows"][0]["outputs"][2];
    assert_eq!((&kind["name"], &kind["variant"], &kind["values"]), (&j!("kind"), &j!("Stripes"), &j!([1])));
}

#[test]
fn names_come_back_from_every_format_as_numbers() {
    for to in ["out.arrow", "out.arrows", "out.parquet"] {
        let dir = filled(8);
        fill(&dir.path().join("copy"), NAMES, 8);
        json(dir.path(), &["export", "cache", "m_v1", "--to", to]);
        json(dir.path(), &["rm", "copy", "m_v1", "--id", "2", "--id", "3", "--yes"]);
        assert_eq!(json(dir.path(), &["import", "copy", "m_v1", to, "--revive"])["added"], 2, "{to}");
        assert_eq!(json(dir.path(), &["diff", "cache", "copy"])["modules"][0]["same"], 8, "{to}");
    }
}

#[test]
fn an_export_names_the_variants_in_its_schema() {
    let dir = filled(8);
    for to in ["out.arrow", "out.parquet"] {
        json(dir.path(), &["export", "cache", "m_v1", "--to", to]);
    }
    let script = r"
import json, pyarrow as pa, pyarrow.ipc, pyarrow.parquet
for table in [pa.ipc.open_file('out.arrow').read_all(), pyarrow.parquet.read_table('out.parquet')]:
    kind = table.schema.field('kind')
    assert pa.types.is_dictionary(kind.type), kind.type
    print(table['kind'].to_pylist()[:4], table['maybe'].to_pylist()[:2], json.loads(kind.metadata[b'tcx.variants']))
table = pa.table({'id': [100, 101], 'kind': ['Dots', 'Plain'], 'maybe': pa.array(['Stripes', None]),
    'vector': [[0.0] * 4] * 2, 'tokens': [[[1.0, 2.0]], []], 'level': [1.0, 2.0]})
schema = pa.schema([('id', pa.int64()), ('kind', pa.string()), ('maybe', pa.large_string()),
    ('vector', pa.list_(pa.float32())), ('tokens', pa.list_(pa.list_(pa.float32()))), ('level', pa.float32())])
pyarrow.parquet.write_table(table.cast(schema), 'theirs.parquet')
wrong = table.cast(schema).set_column(1, 'kind', pa.array(['Dots', 'Zigzag']))
pyarrow.parquet.write_table(wrong, 'wrong.parquet')
";
    let Some(said) = run("pyarrow", script, dir.path()) else { return };
    let line =
        "['Plain', 'Stripes', 'Dots', 'Stripes'] ['Plain', None] {'Dots': 300, 'Plain': 0, 'Stripes': 1}\n";
    assert_eq!(said, line.repeat(2));
    assert_eq!(json(dir.path(), &["import", "cache", "m_v1", "theirs.parquet"])["added"], 2);
    let kind = &json(dir.path(), &["show", "cache", "m_v1", "100"])["rows"][0]["outputs"][2];
    assert_eq!(kind["variant"], "Dots");
    let refused = tcx(dir.path(), &["import", "cache", "m_v1", "wrong.parquet"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(5));
    assert!(said.contains("column `kind`: expected the name of a variant, found \"Zigzag\""), "{said}");
}

#[test]
fn an_enum_whose_names_are_unknown_stays_a_number() {
    let dir = tempfile::tempdir().unwrap();
    fill(&dir.path().join("cache"), "blake3:0123, 900 bytes", 4);
    let shown = String::from_utf8(tcx(dir.path(), &["show", "cache", "m_v1", "2"]).stdout).unwrap();
    assert!(shown.contains("  kind    i16 []  300\n"), "{shown}");
    json(dir.path(), &["export", "cache", "m_v1", "--to", "out.jsonl", "--fields", "kind"]);
    let lines = fs::read_to_string(dir.path().join("out.jsonl")).unwrap();
    assert_eq!(lines.lines().nth(2), Some(r#"{"id":2,"view":0,"kind":300}"#));
    let report = json(dir.path(), &["report", "cache", "--to", "report.html"]);
    assert_eq!(report["modules"][0]["outputs"][2]["variants"], j!(null));
}

#[test]
fn a_number_that_is_no_variant_is_never_given_a_name() {
    let dir = tempfile::tempdir().unwrap();
    fill(&dir.path().join("cache"), "Plain = 0, Stripes = 1", 4);
    let shown = String::from_utf8(tcx(dir.path(), &["show", "cache", "m_v1", "2"]).stdout).unwrap();
    assert!(shown.contains("  kind    i16 []  300\n"), "{shown}");
    for to in ["out.arrow", "out.parquet", "out.csv", "out.jsonl"] {
        let output = tcx(dir.path(), &["export", "cache", "m_v1", "--to", to]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(5), "{to}: {said}");
        assert!(
            said.contains("the output `kind` has a row with 300, which is the number of no variant"),
            "{said}"
        );
        assert!(!dir.path().join(to).exists());
    }
    json(dir.path(), &["export", "cache", "m_v1", "--to", "out.arrow", "--fields", "vector,level"]);
    let report = json(dir.path(), &["report", "cache", "--to", "report.html"]);
    let counts = &report["modules"][0]["outputs"][2]["variants"];
    assert_eq!(counts[2], j!({"name": null, "number": 300, "rows": 1}));
}

#[test]
fn a_report_counts_variants_and_colours_points_by_them() {
    let dir = filled(40);
    let report = json(dir.path(), &["report", "cache", "--to", "report.html"]);
    let outputs = report["modules"][0]["outputs"].as_array().unwrap();
    let output = |name: &str| outputs.iter().find(|own| own["name"] == name).unwrap();
    let count = |name: &str, number: i64, rows: u64| j!({"name": name, "number": number, "rows": rows});
    let counts = [count("Plain", 0, 10), count("Stripes", 1, 20), count("Dots", 300, 10)];
    assert_eq!(output("kind")["variants"], j!(counts));
    assert_eq!(output("maybe")["variants"][1], count("Stripes", 1, 19), "one has no value");
    assert_eq!((&output("kind")["norms"], &output("kind")["nan"]), (&j!(null), &j!(null)));
    let projection = &output("vector")["projection"];
    assert_eq!((&projection["colored_by"], &projection["points"][2]["value"]), (&j!("kind"), &j!("Dots")));
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("300 (Dots)") && page.contains("<title>2: Dots</title>"), "{page}");
    assert_eq!(page.matches("class=\"point\" style=\"fill:hsl(").count(), 40);
    assert_eq!(page.matches("class=\"swatch\"").count(), 3);
    let lengths = &output("tokens")["lengths"];
    assert_eq!((&lengths["min"], &lengths["max"]), (&j!(0.0), &j!(2.0)), "of the dimension that varies");
    assert!(!output("tokens")["norms"].is_null() && page.contains("data-chart=\"lengths\""));
}

#[test]
fn points_are_coloured_by_the_output_that_is_named() {
    let dir = filled(40);
    let by = |name: &str, to: &str| {
        tcx(dir.path(), &["report", "cache", "--to", to, "--color-by", name, "--json"])
    };
    let report: serde_json::Value = serde_json::from_slice(&by("level", "level.html").stdout).unwrap();
    let projection = &report["modules"][0]["outputs"][0]["projection"];
    assert_eq!((&projection["colored_by"], &projection["points"][3]["value"]), (&j!("level"), &j!(9.0)));
    let page = fs::read_to_string(dir.path().join("level.html")).unwrap();
    assert!(page.contains("Colours: level"), "{page}");
    for name in ["vector", "nothing"] {
        let output = by(name, "other.html");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(&format!("named `{name}`")), "{said}");
        assert!(!dir.path().join("other.html").exists());
    }
}
