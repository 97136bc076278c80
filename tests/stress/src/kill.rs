//! kill -9 at any moment: 1,000 rounds, half of them on processes that fill, half on processes that compute, invalidate,
//! join and remove.

use std::time::Duration;

use tcx_engine_tests::churn::Churn;
use tcx_engine_tests::kill::{acknowledged, kill_a_filler};
use tcx_engine_tests::{Dice, Findings};

use crate::arguments::{Arguments, workers};
use crate::budget::Budget;
use crate::outcome::Outcome;

/// Rounds on one directory.
const ROUNDS: usize = 25;

pub(crate) fn run(budget: &Budget, _: &Arguments, outcome: &mut Outcome) {
    let (mut left, mut seed) = (budget.count(1000), 1);
    while left > 0 && !budget.is_over() {
        let rounds = left.min(ROUNDS);
        left -= if seed % 2 == 1 {
            fill(rounds, seed, budget, outcome)
        } else {
            churn(rounds, seed, budget, outcome)
        };
        seed += 1;
    }
}

/// Returns the number of rounds.
fn fill(rounds: usize, seed: u64, budget: &Budget, outcome: &mut Outcome) -> usize {
    let (dir, workers, mut dice) = (tempfile::tempdir().unwrap(), workers(), Dice(seed));
    let mut durable = Vec::new();
    for round in 0..rounds {
        let moment = Duration::from_micros(dice.roll(150_000) as u64);
        let (rows, findings) = kill_a_filler(&workers, dir.path(), &format!("r{round}-"), moment);
        outcome.tried(findings);
        durable.push(rows);
        if budget.is_over() {
            break;
        }
    }
    // Later rounds must not have lost rows of earlier ones.
    let mut findings = Findings::default();
    for (round, rows) in durable.iter().enumerate() {
        findings.add(acknowledged(dir.path(), &format!("r{round}-"), *rows));
    }
    outcome.tried_many(0, findings);
    outcome.count("acknowledged rows", durable.iter().sum());
    durable.len()
}

fn churn(rounds: usize, seed: u64, budget: &Budget, outcome: &mut Outcome) -> usize {
    let mut churn = Churn::new(&workers(), 2 + seed as usize % 5, seed);
    let mut done = 0;
    while done < rounds && (done == 0 || !budget.is_over()) {
        outcome.tried(churn.round());
        done += 1;
    }
    let (findings, events) = churn.end();
    outcome.tried_many(0, findings);
    outcome.count("events", events);
    done
}
