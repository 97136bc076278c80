//! Interleavings by name: folders that are removed, go away and come back, or are replaced by an older copy.

use std::io::ErrorKind;

use super::operation::Operation;
use super::schedule::{Fault, Until};
use super::script::{COLLECT, COMPACT, Script, at_every_call, invalidate_a1, three_segments};

/// Another program starts where the folder was, and invalidates.
fn work_elsewhere(script: &mut Script, process: usize, invalidations: usize) {
    script.0.crash(process);
    script.open(process);
    script.write(process, &["a1", "b1"]);
    for _ in 0..invalidations {
        script.invalidate(process, "b1");
    }
    script.run(process, Operation::MergeChanges);
}

#[test]
fn what_another_program_does_while_the_folder_is_away_is_not_learned() {
    for invalidations in [1, 3, 18] {
        let mut script = Script::new(3);
        script.write(0, &["a1", "a2"]);
        script.invalidate(0, "b3");
        script.refresh(2);
        script.0.take_folder_away();
        work_elsewhere(&mut script, 1, invalidations);
        // It looks while the other folder is there, in every way.
        script.run(0, Operation::Refresh { fresh: true });
        script.run(2, Operation::Refresh { fresh: false });
        script.0.bring_folder_back();
        script.0.crash(1);
        script.open(1);
        script.run(1, invalidate_a1());
        for process in [0, 2] {
            script.open_if_refused(process);
            script.refresh(process);
            script.write(process, &["b2"]);
            assert_eq!(script.values(process, &["a1"]), [None]);
            script.refresh(1);
            assert!(script.values(1, &["a2", "b2"]).iter().all(Option::is_some));
        }
        script.end();
    }
}

#[test]
fn a_folder_may_go_away_and_come_back_at_every_call_of_a_seal_and_a_compaction() {
    let meanwhile = |script: &mut Script| {
        script.0.take_folder_away();
        work_elsewhere(script, 1, 2);
        script.0.bring_folder_back();
    };
    let prepare = |script: &mut Script| {
        script.write(0, &["a1", "a2"]);
        script.write(2, &["a3"]);
        script.invalidate(2, "b3");
        script.compute(0, &["b1", "b2"]);
    };
    assert!(at_every_call(prepare, || Operation::Seal, meanwhile) > 6);
    assert!(at_every_call(prepare, || COMPACT, meanwhile) > 6);
}

#[test]
fn a_folder_may_go_away_at_any_call_and_come_back_later() {
    let prepare = |script: &mut Script| {
        script.write(0, &["a1", "a2"]);
        script.invalidate(2, "b3");
        script.compute(0, &["b1", "b2"]);
    };
    let operations: [fn() -> Operation; 3] =
        [|| Operation::Seal, invalidate_a1, || Operation::Refresh { fresh: true }];
    for operation in operations {
        let calls = at_every_call(prepare, operation, |script| {
            script.0.take_folder_away();
            work_elsewhere(script, 1, 2);
            script.0.finish(0);
            script.0.bring_folder_back();
            script.open_if_refused(0);
            script.seal(0);
        });
        assert!(calls > 3, "{calls} calls");
    }
}

/// The folder is away for the next `away` calls of process 0, before which process 1 has read what there is and made a change of its own.
fn is_away_for_some_calls(away: usize, prepare: fn(&mut Script), operation: fn() -> Operation) -> usize {
    at_every_call(prepare, operation, |script| {
        script.refresh(1);
        script.invalidate(1, "b1");
        script.0.take_folder_away();
        script.0.go(0, Until::Calls(away), None);
        script.0.bring_folder_back();
        script.0.finish(0);
        script.0.write_after_all();
        script.check();
    })
}

#[test]
fn a_change_that_others_may_have_read_is_not_removed_from_a_folder_that_comes_back() {
    let prepare = |script: &mut Script| {
        script.write(0, &["a1", "a2"]);
        script.invalidate(2, "b3");
        script.refresh(0);
        script.replace(0, &["a1"]);
    };
    for away in 0..4 {
        assert!(is_away_for_some_calls(away, prepare, invalidate_a1) > 6);
        assert!(is_away_for_some_calls(away, prepare, || Operation::Seal) > 6);
    }
}

#[test]
fn an_older_copy_of_the_folder_is_recognised() {
    for invalidations in [1, 3, 18] {
        let mut script = Script::new(3);
        script.write(0, &["a1", "a2", "b1"]);
        script.0.back_up_folder();
        for _ in 0..invalidations {
            script.invalidate(0, "a1");
        }
        script.compute(0, &["a3"]);
        script.0.restore_folder();
        // Others give the same numbers to other changes.
        script.0.crash(1);
        script.open(1);
        for _ in 0..invalidations {
            script.invalidate(1, "b1");
        }
        script.refresh(0);
        script.open_if_refused(0);
        script.refresh(0);
        script.write(0, &["b2"]);
        assert_eq!(script.values(0, &["b1"]), [None]);
        script.refresh(1);
        assert!(script.values(1, &["a2", "b2"]).iter().all(Option::is_some));
        script.end();
    }
}

