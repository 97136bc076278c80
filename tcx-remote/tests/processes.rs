//! Several processes of one machine that share a near tier, and processes that are killed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tcx_remote::{ClientOptions, Location, RemoteCache};
use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
use tcx_test_s3::{Fault, Operation, Server};

/// What a process is to do.
const WORK: &str = "TCX_TEST_WORK";

fn open(url: &str, near: &Path) -> Arc<Store> {
    let Location::Store(url) = Location::parse(url).unwrap() else { panic!("{url} is a directory") };
    let set = |client: ClientOptions, (name, value)| client.set(name, value);
    let settings = [
        ("aws_access_key_id", tcx_test_s3::ACCESS_KEY),
        ("aws_secret_access_key", tcx_test_s3::SECRET_KEY),
        ("aws_region", "us-east-1"),
    ];
    let client = settings.into_iter().fold(ClientOptions::default().deadline(Duration::from_secs(2)), set);
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[1000] };
    let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
    RemoteCache::new(url, near, client).unwrap().open(spec, &Options::default()).unwrap()
}

fn compute(store: &Store, keys: &[i64]) {
    let mut rows = store.lookup(Keys::ints(keys.iter().copied(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    let values: Vec<u8> =
        missing.iter().flat_map(|position| keys[*position].to_le_bytes().repeat(1000)).collect();
    store.insert(&mut rows, &missing, vec![Column::dense(&values)]).unwrap();
}

fn found(store: &Store, keys: &[i64]) -> usize {
    let rows = store.lookup(Keys::ints(keys.iter().copied(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    for position in (0..keys.len()).filter(|position| !missing.contains(position)) {
        assert_eq!(rows.bytes(0, position)[..8], keys[position].to_le_bytes());
    }
    keys.len() - missing.len()
}

/// Not a test: what the processes do that tests start.
#[test]
fn work_of_a_process() {
    let Ok(work) = std::env::var(WORK) else { return };
    let [work, url, near] = work.split('|').collect::<Vec<_>>()[..] else { panic!("{work}") };
    let store = open(url, Path::new(near));
    match work {
        "read" => println!("found {}", found(&store, &(0..100).collect::<Vec<_>>())),
        "fill" => {
            // A line for each row: it is durable before the next line is read.
            for (key, line) in (0_i64..).zip(std::io::stdin().lines()) {
                line.unwrap();
                compute(&store, &[key]);
                store.flush_local().unwrap();
                println!("kept {key}");
            }
        }
        other => panic!("{other}"),
    }
}

struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    fn start(work: &str, url: &str, near: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "work_of_a_process", "--nocapture"])
            .env(WORK, format!("{work}|{url}|{}", near.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (output, input) = (child.stdout.take().unwrap(), child.stdin.take());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Self { child, input, lines }
    }

    /// Waits for a line that begins so.
    fn line(&self, start: &str) -> String {
        loop {
            let line = self.lines.recv().expect("the process goes on");
            // The name of the test may be before it.
            if let Some(at) = line.find(start) {
                return line[at + start.len()..].trim().to_owned();
            }
        }
    }

    /// Computes the next row.
    fn step(&mut self) {
        writeln!(self.input.as_mut().unwrap()).unwrap();
        self.line("kept ");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn processes_of_one_machine_receive_each_file_once() {
    let server = Server::start();
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let store = open(&server.url("p"), one.path());
    compute(&store, &(0..100).collect::<Vec<_>>());
    store.flush().unwrap();
    let before = server.counts().gets;
    server.fail(|faults| faults.latency = Duration::from_millis(30));
    let readers: Vec<_> = (0..4).map(|_| Process::start("read", &server.url("p"), other.path())).collect();
    for reader in &readers {
        assert_eq!(reader.line("found "), "100");
    }
    assert_eq!(server.counts().gets - before, 2, "change 0 and the segment");
}

#[test]
fn rows_of_a_process_that_was_killed_while_the_store_was_away_are_sent_by_the_next_one() {
    let server = Server::start();
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut filler = Process::start("fill", &server.url("p"), one.path());
    filler.step();
    server.fail(|faults| faults.is_away = true);
    (0..5).for_each(|_| filler.step());
    // Without a chance to do anything.
    filler.child.kill().unwrap();
    drop(filler);
    server.fail(|faults| faults.is_away = false);
    let keys: Vec<i64> = (0..6).collect();
    assert_eq!(found(&open(&server.url("p"), other.path()), &keys), 1);
    let store = open(&server.url("p"), one.path());
    assert_eq!(found(&store, &keys), 6, "they are found before they are sent");
    store.flush().unwrap();
    assert_eq!(store.stats().traffic.waiting_files, 0);
    assert_eq!(found(&open(&server.url("p"), tempfile::tempdir().unwrap().path()), &keys), 6);
}

#[test]
fn a_process_that_is_killed_while_it_receives_a_file_leaves_nothing_in_the_way() {
    let server = Server::start();
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let keys: Vec<i64> = (0..100).collect();
    let store = open(&server.url("p"), one.path());
    compute(&store, &keys);
    store.flush().unwrap();
    server.fail_next(Operation::Get, "/seg-", Fault::Late(Duration::from_mins(10)));
    let reader = Process::start("read", &server.url("p"), other.path());
    while server.planned() > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(reader);
    assert_eq!(found(&open(&server.url("p"), other.path()), &keys), 100);
}
