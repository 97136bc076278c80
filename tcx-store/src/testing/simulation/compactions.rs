//! Interleavings by name: compactions and collections with everything else.

use super::operation::Operation;
use super::schedule::{Fault, Until};
use super::script::{COLLECT, COMPACT, Script, at_every_call, dies_everywhere, three_segments};

#[test]
fn what_was_compacted_stays_until_the_changes_of_the_new_segment_are_known() {
    for late in ["change-", ""] {
        let mut script = Script::new(3);
        three_segments(&mut script);
        script.invalidate(1, "b3");
        script.run(1, COMPACT);
        script.pause(0, Operation::Refresh { fresh: false }, "list", "");
        script.resume_with(0, Fault::Gap(late));
        assert!(script.values(0, &["a1", "a2", "b2"]).iter().all(Option::is_some));
        script.end();
    }
}

#[test]
fn a_process_may_die_anywhere_in_a_compaction_and_a_collection() {
    assert!(dies_everywhere(three_segments, || COMPACT) > 6);
    let compacted = |script: &mut Script| {
        three_segments(script);
        script.run(0, COMPACT);
    };
    assert!(dies_everywhere(compacted, || COLLECT) > 6);
}

#[test]
fn a_compaction_may_be_slower_than_a_newer_write_of_its_keys() {
    let calls = at_every_call(
        three_segments,
        || COMPACT,
        |script| {
            script.invalidate(1, "a1");
            script.write(1, &["a1"]);
            script.write(2, &["b3"]);
        },
    );
    assert!(calls > 6, "{calls} calls");
}

#[test]
fn a_compaction_may_be_slower_than_an_invalidation() {
    let calls = at_every_call(
        three_segments,
        || COMPACT,
        |script| {
            script.invalidate(1, "a1");
            script.refresh(2);
            assert_eq!(script.values(2, &["a1"]), [None]);
        },
    );
    assert!(calls > 6, "{calls} calls");
}

#[test]
fn a_compaction_may_be_slower_than_another_and_the_collection_of_its_inputs() {
    let meanwhile = |script: &mut Script| {
        script.run(1, COMPACT);
        script.collect(1);
        script.write(2, &["b3"]);
        script.run(2, COMPACT);
        script.collect(2);
    };
    assert!(at_every_call(three_segments, || COMPACT, meanwhile) > 6);
    let compacted = |script: &mut Script| {
        three_segments(script);
        script.run(0, COMPACT);
    };
    assert!(at_every_call(compacted, || COLLECT, meanwhile) > 6);
}

#[test]
fn a_compactor_that_knows_a_segment_but_not_its_changes_leaves_it_alone() {
    let mut script = Script::new(3);
    three_segments(&mut script);
    script.invalidate(1, "a1");
    script.write(1, &["a1"]);
    script.pause(0, COMPACT, "list", "");
    script.resume_with(0, Fault::Gap("change-"));
    script.collect(0);
    script.refresh(2);
    assert!(script.values(2, &["a1"])[0].is_some());
    script.end();
}

#[test]
fn a_listing_from_before_a_collection_loses_nothing() {
    for late in 1..6 {
        let mut script = Script::new(3);
        three_segments(&mut script);
        script.0.crash(0);
        script.pause(0, Operation::Open { fresh: true }, "map", "seg-");
        script.run(1, COMPACT);
        script.collect(1);
        script.resume(0);
        assert!(script.values(0, &["a1", "a2", "a3"]).iter().all(Option::is_some));
        script.pause(2, Operation::Refresh { fresh: false }, "list", "");
        script.resume_with(2, Fault::Stale(late));
        assert!(script.values(2, &["a1", "a2", "a3"]).iter().all(Option::is_some));
        script.end();
    }
}

/// Every row of [`three_segments`] may be missing: it may be removed.
const ALL: [&str; 5] = ["a1", "a2", "a3", "b1", "b2"];

const EVICT_ALL: Operation = Operation::Evict { bytes: 1 << 30 };

fn invalidate_found(script: &mut Script, process: usize) {
    script.run(process, Operation::InvalidateFound(ALL.to_vec()));
    for process in 1..3 {
        script.refresh(process);
        assert_eq!(script.values(process, &ALL), [None; 5]);
    }
}

