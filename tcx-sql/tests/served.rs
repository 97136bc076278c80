//! A question sees the rows that are served, and no others.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;

use support::{add, add_to, ask, clip, count, damage, ids, segments, texts};
use tcx_sql::{Database, Value};
use tcx_store::{Column, Inspection, Keys, LookupOptions, RecomputeSession};

#[test]
fn invalidated_rows_are_not_seen() {
    let dir = tempfile::tempdir().unwrap();
    let store = clip(dir.path());
    add(&store, &ids(["cat", "dog", "horse", "hound"]), 1);
    store.invalidate(&Keys::text(["dog"], 0).unwrap()).unwrap();
    store.invalidate_prefix(b"ho").unwrap();
    assert_eq!(texts(dir.path(), "select id from clip_v1"), ["cat"]);
    assert_eq!(count(dir.path(), "select count(*) from clip_v1"), 1);
    assert_eq!(count(dir.path(), "select sum(score) from clip_v1"), 1);
    add(&store, &ids(["dog"]), 5);
    assert_eq!(count(dir.path(), "select score from clip_v1 where id = 'dog'"), 5);
    assert_eq!(count(dir.path(), "select count(*) from clip_v1"), 2);
    store.compact().unwrap();
    assert_eq!(count(dir.path(), "select count(*) from clip_v1"), 2);
}

#[test]
fn of_rows_that_were_computed_anew_the_newest_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let store = clip(dir.path());
    add(&store, &ids(["cat", "dog"]), 1);
    let recompute = RecomputeSession::new();
    let keys = Keys::text(["cat"], 0).unwrap();
    let mut rows = store
        .lookup_with(keys, LookupOptions { recompute: Some(&recompute), ..LookupOptions::default() })
        .unwrap();
    let vector: Vec<u8> = [2_f32; 64].iter().flat_map(|x| x.to_le_bytes()).collect();
    let columns = vec![Column::dense(&vector), Column::dense(&2_i64.to_le_bytes()), Column::text(["new"])];
    store.insert(&mut rows, &[0], columns).unwrap();
    store.flush().unwrap();
    let found = ask(dir.path(), "select id, score, vector[64] from clip_v1 order by id").unwrap();
    let row =
        |id: &str, score, number| vec![Value::Text(id.to_owned()), Value::Int(score), Value::Single(number)];
    assert_eq!(found, [row("cat", 2, 2.0), row("dog", 1, 3.0)]);
}

#[test]
fn a_row_that_two_processes_have_computed_is_seen_once() {
    let dir = tempfile::tempdir().unwrap();
    let all = ids(0..100);
    let keys = || Keys::text(&all, 0).unwrap();
    // Each looks before the other has them.
    let stores = [clip(dir.path()), clip(dir.path())];
    let looked = stores.each_ref().map(|store| store.lookup(keys()).unwrap());
    for (store, rows) in stores.iter().zip(looked) {
        add_to(store, rows, &all, 1);
    }
    let inspection = Inspection::open(&dir.path().join("clip_v1")).unwrap();
    assert_eq!(inspection.count().copies, 100);
    assert_eq!(count(dir.path(), "select count(*) from clip_v1"), 100);
    assert_eq!(count(dir.path(), "select sum(score) from clip_v1"), 100);
    assert_eq!(count(dir.path(), "select count(distinct id) from clip_v1"), 100);
}

#[test]
fn rows_that_were_joined_are_seen_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = clip(dir.path());
    for at in 0..6 {
        add(&store, &ids(at * 10..at * 10 + 10), at);
    }
    store.compact().unwrap();
    assert!(segments(&dir.path().join("clip_v1")).len() > 1, "what was joined is still there");
    assert_eq!(count(dir.path(), "select count(*) from clip_v1"), 60);
    assert_eq!(count(dir.path(), "select sum(score) from clip_v1"), 150);
}

