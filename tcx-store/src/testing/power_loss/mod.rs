//! The power fails after every step, and the disk keeps more or less of what was not synced: what a flush has
//! acknowledged is there, nothing wrong is served, and writing goes on.

mod disk;
mod machine;
mod power_loss_disk;
mod turns;

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use disk::{Left, dice};
use machine::{Machine, Process, disk_in_memory};
use power_loss_disk::PowerLossDisk;
use turns::Turns;

use crate::storage::{LocalStorage, Storage};

/// What each process does, one after the other or at once.
type Work = fn(&Process);

/// Lets each process do its work on one machine, in turns that `next` decides. Where they are `open`, they were there before
/// and know what is on the disk; else each is opened at its first turn.
fn at_once(
    machine: &Arc<Machine>,
    open: bool,
    work: &[Work],
    next: impl FnMut(usize) -> usize + Send + 'static,
) {
    let turns = Turns::new(work.len(), next);
    let process = |own| {
        let turns = turns.clone();
        machine.process(move || turns.wait(own))
    };
    let processes = (0..work.len()).map(|own| {
        let process = open.then(|| process(own));
        process.iter().for_each(Process::syncs);
        Mutex::new(process)
    });
    let processes: Vec<_> = processes.collect();
    in_turns(&turns, work.len(), |own| {
        let early = processes[own].lock().unwrap().take();
        work[own](&early.unwrap_or_else(|| process(own)));
    });
}

/// Runs `work` once for each process.
fn in_turns(turns: &Arc<Turns>, processes: usize, work: impl Fn(usize) + Sync) {
    turns.begin();
    thread::scope(|scope| {
        for own in 0..processes {
            let (turns, work) = (turns.clone(), &work);
            scope.spawn(move || {
                let _end = turns.end_of(own);
                work(own);
            });
        }
    });
}

/// The first process is interrupted before its step number `at`, until the second has ended. `begins` is called if it comes
/// to that.
fn interrupt(at: usize, mut begins: impl FnMut() + Send) -> impl FnMut(usize) -> usize + Send {
    let mut steps = 0;
    move |whose| {
        steps += 1;
        if steps != at + 1 {
            return whose;
        }
        begins();
        1
    }
}

/// About every fourth step it is another's turn.
fn by_dice(processes: usize, seed: u64) -> impl FnMut(usize) -> usize + Send {
    let mut dice = dice(seed);
    move |whose| if dice(4) == 0 { dice(processes) } else { whose }
}

#[test]
fn what_one_process_was_promised_survives_a_loss_of_power() {
    let machine = Machine::new("one process".to_owned());
    let process = machine.process(|| {});
    for start in 0..6 {
        process.compute(start * 5..start * 5 + 8);
        process.flush();
        process.invalidate(start * 4..start * 4 + 2);
    }
    process.compact();
    process.collect();
    drop(process);
    machine.loses_power_anywhere();
}

#[test]
fn what_is_written_while_something_else_is_synced_survives_a_loss_of_power() {
    let machine = Machine::new("a busy process".to_owned());
    let process = machine.busy_process();
    for _ in 0..2 {
        (0..8).for_each(|start| process.compute(start * 5..start * 5 + 5));
        process.flush();
        process.invalidate(3..20);
    }
    drop(process);
    machine.loses_power_anywhere();
}

#[test]
fn changes_that_are_merged_survive_a_loss_of_power() {
    let machine = Machine::new("merged changes".to_owned());
    let process = machine.process(|| {});
    process.compute(0..40);
    process.flush();
    for key in 0..20 {
        process.invalidate(key..key + 2);
    }
    process.compute(10..15);
    process.flush();
    drop(process);
    machine.loses_power_somewhere(0, 0);
}

fn computes(process: &Process) {
    process.compute(10..25);
    process.flush();
    process.invalidate(5..20);
    process.compute(10..15);
    process.flush();
}

fn invalidates(process: &Process) {
    process.invalidate(0..12);
    process.compute(8..16);
    process.flush();
    process.invalidate(10..30);
}

fn joins(process: &Process) {
    process.compact();
    process.collect();
}

fn invalidates_once(process: &Process) {
    process.invalidate(0..5);
}

/// Learns what is new, and merges changes if there are enough.
fn merges(process: &Process) {
    process.compute(0..0);
    process.flush();
}

/// A machine on which changes are merged when one more is known, and two processes have synced.
fn with_changes(case: String) -> Arc<Machine> {
    let machine = Machine::new(case);
    let process = machine.process(|| {});
    process.compute(0..20);
    process.flush();
    (0..13).for_each(|key| process.invalidate(key..key + 1));
    drop(process);
    machine
}

