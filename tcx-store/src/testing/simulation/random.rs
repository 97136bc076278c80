//! A run decided by a seed: who goes on, how far, what goes wrong, who dies.

use std::time::Duration;

use super::chance::Chance;
use super::operation::KEYS;
use super::process::Habits;
use super::run::{Setup, Simulation};
use super::schedule::Until;
use super::weather::Weather;

/// What may happen between two steps, of a thousand.
#[derive(Clone, Copy, Debug)]
struct Events {
    crash: usize,
    fork: usize,
    power_loss: usize,
    removal: usize,
    invalidation: usize,
    /// The folder goes away; a folder that is away comes back.
    away: usize,
    back: usize,
    /// The folder is copied; the copy comes in its place.
    backup: usize,
    restored: usize,
    /// A file is damaged.
    damage: usize,
}

/// How a run ended.
pub(super) struct Run {
    pub(super) violation: Option<String>,
    pub(super) trace: Vec<String>,
}

/// Mostly 0, at times little, at times much.
pub(super) fn some(chance: &mut Chance, little: usize, much: usize) -> usize {
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
        unreadable_segment: 0,
        ..Weather::default()
    }
}

fn setup(chance: &mut Chance, traced: bool) -> Setup {
    Setup {
        processes: 2 + chance.below(2),
        threads: 1 + chance.below(2),
        weather: weather(chance),
        time_to_live: chance
            .permille(100)
            .then(|| chance.pick(&[Duration::from_secs(5), Duration::from_mins(1)])),
        habits: Habits::plain(chance.pick(&[60, 60, 500])),
        stamps: false,
        refresh_every: chance.pick(&[Duration::ZERO, Duration::from_secs(1), Duration::from_hours(1)]),
        grain: chance.pick(&[1, 1000, 2000]),
        traced,
    }
}

/// What happens in the runs of a seed beside what happens in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Plain,
    /// A change cannot be read for a moment, or a segment when it is opened, or a piece of it. Rows are missed then, and none is lost.
    Unreadable(Unreadable),
    /// Processes invalidate by age.
    ByAge,
    /// Processes reject rows that they have found, and put values; in some runs rows have stamps.
    Renewing,
    /// Files are damaged, and repaired.
    Damaging,
}

/// Of a thousand times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) change: usize,
    pub(super) segment: usize,
}

impl Way {
    fn unreadable(self, seed: u64) -> Unreadable {
        match self {
            Self::Plain => Unreadable::default(),
            Self::Unreadable(unreadable) => unreadable,
            Self::ByAge => some_unreadable(Chance::new(seed.rotate_left(32))),
            Self::Renewing => some_unreadable(Chance::new(seed.rotate_left(16))),
            Self::Damaging => some_unreadable(Chance::new(seed.rotate_left(8))),
        }
    }

    /// What processes do in these runs beside what they do in each. Drawn apart: the runs of other ways stay as they were before there was
    /// any of this.
    fn set_up(self, seed: u64, setup: &mut Setup) {
        let mut chance = Chance::new(seed.rotate_left(48));
        setup.habits.removes = Chance::new(!seed).permille(200);
        let damages = self == Self::Damaging;
        setup.habits.renews = self == Self::Renewing || damages && chance.permille(200);
        setup.stamps = setup.habits.renews && chance.permille(500);
        let mixes = self == Self::Renewing || damages;
        setup.habits.ages = self == Self::ByAge || mixes && chance.permille(200);
        setup.habits.repairs = damages;
        let unreadable = self.unreadable(seed);
        setup.weather.unreadable_change = unreadable.change;
        setup.weather.unreadable_segment = unreadable.segment;
    }
}

fn some_unreadable(mut chance: Chance) -> Unreadable {
    let changes = Unreadable { change: 100, segment: 0 };
    let segments = Unreadable { change: 0, segment: 50 };
    chance.pick(&[Unreadable::default(), Unreadable::default(), changes, segments])
}

/// Runs a simulation of `steps` steps, then compares what is there with what should be.
pub(super) fn run(seed: u64, steps: usize, traced: bool, way: Way) -> Run {
    let unreadable = way.unreadable(seed);
    let mut chance = Chance::new(seed);
    let events = Events {
        crash: some(&mut chance, 5, 30),
        fork: if chance.permille(100) { 10 } else { 0 },
        power_loss: some(&mut chance, 2, 10),
        removal: if chance.permille(150) { 10 } else { 0 },
        invalidation: some(&mut chance, 5, 20),
        away: if chance.permille(150) { 10 } else { 0 },
        back: chance.pick(&[10, 50, 200]),
        backup: if chance.permille(100) { 10 } else { 0 },
        restored: chance.pick(&[5, 10]),
        damage: if way == Way::Damaging { 15 } else { 0 },
    };
    let mut setup = setup(&mut chance, traced);
    way.set_up(seed, &mut setup);
    let mut simulation = Simulation::new(&setup, &mut chance);
    if chance.permille(100) {
        simulation.world.oracle().may_refuse = true;
        simulation.process(0).set_identity(1);
    }
    if setup.habits.repairs {
        // A change that a process could not read, and knows by its length, is another one to it when it is damaged.
        simulation.world.oracle().may_refuse = true;
    }
    if setup.habits.removes {
        simulation.world.oracle().trimmed = KEYS.to_vec();
    }
    let expires = setup.time_to_live.is_some();
    simulation.world.oracle().may_miss = unreadable != Unreadable::default() || expires;
    for _ in 0..steps {
        step(&mut simulation, &events, &mut chance);
        if simulation.violation().is_some() {
            break;
        }
    }
    if simulation.violation().is_none() {
        simulation.finish_all();
        if setup.habits.repairs {
            simulation.repair_all();
        }
        simulation.world.oracle().may_miss = expires;
        simulation.observe();
        simulation.write_after_all();
        simulation.observe();
        simulation.join_all();
        simulation.observe();
    }
    Run { violation: simulation.violation(), trace: simulation.world.folder.trace.lines() }
}

/// The folder goes away and comes back. A program that is started meanwhile makes another in its place.
fn go_away(simulation: &mut Simulation, events: &Events, chance: &mut Chance) {
    if chance.permille(events.away) {
        simulation.take_folder_away();
        if chance.permille(500) {
            simulation.crash(chance.below(simulation.processes()));
        }
    }
    if chance.permille(events.back) {
        simulation.bring_folder_back();
    }
}

fn step(simulation: &mut Simulation, events: &Events, chance: &mut Chance) {
    let thread = chance.pick(&simulation.ready());
    if chance.permille(events.crash) {
        simulation.crash(simulation.process_of(thread));
    }
    if chance.permille(events.fork) {
        simulation.fork(simulation.process_of(thread));
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
    if events.damage > 0 && chance.permille(events.damage) {
        simulation.damage(chance);
        if chance.permille(500) {
            simulation.repair();
        }
    }
    if events.away > 0 {
        go_away(simulation, events, chance);
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