#[test]
fn rows_that_do_not_verify_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = clip(dir.path());
    // 2,000 rows of 256 bytes: the vectors take several checksum blocks.
    add(&store, &ids(10_000..12_000), 1);
    let [segment] = &segments(&dir.path().join("clip_v1"))[..] else { panic!("one segment") };
    let vector: Vec<u8> = 5_f32.to_le_bytes().repeat(64);
    let bytes = fs::read(segment).unwrap();
    let at = bytes.windows(vector.len()).position(|window| window == vector).unwrap();
    damage(segment, at + 1000 * 256);
    let database = Database::open(dir.path()).unwrap();
    let asked = |sql: &str| {
        let mut answer = database.query(sql).unwrap();
        let rows = answer.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
        (rows, answer.left_out())
    };
    // Others are not read.
    let (rows, left_out) = asked("select sum(score), count(caption), count(*) from clip_v1");
    assert_eq!((rows, left_out), (vec![vec![Value::Int(2000); 3]], 0));
    // Nor are those behind the first ones.
    assert_eq!(asked("select vector[1] from clip_v1 limit 10"), (vec![vec![Value::Single(5.0)]; 10], 0));
    let (rows, left_out) = asked("select count(vector) from clip_v1");
    let Value::Int(found) = rows[0][0] else { panic!("{rows:?}") };
    assert!((1500..2000).contains(&found), "{found}");
    assert_eq!(left_out, 2000 - found as u64);
    // However often a question names the module.
    let (rows, again) =
        asked("select count(*) from clip_v1 a join clip_v1 b on a.id = b.id where a.vector = b.vector");
    assert_eq!((rows[0][0].clone(), again), (Value::Int(found), left_out));
}

#[test]
fn a_segment_whose_footer_is_damaged_is_not_seen() {
    let dir = tempfile::tempdir().unwrap();
    let store = clip(dir.path());
    add(&store, &ids(["cat"]), 1);
    add(&store, &ids(["dog"]), 2);
    let module = dir.path().join("clip_v1");
    let of_dog = |path: &&std::path::PathBuf| fs::read(path).unwrap().windows(3).any(|bytes| bytes == b"dog");
    let segments = segments(&module);
    let segment = segments.iter().find(of_dog).unwrap();
    damage(segment, fs::read(segment).unwrap().len() - 20);
    assert_eq!(texts(dir.path(), "select id from clip_v1"), ["cat"]);
    let database = Database::open(dir.path()).unwrap();
    assert_eq!(database.query("select id from clip_v1").unwrap().damaged_segments(), 1);
}

#[test]
fn while_a_change_is_damaged_what_it_may_have_killed_is_not_seen() {
    let dir = tempfile::tempdir().unwrap();
    let store = clip(dir.path());
    add(&store, &ids(["cat", "dog"]), 1);
    store.invalidate(&Keys::text(["dog"], 0).unwrap()).unwrap();
    add(&store, &ids(["owl"]), 2);
    damage(&dir.path().join("clip_v1/change-00000000000000000001"), 60);
    assert_eq!(texts(dir.path(), "select id from clip_v1"), ["owl"]);
    let database = Database::open(dir.path()).unwrap();
    let answer = database.query("select id from clip_v1").unwrap();
    assert_eq!((answer.damaged_segments(), answer.has_sound_changes()), (0, false));
}

#[test]
fn many_rows_come_in_batches_and_each_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = clip(dir.path());
    let all = ids(0..10_001);
    add(&store, &all, 1);
    assert_eq!(count(dir.path(), "select count(*) from clip_v1"), 10_001);
    assert_eq!(count(dir.path(), "select count(distinct id) from clip_v1"), 10_001);
    assert_eq!(texts(dir.path(), "select id from clip_v1"), all, "in the order of the table");
    assert_eq!(texts(dir.path(), "select id from clip_v1 limit 5000").len(), 5000);
    assert_eq!(texts(dir.path(), "select id from clip_v1 limit 2 offset 9000"), ["9000", "9001"]);
    assert_eq!(ask(dir.path(), "select * from clip_v1 limit 0").unwrap().len(), 0);
}
