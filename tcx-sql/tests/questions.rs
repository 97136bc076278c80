//! What can be asked, and what a question that cannot be answered is told.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;

use support::{add, ask, clip, count, ids, spec, store, texts};
use tcx_sql::{Database, Error, Value};
use tcx_store::{Column, ColumnType, DType, DYNAMIC_DIM, Field, Identity, KeyType, Keys, Spec};

const PAIR: ColumnType = ColumnType::Dense { dtype: DType::F16, shape: &[2] };
const KINDS: ColumnType = ColumnType::Struct(&[
    Field { name: "inner", column: ColumnType::Struct(&[Field { name: "half", column: PAIR }]) },
    Field { name: "brain", column: ColumnType::Dense { dtype: DType::BF16, shape: &[2] } },
    Field {
        name: "maybe",
        column: ColumnType::Optional(&ColumnType::Dense { dtype: DType::F64, shape: &[] }),
    },
    Field { name: "maybe_pair", column: ColumnType::Optional(&PAIR) },
    Field { name: "mask", column: ColumnType::Dense { dtype: DType::Bool, shape: &[2, 1] } },
    Field { name: "tokens", column: ColumnType::Ragged { dtype: DType::I16, shape: &[DYNAMIC_DIM, 2] } },
    Field { name: "image", column: ColumnType::Bytes },
    Field { name: "note", column: ColumnType::Optional(&ColumnType::Text) },
    Field { name: "id", column: ColumnType::Dense { dtype: DType::U8, shape: &[] } },
]);

/// Two rows: one has every value, the other as few as can be.
fn kinds(cache: &Path) {
    let store = store(cache, spec("Kinds-1", KeyType::Int, &KINDS));
    let mut rows = store.lookup(Keys::ints([-7, 8], 3)).unwrap();
    // 1.5, -2.0; 0.5, an infinity.
    let halves = vec![0x00, 0x3e, 0x00, 0xc0, 0x00, 0x38, 0x00, 0x7c];
    // 1.0, -2.0; not a number, 0.0.
    let brains = vec![0x80, 0x3f, 0x00, 0xc0, 0xc0, 0x7f, 0x00, 0x00];
    let columns = vec![
        Column::dense(&halves),
        Column::dense(&brains),
        Column::dense(&[0.25_f64, 0.0].map(f64::to_le_bytes).concat()).optional([true, false]),
        Column::dense(&[0x00, 0x3e, 0x00, 0xc0, 0, 0, 0, 0]).optional([true, false]),
        Column::dense(&[1, 0, 0, 1]),
        Column::varying([1_i16, 2, 3, 4].map(i16::to_le_bytes).concat(), [8, 8]),
        Column::varying(vec![0xff, 0xd8], [2, 2]),
        Column::text(["a note", ""]).optional([true, false]),
        Column::dense(&[200, 0]),
    ];
    store.insert(&mut rows, &[0, 1], columns).unwrap();
    store.flush().unwrap();
}

fn list(values: impl IntoIterator<Item = f32>) -> Value {
    Value::List(values.into_iter().map(Value::Single).collect())
}

