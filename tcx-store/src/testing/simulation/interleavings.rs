//! Interleavings by name: writers, invalidations, identities; and processes that die.

use std::io::ErrorKind;

use super::history::Matcher;
use super::operation::Operation;
use super::schedule::{Fault, Until};
use super::script::{Script, at_every_call, dies_everywhere, invalidate_a1, three_segments};

#[test]
fn a_row_that_is_sealed_while_it_is_invalidated_is_dead() {
    let calls = at_every_call(
        |script| script.compute(0, &["a1", "a2"]),
        || Operation::Seal,
        |script| {
            script.invalidate(1, "a1");
            script.refresh(1);
            assert_eq!(script.values(1, &["a1"]), [None]);
        },
    );
    assert!(calls > 6, "{calls} calls");
}

#[test]
fn a_row_that_is_looked_up_before_an_invalidation_and_inserted_after_it_is_dead() {
    let mut script = Script::new(2);
    script.lookup(0, &["a1", "a2"]);
    script.invalidate(1, "a1");
    script.insert(0, 0);
    script.seal(0);
    script.refresh(1);
    assert_eq!(script.values(1, &["a1", "a2"]), [None, Some(1)]);
    script.end();
}

#[test]
fn of_two_rows_in_one_buffer_the_one_that_knows_the_invalidation_is_served() {
    let mut script = Script::new(2);
    script.lookup(0, &["a1"]);
    script.invalidate(1, "a1");
    script.refresh(0);
    script.lookup(0, &["a1"]);
    script.insert(0, 1);
    script.insert(0, 0);
    assert_eq!(script.values(0, &["a1"]), [Some(0)]);
    script.seal(0);
    script.refresh(1);
    assert_eq!(script.values(1, &["a1"]), [Some(0)]);
    script.end();
}

#[test]
fn a_slow_change_finds_its_number_taken_and_merged() {
    let calls = at_every_call(
        |script| script.write(0, &["a1", "b1"]),
        invalidate_a1,
        |script| {
            for _ in 0..4 {
                script.invalidate(1, "b1");
            }
            script.run(1, Operation::MergeChanges);
            assert_eq!(script.0.world.folder.names("merged-").len(), 1);
            script.compute(1, &["a1", "b1"]);
            script.seal(1);
        },
    );
    assert!(calls > 3, "{calls} calls");
}

#[test]
fn the_lost_reply_to_a_link_costs_nothing() {
    let (zero, one) = ("change-00000000000000000000", "change-00000000000000000001");
    for (file, replaces) in [(zero, false), (zero, true), (one, false), (one, true)] {
        let mut script = Script::new(2);
        if file == one {
            script.write(0, &["a1", "b1"]);
        }
        if replaces {
            script.replace(0, &["a1"]);
        } else {
            script.compute(0, &["a2"]);
        }
        let operation = if file == one && !replaces { invalidate_a1() } else { Operation::Seal };
        script.pause(0, operation, "create", file);
        script.resume_with(0, Fault::LostReply);
        script.seal(0);
        script.refresh(1);
        script.end();
    }
}

#[test]
fn replaced_rows_whose_segment_is_taken_away_are_written_again() {
    for fault in [Fault::Refused(ErrorKind::NotFound), Fault::Refused(ErrorKind::Other), Fault::LostReply] {
        let mut script = Script::new(2);
        script.write(0, &["a1", "b1"]);
        script.replace(0, &["a1"]);
        script.pause(0, Operation::Seal, "publish", "seg-");
        script.resume_with(0, fault);
        script.seal(0);
        script.refresh(1);
        assert_eq!(script.values(1, &["a1", "b1"]), [Some(2), Some(1)]);
        script.end();
    }
}

#[test]
fn what_is_learned_before_something_fails_is_honoured() {
    let mut script = Script::new(2);
    script.write(0, &["a1"]);
    script.pause(0, Operation::Invalidate(Matcher::Keys(vec!["b1"])), "create", "change-");
    script.resume_with(0, Fault::Refused(ErrorKind::Other));
    script.compute(0, &["a2"]);
    script.pause(0, Operation::Seal, "create", "change-00000000000000000001");
    script.invalidate(1, "a1");
    script.0.go(0, Until::At("create", "change-00000000000000000002"), None);
    script.resume_with(0, Fault::Refused(ErrorKind::Other));
    script.refresh(0);
    assert_eq!(script.values(0, &["a1"]), [None]);
    script.seal(0);
    script.end();
}

