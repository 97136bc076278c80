//! Interleavings by name: handles that recompute, and rows of one key and view that come several times.

use std::cell::Cell;
use std::io::ErrorKind;

use super::history::Matcher;
use super::operation::{KEYS, Operation};
use super::schedule::{Fault, Until};
use super::script::{COMPACT, Script, at_every_call};

/// Looks up rows as a recomputing handle and computes those that are missing; their values, `None` where a row was missing.
fn recompute(script: &mut Script, handle: usize, view: u32) -> Vec<Option<i64>> {
    script.run(0, Operation::Lookup { keys: vec!["a1", "b1"], view, replaces: Some(handle) });
    let found = script.0.process(0).found();
    if found.contains(&None) {
        script.insert(0, 0);
    }
    found
}

#[test]
fn each_view_is_recomputed_once_and_stays() {
    for sealed_at_once in [false, true] {
        let mut script = Script::new(2);
        script.write(0, &["a1", "b1"]);
        for view in [0, 1] {
            assert_eq!(recompute(&mut script, 0, view), [None, None]);
            if !sealed_at_once {
                script.seal(0);
            }
        }
        script.seal(0);
        for view in [0, 1] {
            assert!(recompute(&mut script, 0, view).iter().all(Option::is_some), "view {view} came twice");
        }
        script.refresh(1);
        script.run(1, COMPACT);
        script.refresh(0);
        assert!(recompute(&mut script, 0, 1).iter().all(Option::is_some));
        script.end();
    }
}

#[test]
fn of_two_recomputing_handles_the_later_one_s_row_lives_and_the_other_one_does_not_take_it_for_its_own() {
    let mut script = Script::new(2);
    assert_eq!(recompute(&mut script, 0, 0), [None, None]);
    assert_eq!(recompute(&mut script, 1, 0), [None, None]);
    let buffered = script.values(0, &["a1", "b1"]);
    assert_eq!(buffered, [Some(2), Some(3)]);
    script.seal(0);
    assert_eq!(script.values(0, &["a1", "b1"]), buffered);
    assert_eq!(recompute(&mut script, 1, 0), buffered);
    assert_eq!(recompute(&mut script, 0, 0), [None, None]);
    script.seal(0);
    assert_eq!(script.values(0, &["a1", "b1"]), [Some(4), Some(5)]);
    script.end();
}

#[test]
fn a_row_that_another_handle_recomputes_is_not_taken_for_an_own_one_before_it_is_sealed() {
    let mut script = Script::new(1);
    assert_eq!(recompute(&mut script, 0, 0), [None, None]);
    script.seal(0);
    assert_eq!(recompute(&mut script, 1, 0), [None, None]);
    assert_eq!(script.values(0, &["a1", "b1"]), [Some(2), Some(3)]);
    assert!(!recompute(&mut script, 0, 0).contains(&Some(2)));
    script.end();
}

#[test]
fn the_newest_of_several_rows_lives_before_and_after_it_is_sealed() {
    let seal = || Operation::Seal;
    let prepare = |script: &mut Script| {
        script.lookup(0, &["a1", "b1"]);
        script.lookup(0, &["a1", "b1"]);
        script.insert(0, 0);
        script.insert(0, 0);
    };
    let newest = [Some(2), Some(3)];
    let calls = at_every_call(prepare, seal, |script| {
        script.0.finish_all();
        assert_eq!(script.values(0, &["a1", "b1"]), newest);
        script.refresh(1);
        assert_eq!(script.values(1, &["a1", "b1"]), newest);
        script.run(1, COMPACT);
        assert_eq!(script.values(1, &["a1", "b1"]), newest);
    });
    assert!(calls > 6 && KEYS.len() > 2, "{calls} calls");
}

/// An invalidation of what was computed before the time that `limit` has when it begins.
fn older_than(limit: &Cell<u64>) -> Operation {
    Operation::InvalidateOlderThan(limit.get())
}

fn now(script: &Script) -> u64 {
    script.0.process(0).millis()
}

