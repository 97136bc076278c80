//! Interleavings by name: rows that are rejected, put, or have stamps.

use super::operation::Operation;
use super::renewals::Judging;
use super::script::{COMPACT, Script, at_every_call, dies_everywhere};

/// A lookup of `a1` and `a2` that waits, though nothing is missing.
fn judge(script: &mut Script, process: usize, puts: bool) {
    let judging = Judging { keys: vec!["a1", "a2"], puts, ..Judging::of_all_keys() };
    script.run(process, Operation::Judge(judging));
}

/// Rejects `a1`, which that lookup has found.
fn reject_a1() -> Operation {
    Operation::Reject { pending: 0, positions: 1, fresh: true }
}

fn flush(script: &mut Script, process: usize) {
    script.run(process, Operation::FlushFreshly { handle: 0 });
}

/// A row of `a1` that is computed for a rejected one, and not sealed yet.
fn rejected(script: &mut Script) {
    script.write(0, &["a1", "a2"]);
    script.refresh(1);
    judge(script, 0, false);
    script.run(0, reject_a1());
    script.insert(0, 0);
    assert_eq!(script.values(0, &["a1", "a2"]), [Some(2), Some(1)]);
}

#[test]
fn a_row_for_a_rejected_one_takes_its_place_in_every_process() {
    let mut script = Script::new(2);
    rejected(&mut script);
    script.seal(0);
    script.refresh(1);
    assert_eq!(script.values(1, &["a1", "a2"]), [Some(2), Some(1)]);
    script.run(1, COMPACT);
    assert_eq!(script.values(1, &["a1", "a2"]), [Some(2), Some(1)]);
    script.end();
}

#[test]
fn a_process_may_die_anywhere_when_a_row_for_a_rejected_one_is_sealed() {
    assert!(dies_everywhere(rejected, || Operation::Seal) > 6);
}

#[test]
fn a_rejection_may_be_slower_than_an_invalidation_or_a_replacement() {
    let prepare = |script: &mut Script| {
        script.write(0, &["a1", "a2"]);
        script.refresh(1);
        judge(script, 0, false);
    };
    for replaces in [false, true] {
        let calls = at_every_call(prepare, reject_a1, |script| {
            if replaces {
                script.replace(1, &["a1"]);
                script.seal(1);
            } else {
                script.invalidate(1, "a1");
            }
            script.0.finish(0);
            script.insert(0, 0);
            flush(script, 0);
        });
        assert!(calls > 0, "{calls} calls");
    }
}

#[test]
fn what_is_computed_after_a_rejection_outlives_what_another_process_had_done_before_it() {
    let mut script = Script::new(2);
    script.write(0, &["a1", "a2"]);
    script.refresh(1);
    judge(&mut script, 0, false);
    script.invalidate(1, "a1");
    // It is not rejected: it is missing.
    script.run(0, reject_a1());
    assert_eq!(script.0.process(0).found(), [None, Some(1)]);
    script.insert(0, 0);
    script.seal(0);
    script.refresh(1);
    assert_eq!(script.values(1, &["a1", "a2"]), [Some(2), Some(1)]);
    script.end();
}

#[test]
fn a_handle_learns_of_values_that_it_has_put_and_another_process_has_invalidated() {
    let mut script = Script::new(2);
    script.write(1, &["b1"]);
    judge(&mut script, 0, true);
    script.insert(0, 0);
    script.invalidate(1, "a1");
    // The oracle knows that one is lost, and that the second flush has nothing to report.
    flush(&mut script, 0);
    flush(&mut script, 0);
    assert_eq!(script.values(0, &["a1", "a2"]), [None, Some(2)]);
    script.end();
}

#[test]
fn a_row_of_another_stamp_makes_way() {
    for seals in [false, true] {
        let mut script = Script::with_stamps(2);
        script.compute(0, &["a1", "a2"]);
        if seals {
            script.seal(0);
        }
        script.run(0, Operation::Change("a1"));
        assert_eq!(script.values(0, &["a1", "a2"]), [None, Some(1)]);
        script.insert(0, 0);
        assert_eq!(script.values(0, &["a1", "a2"]), [Some(2), Some(1)]);
        script.seal(0);
        script.refresh(1);
        assert_eq!(script.values(1, &["a1", "a2"]), [Some(2), Some(1)]);
        script.end();
    }
}
