//! Scripts of repairs that meet other processes.

use super::operation::Operation;
use super::schedule::Until;
use super::script::{COMPACT, Script};

const REPAIR: Operation = Operation::Repair { end: false };

/// Process 1 cannot see a change that is lost, and seals rows after the repair has looked at the folder; process 0, which has read the change,
/// joins them. What is put after the repair is not displaced by that.
#[test]
fn rows_that_are_sealed_and_joined_while_a_change_is_repaired_do_not_come_back() {
    for is_announced in [false, true] {
        let mut script = Script::new(4);
        script.write(2, &["b3"]);
        script.invalidate(2, "b3");
        (0..4).for_each(|process| script.refresh(process));
        script.lookup(1, &["a1"]);
        (0..3).for_each(|_| script.invalidate(2, "b3"));
        script.refresh(0);
        script.write(0, &["a2"]);
        script.write(0, &["a3"]);
        let lost = "change-00000000000000000002";
        script.0.world.oracle().damaged_change(lost);
        script.0.world.folder.remove_file(lost);
        script.pause(3, REPAIR, "create", "change-");
        if is_announced {
            script.pause_again(3, "create", "change-");
        }
        script.insert(1, 0);
        script.seal(1);
        script.refresh(0);
        // Segments of about the same age are joined.
        script.0.world.folder.clock.advance(100_000_000);
        script.0.start(0, COMPACT, Until::At("publish", "seg-"));
        assert!(script.0.is_paused(0), "it joins them");
        script.resume(3);
        script.0.crash(1);
        script.open(1);
        script.compute(1, &["a1"]);
        script.seal(1);
        let new = script.values(1, &["a1"]);
        script.0.finish_all();
        (0..3).for_each(|process| script.refresh(process));
        for process in 0..3 {
            assert_eq!(script.values(process, &["a1"]), new, "process {process}");
        }
    }
}
