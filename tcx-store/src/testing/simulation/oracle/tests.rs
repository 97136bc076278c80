//! What the oracle refuses of a process that replaces a row.

use super::{Kind, Oracle};
use crate::testing::simulation::committed::Committed;

/// Computes `a1`, which is missing to who looks it up.
fn compute(oracle: &mut Oracle, session: usize, recompute: Option<usize>) {
    let mut glance = oracle.lookup_begins(session, recompute, 0);
    oracle.looked_up(&mut glance, "a1", 0, None);
    let row = oracle.computed(&glance, "a1", 0, 0, Kind::default());
    oracle.accepted(&[row]);
}

/// Row 0 is acknowledged, and process 0 has begun to seal row 1, which takes its place.
fn replacing() -> Oracle {
    let mut oracle = Oracle::default();
    let session = oracle.opened(0, 0, None);
    compute(&mut oracle, session, None);
    let rows = oracle.seal_begins(session);
    oracle.acknowledged(&rows, session);
    compute(&mut oracle, session, Some(0));
    oracle.seal_begins(session);
    assert_eq!(oracle.violation(), None);
    oracle
}

fn committed(view: u32, value: i64, base: u64) -> Committed {
    Committed { key: "a1".to_owned(), view, value, base }
}

fn replace(oracle: &mut Oracle, rows: &[Committed]) {
    oracle.replaces(0, "change-00000000000000000001", &[("a1".to_owned(), 0)], rows);
}

/// Process 0 dies, and the next one does not find `a1`.
fn die_and_miss(oracle: &mut Oracle) {
    oracle.died(0);
    let now = oracle.now();
    let session = oracle.opened(1, 0, Some(now));
    let mut glance = oracle.lookup_begins(session, None, 0);
    oracle.looked_up(&mut glance, "a1", 0, None);
}

#[test]
fn a_process_that_dies_before_it_has_created_a_tombstone_has_replaced_nothing() {
    let mut oracle = replacing();
    die_and_miss(&mut oracle);
    assert!(oracle.violation().is_some_and(|what| what.contains("lost: row 0")), "{:?}", oracle.violation());
}

#[test]
fn a_process_that_dies_after_it_has_created_a_tombstone_has_replaced_the_row() {
    let mut oracle = replacing();
    replace(&mut oracle, &[committed(0, 1, 1)]);
    die_and_miss(&mut oracle);
    assert!(oracle.violation().is_some_and(|what| what.contains("lost: row 0")), "{:?}", oracle.violation());
}

#[test]
fn a_row_that_was_looked_up_before_another_was_replaced_does_not_displace_the_replacement() {
    let mut oracle = replacing();
    let other = oracle.opened(1, 0, None);
    compute(&mut oracle, other, None);
    replace(&mut oracle, &[committed(0, 1, 1)]);
    oracle.acknowledged(&[1], 0);
    let rows = oracle.seal_begins(other);
    oracle.acknowledged(&rows, other);
    let now = oracle.now();
    let session = oracle.opened(1, 0, Some(now));
    for (row, is_right) in [(1, true), (2, false)] {
        let mut glance = oracle.lookup_begins(session, None, 0);
        oracle.looked_up(&mut glance, "a1", 0, Some(row));
        assert_eq!(oracle.violation().is_none(), is_right, "{:?}", oracle.violation());
    }
}

#[test]
fn a_tombstone_that_is_created_before_the_rows_that_it_commits_are_durable_is_refused() {
    let unready = [vec![], vec![committed(1, 1, 1)], vec![committed(0, 0, 1)], vec![committed(0, 1, 0)]];
    for rows in unready {
        let mut oracle = replacing();
        replace(&mut oracle, &rows);
        assert!(oracle.violation().is_some_and(|what| what.starts_with("unready: ")), "{rows:?}");
    }
}

#[test]
fn a_tombstone_that_names_a_row_which_its_process_does_not_replace_is_refused() {
    let mut oracle = replacing();
    oracle.replaces(1, "change-00000000000000000001", &[("a1".to_owned(), 0)], &[committed(0, 1, 1)]);
    assert!(oracle.violation().is_some_and(|what| what.starts_with("unready: ")));
}

#[test]
fn a_row_that_is_computed_where_a_replacement_is_not_found_does_not_displace_it() {
    for is_astray in [false, true] {
        let mut oracle = replacing();
        replace(&mut oracle, &[committed(0, 1, 1)]);
        oracle.acknowledged(&[1], 0);
        let other = oracle.opened(1, 0, None);
        let mut glance = oracle.lookup_begins(other, None, 0);
        oracle.looked_up(&mut glance, "a1", 0, None);
        if is_astray {
            glance.go_astray();
        }
        let row = oracle.computed(&glance, "a1", 0, 0, Kind::default());
        oracle.accepted(&[row]);
        // It is served by the lookup that it completes, whether it is kept or not.
        oracle.looked_up(&mut glance, "a1", 0, Some(row));
        let rows = oracle.seal_begins(other);
        oracle.acknowledged(&rows, other);
        assert_eq!(oracle.violation(), None);
        let now = oracle.now();
        let session = oracle.opened(2, 0, Some(now));
        let mut glance = oracle.lookup_begins(session, None, 0);
        oracle.looked_up(&mut glance, "a1", 0, Some(row));
        assert_eq!(oracle.violation().is_none(), is_astray, "{:?}", oracle.violation());
        assert!(is_astray || oracle.violation().is_some_and(|what| what.contains("which has displaced")));
    }
}

/// A lookup of process 1 finds row 0, whose segments a change of process 0 has named as dead.
fn find_evicted(is_durable: bool) -> Oracle {
    let mut oracle = Oracle::default();
    let session = oracle.opened(0, 0, None);
    compute(&mut oracle, session, None);
    let rows = oracle.seal_begins(session);
    oracle.acknowledged(&rows, session);
    oracle.evicted(0, &[0], is_durable);
    let now = oracle.now();
    let other = oracle.opened(1, 0, Some(now));
    let mut glance = oracle.lookup_begins(other, None, 0);
    oracle.looked_up(&mut glance, "a1", 0, Some(0));
    oracle
}

#[test]
fn a_row_whose_segments_were_evicted_is_not_found_any_more() {
    let oracle = find_evicted(true);
    assert!(oracle.violation().is_some_and(|what| what.contains("row 0 that is dead")), "{oracle:?}");
    assert_eq!(find_evicted(false).violation(), None, "the change may be gone after a loss of power");
}