#[test]
fn what_is_found_and_invalidated_after_an_eviction_is_all_that_a_slower_compaction_can_bring_back() {
    let prepare = |script: &mut Script| {
        three_segments(script);
        script.may_cut(&ALL);
    };
    let evicted = |script: &mut Script| {
        script.run(1, EVICT_ALL);
        invalidate_found(script, 1);
        script.0.finish_all();
        (0..3).for_each(|process| script.refresh(process));
        assert_eq!(script.values(2, &ALL), [None; 5]);
    };
    assert!(at_every_call(prepare, || COMPACT, evicted) > 6);
    let joined_first = |script: &mut Script| {
        script.run(2, COMPACT);
        script.collect(2);
        script.refresh(1);
        evicted(script);
    };
    assert!(at_every_call(prepare, || COMPACT, joined_first) > 6);
}

#[test]
fn segments_may_be_joined_and_collected_while_others_are_removed_and_none_but_these_go() {
    let calls = at_every_call(
        |script| {
            three_segments(script);
            script.may_cut(&ALL);
        },
        || Operation::Evict { bytes: 1 },
        |script| {
            script.run(1, COMPACT);
            script.collect(1);
            script.0.finish_all();
            (0..3).for_each(|process| script.refresh(process));
            // The oldest segment alone makes room, or nothing does that was joined with others.
            assert!(script.values(2, &["a3", "b1", "b2"]).iter().all(Option::is_some));
        },
    );
    assert!(calls > 6, "{calls} calls");
}

/// The eviction is announced, and nothing is removed yet: the compaction knows of it, and finds all of its inputs.
#[test]
fn what_is_joined_while_it_is_about_to_be_removed_does_not_come_back() {
    let trim = Operation::Trim { segment: 0, rows: 1 };
    for (removal, call) in [(EVICT_ALL, "remove"), (trim, "publish")] {
        let mut script = Script::new(3);
        three_segments(&mut script);
        script.may_cut(&ALL);
        script.pause(1, removal, call, "seg-");
        script.0.start(0, COMPACT, Until::At("publish", "seg-"));
        script.resume(1);
        script.collect(1);
        script.run(2, Operation::InvalidateFound(ALL.to_vec()));
        script.0.finish_all();
        (0..3).for_each(|process| script.refresh(process));
        assert_eq!(script.values(2, &ALL), [None; 5]);
        script.end();
    }
}

/// The second change of the eviction would kill it, and not what it is rewritten to.
#[test]
fn what_was_joined_before_others_are_removed_is_not_joined_again_until_they_are() {
    let mut script = Script::new(3);
    three_segments(&mut script);
    script.may_cut(&["a1", "a2"]);
    script.0.start(0, COMPACT, Until::At("publish", "seg-"));
    // The result is worth being rewritten.
    script.invalidate(2, "b2");
    script.pause(1, Operation::Evict { bytes: 1 }, "create", "change-");
    script.pause_again(1, "create", "change-");
    script.0.go(0, Until::At("publish", "seg-"), None);
    script.resume(1);
    script.run(2, Operation::InvalidateFound(vec!["a2"]));
    script.0.finish_all();
    (0..3).for_each(|process| script.refresh(process));
    assert_eq!(script.values(2, &["a2"]), [None]);
    script.end();
}

/// It comes after the listing of the one that evicts, and before its first change, or before its second.
#[test]
fn what_is_joined_while_others_are_about_to_be_removed_loses_no_other_row() {
    for is_second in [false, true] {
        let mut script = Script::new(3);
        three_segments(&mut script);
        script.may_cut(&["a1", "a2"]);
        script.0.start(0, COMPACT, Until::At("publish", "seg-"));
        script.pause(1, Operation::Evict { bytes: 1 }, "create", "change-");
        if is_second {
            script.pause_again(1, "create", "change-");
        }
        script.resume(0);
        script.collect(0);
        script.pause_again(1, if is_second { "remove" } else { "list" }, "");
        script.refresh(2);
        script.collect(2);
        script.0.finish_all();
        (0..3).for_each(|process| script.refresh(process));
        assert!(script.values(2, &["a3", "b1", "b2"]).iter().all(Option::is_some));
        script.end();
    }
}

