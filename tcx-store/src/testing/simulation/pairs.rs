//! Two processes join, evict, trim or collect, and are paused at pairs of their storage calls, while a third one invalidates what it finds, or puts
//! what it misses: what was removed does not come back.

use super::operation::Operation;
use super::renewals::Judging;
use super::schedule::Until;
use super::script::{COLLECT, COMPACT, Script, three_segments};

const ALL: [&str; 5] = ["a1", "a2", "a3", "b1", "b2"];
const EVICT: Operation = Operation::Evict { bytes: 1 };
const EVICT_ALL: Operation = Operation::Evict { bytes: 1 << 30 };
const TRIM: Operation = Operation::Trim { segment: 0, rows: 1 };

/// Of the calls of each process, one in five is tried: with all of them, these tests take more than a minute.
const STRIDE: usize = 5;

fn invalidate_found(script: &mut Script) {
    script.run(2, Operation::InvalidateFound(ALL.to_vec()));
    script.refresh(2);
    assert_eq!(script.values(2, &ALL), [None; 5]);
}

fn put_missing(script: &mut Script) {
    let judging =
        Judging { keys: ALL.to_vec(), view: 0, replaces: None, puts: true, is_old: false, fresh: true };
    script.run(2, Operation::Judge(judging));
    script.insert(2, 0);
    script.seal(2);
}

/// Pauses process 0 in `a` and process 1 in `b`; process 2 does something; both end, in this order or the other.
fn pairs(
    prepare: fn(&mut Script),
    a: fn() -> Operation,
    b: fn() -> Operation,
    meanwhile: fn(&mut Script),
    check: fn(&mut Script),
) {
    for swaps in [false, true] {
        for i in (0..).step_by(STRIDE) {
            let mut ended = false;
            for j in (0..).step_by(STRIDE) {
                let mut script = Script::new(3);
                prepare(&mut script);
                script.may_cut(&ALL);
                script.0.start(0, a(), Until::Calls(i));
                ended = !script.0.is_paused(0);
                script.0.start(1, b(), Until::Calls(j));
                let ends = !script.0.is_paused(1);
                meanwhile(&mut script);
                for process in if swaps { [1, 0] } else { [0, 1] } {
                    script.0.finish(process);
                }
                script.0.finish_all();
                script.check();
                (0..3).for_each(|process| script.refresh(process));
                check(&mut script);
                script.end();
                if ends {
                    break;
                }
            }
            if ended {
                break;
            }
        }
    }
}

fn all_are_gone(script: &mut Script) {
    (0..3).for_each(|process| script.collect(process));
    (0..3).for_each(|process| assert_eq!(script.values(process, &ALL), [None; 5]));
}

fn nothing(_: &mut Script) {}

fn collect_and_invalidate(script: &mut Script) {
    script.collect(2);
    invalidate_found(script);
    script.collect(2);
}

fn evict_and_invalidate(script: &mut Script) {
    script.run(2, EVICT);
    invalidate_found(script);
}

fn evict_and_put(script: &mut Script) {
    script.run(2, EVICT);
    put_missing(script);
}

macro_rules! tests {
    ($($name:ident: $a:expr, $b:expr, $meanwhile:expr, $check:expr;)*) => {
        $(#[test]
        fn $name() {
            pairs(three_segments, || $a, || $b, $meanwhile, $check);
        })*
    };
}

tests! {
    what_is_evicted_while_it_is_joined_is_invalidated_with_what_is_found: COMPACT, EVICT, collect_and_invalidate, all_are_gone;
    what_is_trimmed_while_it_is_joined_is_invalidated_with_what_is_found: COMPACT, TRIM, collect_and_invalidate, all_are_gone;
    what_two_processes_trim_is_invalidated_with_what_is_found: TRIM, TRIM, collect_and_invalidate, all_are_gone;
    what_is_evicted_while_it_is_trimmed_is_invalidated_with_what_is_found: TRIM, EVICT, collect_and_invalidate, all_are_gone;
    what_two_processes_evict_is_invalidated_with_what_is_found: EVICT, EVICT_ALL, collect_and_invalidate, all_are_gone;
    what_is_evicted_while_two_processes_join_it_is_invalidated_with_what_is_found: COMPACT, COMPACT, evict_and_invalidate, all_are_gone;
    values_put_for_what_is_evicted_while_it_is_joined_stay: COMPACT, EVICT, put_missing, nothing;
    values_put_for_what_is_trimmed_while_it_is_joined_stay: COMPACT, TRIM, put_missing, nothing;
    values_put_for_what_is_evicted_while_it_is_trimmed_stay: TRIM, EVICT, put_missing, nothing;
    values_put_for_what_is_evicted_while_two_processes_join_it_stay: COMPACT, COMPACT, evict_and_put, nothing;
    values_put_for_what_is_evicted_while_others_are_collected_stay: COLLECT, EVICT, put_missing, nothing;
}
