//! Several machines that use one module in a store for a while: each is a process with a near tier of its own. Requests fail in every
//! way, machines are killed, the server is, and one machine loses its disk.
//!
//! A machine writes down what it does ([`events`]); in the end the [`oracle`] reads all of it, and what a new machine finds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod events;
mod machine;
mod oracle;
mod random;

use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use tcx_test_s3::{Fault, Server};

use machine::{KEYS, Machine};
use random::Random;

/// How many machines there are.
const MACHINES: u64 = 4;

/// Names the machine that a process is to be.
const WORK: &str = "TCX_TEST_MACHINE";

/// How many seconds the long trial takes.
const SECONDS: &str = "TCX_TRIAL_SECONDS";

/// Not a test: what the processes do that tests start.
#[test]
fn work_of_a_machine() {
    let Ok(work) = std::env::var(WORK) else { return };
    let [number, life, url, dir] = work.split('|').collect::<Vec<_>>()[..] else { panic!("{work}") };
    Machine::start(number.parse().unwrap(), life.parse().unwrap(), url, Path::new(dir)).run();
}

/// A machine that runs until it is killed, or is asked to end.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    life: u64,
}

impl Process {
    fn start(number: u64, life: u64, url: &str, dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "work_of_a_machine", "--nocapture"])
            .env(WORK, format!("{number}|{life}|{url}|{}", dir.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        Self { child, input, life }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has sent what waits, and has ended.
    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success(), "a machine failed: see above");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that fails now and then.
fn server(address: &str, dir: &Path) -> Server {
    let server = Server::with_directory(address, dir).unwrap();
    server.fail(|faults| {
        faults.permille = vec![
            (Fault::Before, 20),
            (Fault::After, 20),
            (Fault::Throttled, 20),
            (Fault::Conflict, 20),
            (Fault::Cut, 20),
            (Fault::Flipped, 20),
            (Fault::Late(Duration::from_millis(20)), 50),
            (Fault::Stalled(Duration::from_millis(20)), 20),
            (Fault::Stale, 100),
        ];
    });
    server
}

fn trial(length: Duration) {
    let (objects, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut random, end) = (Random::new(length.as_secs()), Instant::now() + length);
    let mut store = server("127.0.0.1:0", objects.path());
    let (url, address) = (store.url("p"), store.url("").split('/').nth(2).unwrap().to_owned());
    let mut machines: Vec<_> =
        (0..MACHINES).map(|number| Process::start(number, 0, &url, dir.path())).collect();
    let restart = |machine: &mut Process, number: u64, loses_its_disk: bool| {
        machine.kill();
        if loses_its_disk {
            events::note_lost_disk(dir.path(), number);
            std::fs::remove_dir_all(machine::near(dir.path(), number)).unwrap();
        }
        *machine = Process::start(number, machine.life + 1, &url, dir.path());
    };
    let pause = length / 12;
    for step in 1..12 {
        std::thread::sleep(pause.min(end.saturating_duration_since(Instant::now())));
        let number = random.below(MACHINES);
        match step {
            5 => drop(std::mem::replace(&mut store, Server::start())),
            6 => store = server(&address, objects.path()),
            9 => restart(&mut machines[number as usize], number, true),
            _ => restart(&mut machines[number as usize], number, false),
        }
    }
    store.fail(|faults| faults.permille.clear());
    machines.into_iter().for_each(Process::end);
    let last = Machine::start(MACHINES, 0, &url, dir.path()).find_all(KEYS);
    let report = oracle::check(&events::read(dir.path(), MACHINES), &last);
    eprintln!("{report}; {} requests to the last server", store.counts().all());
    assert!(report.is_good(), "see {} and {}", objects.keep().display(), dir.keep().display());
}

#[test]
fn machines_that_fill_one_module_find_no_wrong_row_and_lose_none_whatever_fails() {
    trial(Duration::from_secs(18));
}

#[test]
#[ignore = "takes minutes: cargo xtask remote"]
fn machines_that_fill_one_module_for_minutes_find_no_wrong_row_and_lose_none() {
    let seconds = std::env::var(SECONDS).map_or(300, |seconds| seconds.parse().unwrap());
    trial(Duration::from_secs(seconds));
}
