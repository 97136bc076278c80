//! Runs on several machines that know the folder by the objects of a store: requests fail, machines lose the store for a while, die while
//! rows wait to be sent, and lose their disks.

use std::sync::Arc;
use std::time::Duration;

use super::chance::Chance;
use super::process::Habits;
use super::random::{Run, some};
use super::run::{Setup, Simulation};
use super::schedule::Until;
use super::site::Fleet;
pub use super::site::Machines;
use super::weather::Weather;

/// What may happen between two steps, of a thousand.
#[derive(Clone, Copy, Debug)]
struct Events {
    crash: usize,
    fork: usize,
    /// All processes of a machine die, and it may lose its disk.
    stop: usize,
    disk: usize,
    /// A machine loses the store, or all do; the store comes back.
    outage: usize,
    back: usize,
    removal: usize,
    invalidation: usize,
    /// The folder is copied; the copy comes in its place.
    backup: usize,
    restored: usize,
}

impl Events {
    fn draw(chance: &mut Chance) -> Self {
        Self {
            crash: some(chance, 5, 30),
            fork: if chance.permille(100) { 10 } else { 0 },
            stop: some(chance, 5, 20),
            disk: chance.pick(&[0, 300, 1000]),
            outage: some(chance, 10, 40),
            back: chance.pick(&[20, 50, 200]),
            removal: if chance.permille(100) { 10 } else { 0 },
            invalidation: some(chance, 5, 20),
            backup: if chance.permille(100) { 10 } else { 0 },
            restored: chance.pick(&[5, 10]),
        }
    }
}

fn weather(chance: &mut Chance) -> Weather {
    Weather {
        stale: some(chance, 50, 400),
        gap: some(chance, 30, 300),
        lost_reply: some(chance, 20, 150),
        refused: some(chance, 20, 150),
        unreadable: some(chance, 20, 100),
        conflict: some(chance, 50, 300),
        denied: some(chance, 5, 50),
        ..Weather::default()
    }
}

fn setup(machines: usize, each: usize, chance: &mut Chance, traced: bool) -> Setup {
    Setup {
        processes: machines * each,
        threads: 1 + chance.below(2),
        weather: weather(chance),
        time_to_live: None,
        habits: Habits::plain(chance.pick(&[60, 60, 500])),
        stamps: false,
        refresh_every: chance.pick(&[Duration::ZERO, Duration::from_secs(1), Duration::from_hours(1)]),
        grain: 1,
        traced,
    }
}

/// Runs a seed on machines that are made for it. If a wrong row is served or a row is lost, panics with the end of the trace.
pub fn check<M: Machines + 'static>(seed: u64, steps: usize, make: impl Fn() -> M) {
    if run(seed, steps, false, Arc::new(make())).violation.is_none() {
        return;
    }
    let run = run(seed, steps, true, Arc::new(make()));
    let last = &run.trace[run.trace.len().saturating_sub(3000)..];
    panic!("{}\nseed {seed}: {}", last.join("\n"), run.violation.unwrap_or_default());
}

/// What happens in a run of this seed, line by line.
pub fn trace(seed: u64, steps: usize, machines: Arc<dyn Machines>) -> Vec<String> {
    run(seed, steps, true, machines).trace
}

fn run(seed: u64, steps: usize, traced: bool, machines: Arc<dyn Machines>) -> Run {
    let mut chance = Chance::new(seed);
    let events = Events::draw(&mut chance);
    let (each, count) = (1 + chance.below(2), 2 + chance.below(2));
    let fleet = Fleet { machines, each };
    let setup = setup(count, each, &mut chance, traced);
    let mut simulation = Simulation::on(Some(&fleet), &setup, &mut chance);
    simulation.world.oracle().may_stray = true;
    for _ in 0..steps {
        step(&mut simulation, &fleet, &events, &mut chance);
        if simulation.violation().is_some() {
            break;
        }
    }
    if simulation.violation().is_none() {
        simulation.set_outages(0);
        simulation.finish_all();
        simulation.remove_strays();
        (0..count).for_each(|machine| simulation.settle_machine(&fleet, machine));
        simulation.observe_on(&fleet);
        simulation.write_after_all();
        simulation.observe_on(&fleet);
        simulation.join_all();
        simulation.observe_on(&fleet);
    }
    Run { violation: simulation.violation(), trace: simulation.world.folder.trace.lines() }
}

fn step(simulation: &mut Simulation, fleet: &Fleet, events: &Events, chance: &mut Chance) {
    let thread = chance.pick(&simulation.ready());
    let process = simulation.process_of(thread);
    if chance.permille(events.crash) {
        simulation.crash(process);
    }
    if chance.permille(events.fork) {
        simulation.fork(process);
    }
    if chance.permille(events.stop) {
        let loses_disk = chance.permille(events.disk);
        simulation.stop_machine(fleet, fleet.machine_of(process), loses_disk);
    }
    if events.outage > 0 {
        change_outages(simulation, fleet, events, chance);
    }
    if chance.permille(events.removal) {
        simulation.remove_folder();
    }
    if chance.permille(events.invalidation) {
        simulation.invalidate_all();
    }
    if events.backup > 0 {
        if chance.permille(events.backup) {
            simulation.back_up_folder();
        }
        if chance.permille(events.restored) {
            simulation.restore_folder();
        }
    }
    let most = chance.pick(&[1, 1, 4, 40]);
    let until = Until::Calls(chance.below(most));
    simulation.advance_any(thread, chance, until);
}

fn change_outages(simulation: &Simulation, fleet: &Fleet, events: &Events, chance: &mut Chance) {
    let machines = simulation.processes() / fleet.each;
    if chance.permille(events.outage) {
        let all = (1 << machines) - 1;
        simulation.set_outages(if chance.permille(500) { all } else { 1 << chance.below(machines) });
    }
    if chance.permille(events.back) {
        simulation.set_outages(0);
    }
}