#[test]
fn every_kind_of_output_is_a_column() {
    let dir = tempfile::tempdir().unwrap();
    kinds(dir.path());
    let rows = ask(dir.path(), r#"select * from "Kinds-1""#).unwrap();
    let tokens = [1, 2, 3, 4].map(Value::Int).to_vec();
    let full = vec![
        Value::Int(-7),
        Value::Unsigned(3),
        list([1.5, -2.0]),
        list([1.0, -2.0]),
        Value::Double(0.25),
        list([1.5, -2.0]),
        Value::List(vec![Value::Bool(true), Value::Bool(false)]),
        Value::List(tokens),
        Value::Bytes(vec![0xff, 0xd8]),
        Value::Text("a note".to_owned()),
        Value::Unsigned(200),
    ];
    assert_eq!(rows[0], full);
    let (bare, null) = (&rows[1], Value::Null);
    assert_eq!((&bare[0], &bare[4], &bare[5], &bare[9]), (&Value::Int(8), &null, &null, &null));
    assert_eq!((&bare[2], &bare[7]), (&list([0.5, f32::INFINITY]), &Value::List(Vec::new())));
    let Value::List(brains) = &bare[3] else { panic!("{bare:?}") };
    assert!(matches!(brains[..], [Value::Single(first), Value::Single(0.0)] if first.is_nan()), "{brains:?}");
}

#[test]
fn columns_have_the_names_of_the_outputs() {
    let dir = tempfile::tempdir().unwrap();
    kinds(dir.path());
    let database = Database::open(dir.path()).unwrap();
    let answer = database.query(r#"select * from "Kinds-1""#).unwrap();
    let names: Vec<&str> = answer.columns().iter().map(|column| column.name.as_str()).collect();
    let expected =
        ["id", "view", "inner.half", "brain", "maybe", "maybe_pair", "mask", "tokens", "image", "note"];
    assert_eq!(names, [&expected[..], &["id (output)"]].concat());
    let asked = r#"select "inner.half"[2], "id (output)" from "Kinds-1" where id = -7"#;
    assert_eq!(ask(dir.path(), asked).unwrap(), [[Value::Single(-2.0), Value::Unsigned(200)]]);
}

#[test]
fn functions_of_lists_take_tensors() {
    let dir = tempfile::tempdir().unwrap();
    kinds(dir.path());
    let one = |sql: &str| ask(dir.path(), sql).unwrap()[0][0].clone();
    let of_kinds = |what: &str| one(&format!(r#"select {what} from "Kinds-1" where id = -7"#));
    assert_eq!(of_kinds("array_length(brain)"), Value::Unsigned(2));
    assert_eq!(of_kinds("array_length(tokens)"), Value::Unsigned(4));
    assert_eq!(of_kinds("array_distance(brain, [1.0, -5.0])"), Value::Double(3.0));
    assert_eq!(of_kinds(r#"array_distance("inner.half", brain)"#), Value::Double(0.5));
    assert_eq!(of_kinds("array_has(tokens, 3)"), Value::Bool(true));
    assert_eq!(of_kinds("array_max(brain)"), Value::Single(1.0));
    assert_eq!(count(dir.path(), r#"select count(*) from (select unnest(tokens) as t from "Kinds-1")"#), 4);
    assert_eq!(count(dir.path(), r#"select count(maybe_pair) from "Kinds-1""#), 1);
}

#[test]
fn modules_are_joined_by_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    kinds(dir.path());
    add(&clip(dir.path()), &ids([8, 9]), 30);
    let joined = r#"select c.id from clip_v1 c join "Kinds-1" k on c.id = arrow_cast(k.id, 'LargeUtf8')"#;
    assert_eq!(texts(dir.path(), joined), ["8"]);
    assert_eq!(
        texts(
            dir.path(),
            "select table_name from information_schema.tables where table_schema = 'cache' order by 1"
        ),
        ["Kinds-1", "clip_v1"]
    );
    assert!(ask(dir.path(), "show tables").unwrap().len() > 2);
    assert_eq!(texts(dir.path(), "describe clip_v1"), ["id", "view", "vector", "score", "caption"]);
    assert_eq!(
        texts(dir.path(), "with c as (select caption from clip_v1) select caption from c limit 1"),
        ["a picture of a 8"]
    );
}

#[test]
fn functions_stand_where_tables_do() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(count(dir.path(), "select count(*) from range(1, 5)"), 4);
    assert_eq!(count(dir.path(), "select count(*) from generate_series(1, 5)"), 5);
}

#[test]
fn what_would_change_something_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    add(&clip(dir.path()), &ids(["cat"]), 1);
    let target = dir.path().join("out.csv");
    let copy = format!("copy clip_v1 to '{}'", target.display());
    for (sql, word) in [
        ("insert into clip_v1 (id) values ('dog')", "insert"),
        ("create table t as select * from clip_v1", "create"),
        ("create view v as select 1", "create"),
        ("create external table t stored as csv location '/etc/passwd'", "create"),
        ("drop table clip_v1", "drop"),
        ("delete from clip_v1", "delete"),
        ("update clip_v1 set score = 1", "update"),
        ("truncate table clip_v1", "truncate"),
        ("set datafusion.execution.batch_size = 1", "set"),
        (copy.as_str(), "copy"),
        ("explain insert into clip_v1 (id) values ('dog')", "insert"),
    ] {
        let error = ask(dir.path(), sql).unwrap_err();
        assert!(matches!(error, Error::NotAQuery(_)), "{sql}: {error}");
        assert!(
            error.to_string().starts_with(&format!("`{word}` is rejected: SQL only reads a cache")),
            "{error}"
        );
    }
    assert!(!target.exists());
    assert_eq!(count(dir.path(), "select count(*) from clip_v1"), 1);
}

#[test]
fn files_cannot_be_read_in_the_place_of_tables() {
    let dir = tempfile::tempdir().unwrap();
    add(&clip(dir.path()), &ids(["cat"]), 1);
    for sql in ["select * from '/etc/passwd'", "select * from \"/etc/passwd\""] {
        assert!(matches!(ask(dir.path(), sql).unwrap_err(), Error::NoTable { .. }));
    }
}

#[test]
fn a_mistake_is_told_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    kinds(dir.path());
    add(&clip(dir.path()), &ids(["cat"]), 1);
    let said = |sql: &str| ask(dir.path(), sql).unwrap_err().to_string();
    assert_eq!(said("select * from clip_v2"), r#"no table `clip_v2`; the tables are "Kinds-1", clip_v1"#);
    assert_eq!(
        said("select * from other.clip_v1"),
        "Error during planning: table 'tcx.other.clip_v1' not found"
    );
    assert!(said("select scor from clip_v1").contains("Did you mean 'clip_v1.score'"));
    assert!(
        said("selct 1").starts_with("`selct`") || said("selct 1").contains("Expected"),
        "{}",
        said("selct 1")
    );
    assert!(said("select 1; select 2").contains("statement"), "{}", said("select 1; select 2"));
    assert!(said("").contains("statement") || said("").contains("Expected"), "{}", said(""));
    assert!(said("select 1 / 0 from clip_v1").to_lowercase().contains("divide by zero"));
    for sql in ["select nothing(1)", "select * from clip_v1 where score > 'cat'", "select", "select 'a"] {
        assert!(!said(sql).contains('\n'), "{}", said(sql));
    }
}

#[test]
fn a_question_as_deep_as_it_may_be_is_no_crash() {
    let dir = tempfile::tempdir().unwrap();
    for sql in [
        format!("select {}1{}", "(".repeat(20_000), ")".repeat(20_000)),
        format!("select {}1", "not ".repeat(20_000)),
        format!("select 1{}", " + 1".repeat(30_000)),
    ] {
        assert!(matches!(ask(dir.path(), &sql).unwrap_err(), Error::Query(_)));
    }
    for sql in [
        format!("select 1{}", " + 1".repeat(495)),
        format!("select 1 where true{}", " and not (1 > 2)".repeat(160)),
        format!("select 1{}", "::int".repeat(450)),
        format!("select 1{}", " union all select 1".repeat(240)),
        format!("select 1 in ({}1)", "1, ".repeat(20_000)),
    ] {
        assert_eq!(ask(dir.path(), &sql).unwrap()[0].len(), 1);
    }
    add(&clip(dir.path()), &ids(["cat"]), 1);
    assert_eq!(count(dir.path(), &format!("select score{} from clip_v1", " + score".repeat(490))), 491);
}

#[test]
fn a_module_that_cannot_be_read_is_an_error_of_who_names_it() {
    let dir = tempfile::tempdir().unwrap();
    kinds(dir.path());
    add(&clip(dir.path()), &ids(["cat"]), 1);
    support::damage(&dir.path().join("Kinds-1/change-00000000000000000000"), 60);
    assert_eq!(count(dir.path(), "select count(*) from clip_v1"), 1);
    let tables = "select table_name from information_schema.tables where table_schema = 'cache' order by 1";
    assert_eq!(texts(dir.path(), tables), ["Kinds-1", "clip_v1"]);
    let error = ask(dir.path(), r#"select * from "Kinds-1""#).unwrap_err();
    assert!(matches!(error, Error::Cache(_)), "{error:?}");
    assert!(matches!(Database::open(&dir.path().join("nowhere")).unwrap_err(), Error::Cache(_)));
}

#[test]
fn an_enum_is_asked_by_the_names_of_its_variants() {
    const KIND: ColumnType = ColumnType::Dense { dtype: DType::I16, shape: &[] };
    const OUTPUT: ColumnType = ColumnType::Struct(&[
        Field { name: "kind", column: KIND },
        Field { name: "maybe", column: ColumnType::Optional(&KIND) },
    ]);
    let dir = tempfile::tempdir().unwrap();
    let names =
        ["kind", "maybe"].map(|name| (format!("Output.{name}"), "Plain = -1, Stripes = 300".to_owned()));
    let spec = Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::from_iter(names), Vec::new()).unwrap();
    let store = store(dir.path(), spec);
    let mut rows = store.lookup(Keys::ints(0..4, 0)).unwrap();
    let numbers = Column::dense(&[-1_i16, 300, 300, 7].map(i16::to_le_bytes).concat());
    let columns = vec![numbers.clone(), numbers.optional([true, false, true, true])];
    store.insert(&mut rows, &[0, 1, 2, 3], columns).unwrap();
    store.flush().unwrap();
    let kinds = texts(dir.path(), "select kind from m_v1 order by id");
    assert_eq!(kinds, ["Plain", "Stripes", "Stripes", "7"], "a number without a name is its own");
    assert_eq!(count(dir.path(), "select count(*) from m_v1 where kind = 'Stripes'"), 2);
    assert_eq!(count(dir.path(), "select count(*) from m_v1 where maybe is null"), 1);
    let groups =
        ask(dir.path(), "select kind, count(*) from m_v1 group by kind order by 2 desc limit 1").unwrap();
    assert_eq!(groups, [[Value::Text("Stripes".to_owned()), Value::Int(2)]]);
}