#[test]
fn an_older_copy_is_recognised_though_the_newest_changes_cannot_be_read() {
    let mut script = Script::new(2);
    script.write(0, &["a1", "b1"]);
    script.0.back_up_folder();
    for _ in 0..3 {
        script.0.invalidate_all();
    }
    script.refresh(0);
    script.write(0, &["a2"]);
    script.0.restore_folder();
    script.open(1);
    script.invalidate(1, "b1");
    script.run(0, Operation::Refresh { fresh: true });
    assert!(script.is_refused(0));
    script.open(0);
    script.write(0, &["a3"]);
    assert_eq!(script.values(0, &["b1"]), [None]);
    script.end();
}

#[test]
fn a_damaged_change_is_not_taken_for_another_of_its_number() {
    let mut script = Script::new(2);
    script.write(0, &["b1"]);
    script.0.back_up_folder();
    script.0.invalidate_all();
    script.refresh(1);
    script.0.restore_folder();
    script.lookup(1, &["a1"]);
    assert!(!script.is_refused(1), "it has not looked at the folder");
    // To this process, it is as damaged as the first.
    script.0.invalidate_all();
    script.insert(1, 0);
    script.run(1, Operation::Seal);
    assert!(script.is_refused(1));
    script.open(1);
    assert_eq!(script.values(1, &["a1"]), [None]);
    script.end();
}

#[test]
fn a_collection_removes_nothing_from_a_copy_that_lacks_what_replaced_it() {
    let prepare = |script: &mut Script| {
        three_segments(script);
        script.0.back_up_folder();
        script.run(0, COMPACT);
    };
    assert!(at_every_call(prepare, || COLLECT, |script| script.0.restore_folder()) > 6);
}

#[test]
fn what_was_joined_and_collected_is_found_again_in_an_older_copy() {
    let mut script = Script::new(3);
    three_segments(&mut script);
    script.0.back_up_folder();
    script.run(0, COMPACT);
    script.collect(0);
    (0..3).for_each(|process| script.refresh(process));
    script.0.restore_folder();
    for process in 0..3 {
        script.refresh(process);
        assert!(script.values(process, &["a1", "a2", "a3", "b1", "b2"]).iter().all(Option::is_some));
    }
    script.end();
}

#[test]
fn a_folder_may_go_away_and_come_back_at_every_call_of_a_collection() {
    let prepare = |script: &mut Script| {
        three_segments(script);
        script.run(0, COMPACT);
    };
    let calls = at_every_call(
        prepare,
        || COLLECT,
        |script| {
            script.0.take_folder_away();
            script.0.finish(0);
            script.0.bring_folder_back();
        },
    );
    assert!(calls > 6, "{calls} calls");
}

#[test]
fn a_folder_that_is_removed_at_any_call_is_one_that_can_be_written_to() {
    let prepare = |script: &mut Script| {
        script.write(0, &["a1", "a2"]);
        script.write(2, &["a3"]);
        script.refresh(0);
        script.invalidate(0, "b3");
        script.compute(0, &["b1"]);
    };
    let operations: [fn() -> Operation; 3] = [|| Operation::Seal, invalidate_a1, || COMPACT];
    for operation in operations {
        let calls = at_every_call(prepare, operation, |script| {
            script.0.remove_folder();
            script.0.finish(0);
            script.0.write_after_all();
            script.check();
        });
        assert!(calls > 3, "{calls} calls");
    }
}

/// A process could not read a change, so that it knows no more than its number. An older copy comes in the place of the folder, and
/// another change of the copy, which `make` makes, gets that number: after the process has looked a row up, before it writes it.
fn gives_the_number_again(make: impl FnOnce(&mut Script)) {
    let mut script = Script::new(2);
    script.write(0, &["b1"]);
    script.invalidate(0, "b3");
    script.0.back_up_folder();
    script.invalidate(0, "b3");
    script.0.crash(1);
    script.pause(1, Operation::Open { fresh: true }, "map", "change-00000000000000000002");
    // A second listing follows, since the change may commit segments that the first lacks.
    script.pause_again_with(1, Fault::Refused(ErrorKind::Other), "map", "change-00000000000000000002");
    script.resume_with(1, Fault::Refused(ErrorKind::Other));
    script.0.restore_folder();
    script.lookup(1, &["a1"]);
    assert!(!script.is_refused(1), "it has not looked at the folder");
    script.0.crash(0);
    make(&mut script);
    script.insert(1, 0);
    script.run(1, Operation::Seal);
    assert!(script.is_refused(1));
    script.open(1);
    assert_eq!(script.values(1, &["a1"]), [None]);
    script.end();
}

#[test]
fn a_change_that_could_not_be_read_is_not_taken_for_another_of_its_number() {
    gives_the_number_again(|script| {
        script.open(0);
        script.invalidate(0, "a1");
    });
    gives_the_number_again(|script| script.0.invalidate_all());
}