#[test]
fn a_change_that_a_listing_lacks_is_read_later() {
    let mut script = Script::new(2);
    script.write(0, &["a1", "a2", "a3"]);
    script.refresh(1);
    for key in ["a1", "a2", "a3"] {
        script.invalidate(0, key);
    }
    script.write(0, &["b1"]);
    script.pause(1, Operation::Refresh { fresh: false }, "list", "");
    script.resume_with(1, Fault::Gap("change-00000000000000000001"));
    script.refresh(1);
    assert!(script.values(1, &["a1", "a2", "a3"]).iter().all(Option::is_none));
    script.end();
}

#[test]
fn a_folder_that_is_removed_under_its_writers_is_made_again_as_another() {
    for changes in [false, true] {
        let mut script = Script::new(3);
        script.write(0, &["a1"]);
        script.refresh(1);
        if changes {
            script.invalidate(2, "b1");
            script.invalidate(2, "b1");
        }
        script.compute(1, &["a2"]);
        script.compute(2, &["a3"]);
        script.0.remove_folder();
        // The first knows no change and may make the folder again; the others know another instance of it.
        script.compute(0, &["b2"]);
        script.seal(0);
        script.open_if_refused(0);
        script.invalidate(0, "a3");
        script.invalidate(0, "a2");
        script.seal(2);
        script.seal(1);
        assert!(script.is_refused(1) && script.is_refused(2));
        script.end();
    }
}

#[test]
fn a_mount_that_is_lost_for_a_while_is_no_removal() {
    let mut script = Script::new(2);
    script.write(0, &["a1"]);
    script.invalidate(0, "b1");
    script.compute(0, &["a2"]);
    script.pause(0, Operation::Seal, "map", "change-00000000000000000000");
    let lost = Some(Fault::Refused(ErrorKind::Other));
    script.0.go(0, Until::At("list", ""), lost);
    script.0.go(0, Until::Done, lost);
    script.resume(0);
    script.seal(0);
    assert!(!script.is_refused(0));
    script.refresh(1);
    assert!(script.values(1, &["a2"])[0].is_some());
    script.end();
}

#[test]
fn of_two_identities_that_start_at_once_one_is_refused() {
    let calls = at_every_call(
        |script| {
            script.0.world.oracle().may_refuse = true;
            script.0.process(1).set_identity(1);
            script.0.crash(1);
            script.open(1);
            script.compute(0, &["a1"]);
            script.compute(1, &["a1"]);
        },
        || Operation::Seal,
        |script| {
            script.seal(1);
            script.0.finish(0);
            assert!(script.is_refused(0) || script.is_refused(1));
        },
    );
    assert!(calls > 6, "{calls} calls");
}

#[test]
fn a_process_may_die_anywhere_in_a_seal() {
    assert!(dies_everywhere(|script| script.compute(0, &["a1", "a2"]), || Operation::Seal) > 6);
    assert!(dies_everywhere(|script| script.replace(0, &["a1", "a2"]), || Operation::Seal) > 6);
}

#[test]
fn a_process_may_die_anywhere_in_an_invalidation_and_a_merge_of_changes() {
    assert!(dies_everywhere(three_segments, invalidate_a1) > 3);
    let changes = |script: &mut Script| {
        three_segments(script);
        for _ in 0..4 {
            script.invalidate(0, "a1");
        }
    };
    assert!(dies_everywhere(changes, || Operation::MergeChanges) > 3);
}

#[test]
fn a_process_may_die_anywhere_in_a_merge_of_runs() {
    assert!(dies_everywhere(three_segments, || Operation::MergeRuns { ends: true }) > 3);
    assert!(dies_everywhere(three_segments, || Operation::Close) > 3);
}