#[test]
fn what_replaces_an_old_row_at_any_call_of_an_invalidation_by_age_stays() {
    let limit = Cell::new(0);
    let prepare = |script: &mut Script| {
        script.write(0, &["a1", "b1"]);
        script.refresh(1);
        limit.set(now(script) + 1);
    };
    let meanwhile = |script: &mut Script| {
        script.refresh(1);
        script.replace(1, &["a1"]);
        script.seal(1);
        script.0.finish_all();
        script.refresh(2);
        assert_eq!(script.values(2, &["a1", "b1"]), [Some(2), None]);
    };
    let calls = at_every_call(prepare, || older_than(&limit), meanwhile);
    assert!(calls > 6, "{calls} calls");
}

#[test]
fn what_a_process_has_not_committed_when_it_dies_makes_no_young_row_old() {
    let mut script = Script::new(2);
    script.write(0, &["b1"]);
    script.refresh(1);
    script.replace(1, &["a1"]);
    script.pause(1, Operation::Seal, "create", "change-");
    script.0.crash(1);
    let limit = now(&script) + 1;
    script.write(0, &["a1"]);
    script.run(0, Operation::InvalidateOlderThan(limit));
    assert_eq!(script.values(0, &["a1", "b1"]), [Some(2), None]);
    script.open(1);
    assert_eq!(script.values(1, &["a1", "b1"]), [Some(2), None]);
    script.end();
}

#[test]
fn a_row_that_is_computed_while_its_replacement_cannot_be_opened_does_not_displace_it() {
    compute_without_segments(Fault::Refused(ErrorKind::Other));
}

#[test]
fn a_row_that_is_computed_while_its_replacement_is_not_found_does_not_displace_it() {
    compute_without_segments(Fault::Late);
}

#[test]
fn a_row_that_is_computed_after_a_comparison_has_failed_does_not_displace_its_replacement() {
    let mut script = Script::new(3);
    script.write(0, &["a1", "b1"]);
    script.refresh(1);
    script.replace(0, &["a1"]);
    script.seal(0);
    let unreadable = Some(Fault::Refused(ErrorKind::Other));
    // The tombstone is known, and its segment is not.
    let refresh = Operation::Refresh { fresh: false };
    script.pause(1, refresh.clone(), "map", "seg-");
    while script.0.is_paused(1) {
        script.0.go(1, Until::At("map", "seg-"), unreadable);
    }
    // The segment is opened, and whether the folder is still the same is not seen.
    script.pause(1, refresh, "map", "seg-");
    script.0.go(1, Until::At("map", CHANGE_0), None);
    script.0.go(1, Until::Done, unreadable);
    for operation in [
        Operation::Invalidate(Matcher::Keys(vec!["b3"])),
        Operation::Lookup { keys: vec!["a1"], view: 0, replaces: None },
    ] {
        // The last listing is of some time ago.
        script.0.world.folder.clock.advance(100);
        script.pause(1, operation, "map", CHANGE_0);
        script.0.go(1, Until::Done, unreadable);
    }
    assert_eq!(script.0.process(1).found(), [None]);
    script.insert(1, 0);
    script.run(1, Operation::Flush { handle: 0 });
    for process in [2, 1] {
        script.refresh(process);
        assert_eq!(script.values(process, &["a1", "b1"]), [Some(2), Some(1)], "process {process}");
    }
    script.end();
}

const CHANGE_0: &str = "change-00000000000000000000";

/// Computes a row in a process that cannot open the segments that it has listed.
fn compute_without_segments(fault: Fault) {
    let mut script = Script::new(3);
    script.write(0, &["a1", "b1"]);
    script.refresh(1);
    script.replace(0, &["a1"]);
    script.seal(0);
    let lookup = Operation::Lookup { keys: vec!["a1"], view: 0, replaces: None };
    // It lists several times, since it finds a new tombstone, and cannot open a segment any time.
    script.pause(1, lookup, "map", "seg-");
    while script.0.is_paused(1) {
        script.0.go(1, Until::At("map", "seg-"), Some(fault));
    }
    assert_eq!(script.0.process(1).found(), [None]);
    script.insert(1, 0);
    script.run(1, Operation::Flush { handle: 0 });
    let newest = [Some(2), Some(1)];
    for process in [2, 1] {
        script.refresh(process);
        assert_eq!(script.values(process, &["a1", "b1"]), newest, "process {process}");
        script.run(process, COMPACT);
        assert_eq!(script.values(process, &["a1", "b1"]), newest, "process {process}, joined");
    }
    script.end();
}
