//! The engine's simulation over modules in an object store: several machines, with one or two processes and a near tier each, whose
//! requests fail in every way, which lose the store for a while, die while rows wait to be sent, and lose their disks.
//!
//! What runs is what a program runs, from the engine down to each try of a request: the spool, the thread that sends, changes that are
//! created conditionally and compared, listings, pauses. Below that, the [`store`] answers, or does not. Near tiers are directories, so what
//! a process does in one between two requests is one step.

mod machines;
mod store;

use tcx_store::testing::simulation::remote::{check, trace};
use tcx_store::testing::simulation::seeds::check_many;

use self::machines::Disks;

const STEPS: usize = 300;

/// Seeds that have failed once.
const FAILED: [u64; 0] = [];

fn check_seed(seed: u64) {
    check(seed, STEPS, Disks::new);
}

#[test]
fn machines_serve_nothing_wrong_and_lose_nothing_that_is_in_the_store() {
    FAILED.into_iter().chain(0..500).for_each(check_seed);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..12 {
        let run = || trace(seed, STEPS, std::sync::Arc::new(Disks::new()));
        let (one, two) = (run(), run());
        assert!(one.len() > 100);
        for (line, (one, two)) in one.iter().zip(&two).enumerate() {
            assert_eq!(one, two, "seed {seed}, line {line}");
        }
        assert_eq!(one.len(), two.len());
    }
}

#[test]
#[ignore = "takes minutes: `cargo xtask simulate --remote`, or TCX_MODEL_SEEDS seeds from TCX_MODEL_FIRST_SEED"]
fn nothing_is_wrong_or_lost_in_very_many_runs_on_machines() {
    check_many(check_seed);
}