/// The one that evicts lists the folder after its first change, and the listing lacks the joined segment, whose inputs are about to be removed.
/// Another thread of that process may have learned of the eviction by then.
#[test]
fn what_is_joined_and_missing_from_the_listing_of_an_eviction_loses_no_other_row() {
    for (is_known, is_over) in [(false, false), (true, false), (true, true)] {
        let mut script = Script::with_two_threads(3);
        three_segments(&mut script);
        script.may_cut(&["a1", "a2"]);
        // The joined segment is the only one that has come lately.
        (0..12).for_each(|_| script.invalidate(2, "b3"));
        (0..3).for_each(|process| script.refresh(process));
        script.pause(1, Operation::Evict { bytes: 1 }, "create", "change-");
        script.run(0, COMPACT);
        // It has planned, and verifies the joined segment.
        script.pause(0, COLLECT, "list", "");
        script.pause_again(0, "list", "");
        script.pause_again(0, "sync", "");
        script.pause_again(1, "list", "");
        if is_over {
            script.resume_with(1, Fault::Gap("seg-"));
        }
        if is_known {
            script.0.run_beside(0, Operation::Refresh { fresh: true });
        }
        if is_over {
            script.resume(0);
        } else {
            script.resume_with(1, Fault::Gap("seg-"));
        }
        script.0.finish_all();
        (0..3).for_each(|process| script.refresh(process));
        assert!(script.values(2, &["a3", "b1", "b2"]).iter().all(Option::is_some));
        script.end();
    }
}

/// As long as the eviction has not decided what is dead, rows are found: an invalidation of what is found names them.
#[test]
fn what_is_joined_while_others_are_about_to_be_removed_is_found_by_an_invalidation() {
    let mut script = Script::new(3);
    three_segments(&mut script);
    script.may_cut(&["a1", "a2"]);
    script.pause(1, Operation::Evict { bytes: 1 }, "create", "change-");
    script.run(0, COMPACT);
    script.collect(0);
    script.pause_again(1, "list", "");
    script.run(2, Operation::InvalidateFound(ALL.to_vec()));
    script.0.finish_all();
    (0..3).for_each(|process| script.refresh(process));
    assert_eq!(script.values(2, &ALL), [None; 5]);
    script.end();
}

/// The other eviction removes a younger segment as well, so that its second change says all that the first of this one says.
#[test]
fn an_eviction_that_ends_between_the_changes_of_another_one_loses_no_other_row() {
    for call in ["create", "list"] {
        let mut script = Script::new(3);
        three_segments(&mut script);
        script.may_cut(&["a1", "a2", "a3", "b1"]);
        script.write(0, &["b3"]);
        script.0.start(0, COMPACT, Until::At("publish", "seg-"));
        script.pause(1, Operation::Evict { bytes: 1 }, "create", "change-");
        script.pause_again(1, call, if call == "create" { "change-" } else { "" });
        script.resume(0);
        script.refresh(2);
        script.run(2, Operation::Evict { bytes: 1 });
        script.collect(0);
        script.0.finish_all();
        (0..3).for_each(|process| script.refresh(process));
        script.end();
    }
}

/// The listing of a process that collects began before the changes of the eviction, and ends after the joined segment has its name.
#[test]
fn a_collector_whose_listing_lacks_an_eviction_removes_nothing_that_lives_again_by_it() {
    for first in ["change-00000000000000000001", "change-00000000000000000002"] {
        let mut script = Script::new(3);
        three_segments(&mut script);
        script.may_cut(&["a1", "a2"]);
        script.0.start(0, COMPACT, Until::At("publish", "seg-"));
        script.run(1, Operation::Evict { bytes: 1 });
        // It comes no more to join what lives again.
        script.pause_again(0, "list", "");
        script.pause(2, COLLECT, "list", "");
        script.resume_with(2, Fault::Gap(first));
        // One that has files open reads them on.
        script.0.crash(0);
        script.open(0);
        assert!(script.values(0, &["a3", "b1", "b2"]).iter().all(Option::is_some), "{first}");
        script.end();
    }
}
