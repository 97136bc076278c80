//! A run decided by a seed: who goes on, how far, what goes wrong, who dies.

use std::time::Duration;

use super::chance::Chance;
use super::memory::Weather;
use super::schedule::Until;
use super::simulation::{Setup, Simulation};

/// What may happen between two steps, of a thousand.
#[derive(Clone, Copy, Debug)]
struct Events {
    crash: usize,
    power_loss: usize,
    removal: usize,
    invalidation: usize,
}

/// How a run ended.
pub(super) struct Run {
    pub(super) violation: Option<String>,
    pub(super) trace: Vec<String>,
}

/// Mostly 0, at times little, at times much.
fn some(chance: &mut Chance, little: usize, much: usize) -> usize {
    chance.pick(&[0, 0, little, much])
}

fn weather(chance: &mut Chance) -> Weather {
    Weather {
        stale: some(chance, 50, 400),
        gap: some(chance, 30, 300),
        lost_reply: some(chance, 10, 100),
        refused: some(chance, 10, 100),
        unreadable: some(chance, 10, 100),
        unreadable_change: 0,
    }
}

fn setup(chance: &mut Chance, traced: bool) -> Setup {
    Setup {
        processes: 2 + chance.below(2),
        threads: 1 + chance.below(2),
        weather: weather(chance),
        refresh_every: chance.pick(&[Duration::ZERO, Duration::from_secs(1), Duration::from_hours(1)]),
        grain: chance.pick(&[1, 1000, 2000]),
        traced,
    }
}

/// Runs a simulation of so many steps, then looks at what is there.
pub(super) fn run(seed: u64, steps: usize, traced: bool) -> Run {
    run_with(seed, steps, traced, 0)
}

/// As [`run`]; so many of a thousand times a change cannot be read. Meanwhile rows are missed, and none is lost.
pub(super) fn run_with(seed: u64, steps: usize, traced: bool, unreadable_change: usize) -> Run {
    let mut chance = Chance::new(seed);
    let events = Events {
        crash: some(&mut chance, 5, 30),
        power_loss: some(&mut chance, 2, 10),
        removal: if chance.permille(150) { 10 } else { 0 },
        invalidation: some(&mut chance, 5, 20),
    };
    let mut setup = setup(&mut chance, traced);
    setup.weather.unreadable_change = unreadable_change;
    let mut simulation = Simulation::new(&setup, &mut chance);
    if chance.permille(100) {
        simulation.world.oracle().may_refuse = true;
        simulation.process(0).set_identity(1);
    }
    simulation.world.oracle().may_miss = unreadable_change > 0;
    for _ in 0..steps {
        step(&mut simulation, &events, &mut chance);
        if simulation.violation().is_some() {
            break;
        }
    }
    if simulation.violation().is_none() {
        simulation.finish_all();
        simulation.world.oracle().may_miss = false;
        simulation.observe();
    }
    Run { violation: simulation.violation(), trace: simulation.world.folder.trace.lines() }
}

fn step(simulation: &mut Simulation, events: &Events, chance: &mut Chance) {
    let thread = chance.pick(&simulation.ready());
    if chance.permille(events.crash) {
        simulation.crash(simulation.process_of(thread));
    }
    if chance.permille(events.power_loss) {
        simulation.lose_power(chance);
    }
    if chance.permille(events.removal) {
        simulation.remove_folder();
    }
    if chance.permille(events.invalidation) {
        simulation.invalidate_all();
    }
    let most = chance.pick(&[1, 1, 4, 40]);
    let until = Until::Calls(chance.below(most));
    simulation.advance_any(thread, chance, until);
}