/// A machine on which there are segments to join.
fn with_segments(case: String) -> Arc<Machine> {
    let machine = Machine::new(case);
    let process = machine.process(|| {});
    for start in [0, 15, 30] {
        process.compute(start..start + 25);
        process.flush();
        process.invalidate(start + 3..start + 6);
    }
    drop(process);
    machine
}

/// Between each two steps of the first process, the second does all its work.
fn interrupted_everywhere(set_up: fn(String) -> Arc<Machine>, open: bool, work: [Work; 2]) {
    for at in 0.. {
        let machine = set_up(format!("the first has taken {at} steps when the second begins"));
        let begun = Arc::new(OnceLock::new());
        let begins = {
            let (machine, begun) = (machine.clone(), begun.clone());
            move || begun.set(machine.events()).unwrap()
        };
        at_once(&machine, open, &work, interrupt(at, begins));
        let Some(&begun) = begun.get() else {
            return assert!(at > 10, "the first took {at} steps only");
        };
        machine.loses_power_somewhere(begun, at as u64);
    }
}

#[test]
fn invalidations_between_two_steps_of_a_process_that_computes_survive_a_loss_of_power() {
    interrupted_everywhere(Machine::new, false, [computes, invalidates]);
}

#[test]
fn rows_between_two_steps_of_a_process_that_invalidates_survive_a_loss_of_power() {
    interrupted_everywhere(Machine::new, false, [invalidates, computes]);
}

#[test]
fn what_is_merged_between_two_steps_of_a_process_that_invalidates_survives_a_loss_of_power() {
    interrupted_everywhere(with_changes, true, [invalidates_once, merges]);
}

#[test]
fn invalidations_between_two_steps_of_a_process_that_joins_survive_a_loss_of_power() {
    interrupted_everywhere(with_segments, false, [joins, invalidates]);
}

#[test]
fn what_is_joined_between_two_steps_of_a_process_that_invalidates_survives_a_loss_of_power() {
    interrupted_everywhere(with_segments, false, [invalidates, joins]);
}

#[test]
fn what_two_processes_join_survives_a_loss_of_power() {
    interrupted_everywhere(with_segments, true, [joins, joins]);
}

fn finds(process: &Process) {
    process.find(0..60);
    process.flush();
}

#[test]
fn rows_of_another_process_that_were_found_survive_a_loss_of_power_after_a_flush() {
    interrupted_everywhere(Machine::new, false, [computes, finds]);
}

#[test]
fn what_three_processes_do_at_once_survives_a_loss_of_power() {
    for seed in 0..25 {
        let machine = with_segments(format!("turns by dice {seed}"));
        at_once(&machine, seed % 2 == 0, &[joins, computes, invalidates], by_dice(3, seed));
        machine.loses_power_somewhere(0, seed);
    }
}

#[test]
fn a_folder_that_several_begin_at_once_is_durable_for_each_of_them() {
    for seed in 0..200 {
        let (dir, name) = (disk_in_memory(), Path::new("data/cache/m_v1"));
        let disk = PowerLossDisk::new(dir.path());
        let turns = Turns::new(3, by_dice(3, seed));
        in_turns(&turns, 3, |own| {
            let turns = turns.clone();
            let storage = LocalStorage::new(dir.path().join(name), disk.process(move || turns.wait(own)));
            let file = format!("of-{own}");
            storage.make().unwrap();
            storage.draft().unwrap().publish(&file, true).unwrap();
            assert_eq!(least_left(&disk, &name.join(file)), Some(Vec::new()), "turns by dice {seed}");
        });
    }
}

#[test]
fn a_name_that_is_found_taken_is_durable() {
    for at in 0.. {
        let dir = disk_in_memory();
        let disk = PowerLossDisk::new(dir.path());
        let begun = Arc::new(OnceLock::new());
        let begins = {
            let begun = begun.clone();
            move || begun.set(()).unwrap()
        };
        let turns = Turns::new(2, interrupt(at, begins));
        in_turns(&turns, 2, |own| {
            let turns = turns.clone();
            let storage = LocalStorage::new(dir.path().join("m_v1"), disk.process(move || turns.wait(own)));
            storage.make().unwrap();
            let created = storage.create_if_absent("name", &[own as u8]).unwrap();
            let whose = if created { own } else { 1 - own };
            assert_eq!(least_left(&disk, Path::new("m_v1/name")), Some(vec![whose as u8]), "{at} steps");
        });
        if begun.get().is_none() {
            return assert!(at > 5, "the first took {at} steps only");
        }
    }
}

/// What is in a file at least, should the power fail now.
fn least_left(disk: &PowerLossDisk, file: &Path) -> Option<Vec<u8>> {
    let dir = disk_in_memory();
    disk.after(disk.events()).leave(dir.path(), Left::Nothing);
    std::fs::read(dir.path().join(file)).ok()
}
