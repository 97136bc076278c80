//! Interleavings by name: segments that are cut down to their first rows, with everything else.

use super::operation::Operation;
use super::script::{COMPACT, Script, at_every_call, dies_everywhere};

/// Of the segment of process 0, the rows of `a1` and `a2` stay.
const TRIM: Operation = Operation::Trim { segment: 0, rows: 2 };

/// A segment of four rows, which every process knows; the last two may be cut away.
fn one_segment(script: &mut Script) {
    script.write(0, &["a1", "a2", "a3", "b1"]);
    script.may_cut(&["a3", "b1"]);
    (1..3).for_each(|process| script.refresh(process));
}

/// The same, joined from two segments that are still there: the newer one has the first rows.
fn a_joined_segment(script: &mut Script) {
    script.write(0, &["a3", "b1"]);
    script.write(0, &["a1", "a2"]);
    script.run(0, COMPACT);
    script.may_cut(&["a3", "b1"]);
    (1..3).for_each(|process| script.refresh(process));
}

/// The same, of rows that took the place of others: their tombstone has committed the segment.
fn a_committed_segment(script: &mut Script) {
    script.write(0, &["a1", "a2", "a3", "b1"]);
    script.replace(0, &["a1", "a2", "a3", "b1"]);
    script.seal(0);
    script.collect(0);
    script.may_cut(&["a3", "b1"]);
    (1..3).for_each(|process| script.refresh(process));
}

const SEGMENTS: [fn(&mut Script); 3] = [one_segment, a_joined_segment, a_committed_segment];

/// Trims each segment, pausing process 0 at each storage call, while the others go on.
fn trimmed_at_every_call(meanwhile: fn(&mut Script)) {
    for prepare in SEGMENTS {
        let calls = at_every_call(prepare, || TRIM, meanwhile);
        assert!(calls > 6, "{calls} calls");
    }
}

/// After a trim was paused and other processes have worked, everything that is not cut away is there.
fn ends_with(script: &mut Script, keys: &[&'static str]) {
    script.0.finish_all();
    script.check();
    for process in 0..3 {
        script.refresh(process);
        assert!(script.values(process, keys).iter().all(Option::is_some), "{keys:?}");
    }
}

#[test]
fn the_first_rows_stay_and_the_others_are_cut_away() {
    for prepare in SEGMENTS {
        let mut script = Script::new(3);
        prepare(&mut script);
        let before = script.values(0, &["a1", "a2"]);
        script.run(0, TRIM);
        for process in 0..3 {
            script.refresh(process);
            let after = script.values(process, &["a1", "a2", "a3", "b1"]);
            assert_eq!(after, [before[0], before[1], None, None]);
        }
        script.collect(1);
        script.end();
    }
}

#[test]
fn a_process_may_die_anywhere_in_a_trim() {
    for prepare in SEGMENTS {
        assert!(dies_everywhere(prepare, || TRIM) > 6);
    }
}

#[test]
fn a_row_that_is_invalidated_during_a_trim_is_dead() {
    trimmed_at_every_call(|script| {
        script.invalidate(1, "a1");
        script.refresh(2);
        assert_eq!(script.values(2, &["a1"]), [None]);
        ends_with(script, &["a2"]);
        for process in 0..3 {
            assert_eq!(script.values(process, &["a1"]), [None]);
        }
    });
}

#[test]
fn rows_that_are_replaced_during_a_trim_are_the_new_ones() {
    trimmed_at_every_call(|script| {
        script.replace(1, &["a1", "a3"]);
        script.seal(1);
        let new = script.values(1, &["a1", "a3"]);
        ends_with(script, &["a1", "a2"]);
        for process in 0..3 {
            assert_eq!(script.values(process, &["a1", "a3"]), new);
        }
    });
}

#[test]
fn a_segment_may_be_joined_with_others_and_collected_during_a_trim() {
    trimmed_at_every_call(|script| {
        script.write(1, &["b2"]);
        script.write(2, &["b3"]);
        script.run(1, COMPACT);
        script.collect(1);
        ends_with(script, &["a1", "a2", "b2", "b3"]);
        script.run(2, COMPACT);
        script.collect(2);
    });
}

#[test]
fn a_collection_during_a_trim_keeps_the_rows_that_stay() {
    trimmed_at_every_call(|script| {
        script.collect(1);
        script.0.finish_all();
        script.collect(2);
        ends_with(script, &["a1", "a2"]);
    });
}

#[test]
fn two_processes_may_trim_one_segment() {
    let meanwhile = |script: &mut Script| {
        script.may_cut(&["a2", "a3", "b1"]);
        script.run(1, Operation::Trim { segment: 0, rows: 1 });
        script.collect(1);
        ends_with(script, &["a1"]);
        script.run(2, COMPACT);
        script.collect(2);
    };
    trimmed_at_every_call(meanwhile);
}

#[test]
fn an_older_copy_of_the_folder_may_come_in_its_place_during_a_trim() {
    for prepare in SEGMENTS {
        let calls = at_every_call(
            |script| {
                prepare(script);
                script.0.back_up_folder();
                script.invalidate(1, "a1");
                script.refresh(0);
            },
            || TRIM,
            |script| {
                script.0.restore_folder();
                script.0.finish(0);
                script.0.crash(1);
                script.open(1);
                script.collect(1);
                assert!(script.values(1, &["a1", "a2"]).iter().all(Option::is_some));
            },
        );
        assert!(calls > 6, "{calls} calls");
    }
}
