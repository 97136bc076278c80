//! Several processes of one machine that share a near tier, and processes that are killed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::Duration;

use tcx_remote::{ClientOptions, Location, RemoteCache};
use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
use tcx_test_s3::{Fault, Operation, Server};

/// What a process is to do.
const WORK: &str = "TCX_TEST_WORK";

fn open(url: &str, near: &Path) -> Arc<Store> {
    open_limited(url, near, None)
}

fn open_limited(url: &str, near: &Path, near_bytes: Option<u64>) -> Arc<Store> {
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
    let cache = RemoteCache::new(url, near, client).unwrap().near_bytes(near_bytes);
    cache.open(spec, &Options::default()).unwrap()
}

fn compute(store: &Store, keys: &[i64]) {
    let mut rows = store.lookup(Keys::ints(keys.iter().copied(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    let values: Vec<u8> =
        missing.iter().flat_map(|position| keys[*position].to_le_bytes().repeat(1000)).collect();
    store.insert(&mut rows, &missing, vec![Column::dense(&values)]).unwrap();
}

/// The files of the near tier whose names begin so.
fn copies(near: &Path, start: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(near).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Another process may just remove it.
            found.extend(copies(&path, start));
        } else if path.file_name().unwrap().to_str().unwrap().starts_with(start)
            && path.components().any(|part| part.as_os_str() == "files")
        {
            found.push(path);
        }
    }
    found
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
    let [work, url, near, near_bytes] = work.split('|').collect::<Vec<_>>()[..] else { panic!("{work}") };
    let store = open_limited(url, Path::new(near), near_bytes.parse().ok());
    match work {
        "receive" => {
            while copies(Path::new(near), "seg-").is_empty() {
                sleep(Duration::from_millis(10));
            }
            println!("received {}", store.stats().traffic.bytes_received);
        }
        "read" => println!("found {}", found(&store, &(0..100).collect::<Vec<_>>())),
        "spill" => {
            assert_eq!(copies(Path::new(near), "seg-").len(), 2);
            drop(store);
            // Nothing has the copies open, and the rest of the disk is full.
            let mut rest = std::fs::File::create(Path::new(near).join("full")).unwrap();
            while rest.write_all(&[0; 4096]).is_ok() {}
            let other = open(&format!("{url}-other"), Path::new(near));
            compute(&other, &(0..60).collect::<Vec<_>>());
            other.flush_local().unwrap();
            println!("found {}", found(&other, &(0..60).collect::<Vec<_>>()));
        }
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
        Self::limited(work, url, near, None)
    }

    fn limited(work: &str, url: &str, near: &Path, near_bytes: Option<u64>) -> Self {
        let near_bytes = near_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        Self::run(Command::new(std::env::current_exe().unwrap()), work, url, near, &near_bytes)
    }

    /// One whose near tier is on a disk of its own, which is full.
    #[cfg(target_os = "linux")]
    fn on_a_full_disk(work: &str, url: &str, near: &Path) -> Self {
        let fill = "head -c 1000000 /dev/zero > \"$1/full\" 2>/dev/null;";
        Self::on_a_disk("256k", fill, work, url, near)
    }

    /// One whose near tier is on a disk of its own.
    #[cfg(target_os = "linux")]
    fn on_a_disk(size: &str, fill: &str, work: &str, url: &str, near: &Path) -> Self {
        let mount = format!("mount -t tmpfs -o size={size},mode=0755 tcx-full \"$1\"");
        let script = format!("{mount} && {{ {fill} shift; exec \"$0\" \"$@\"; }}");
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", &script]).arg(std::env::current_exe().unwrap()).arg(near);
        Self::run(command, work, url, near, "")
    }

    fn run(mut command: Command, work: &str, url: &str, near: &Path, near_bytes: &str) -> Self {
        let mut child = command
            .args(["--exact", "work_of_a_process", "--nocapture"])
            .env(WORK, format!("{work}|{url}|{}|{near_bytes}", near.display()))
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
    // It is durable, and sent in the background.
    while !server.keys().iter().any(|key| key.contains("/seg-")) {
        sleep(Duration::from_millis(5));
    }
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
        sleep(Duration::from_millis(5));
    }
    drop(reader);
    assert_eq!(found(&open(&server.url("p"), other.path()), &keys), 100);
}

/// A store with segments of these numbers of rows.
fn filled(server: &Server, segments: &[i64]) -> Vec<i64> {
    let near = tempfile::tempdir().unwrap();
    let store = open(&server.url("p"), near.path());
    let mut keys = Vec::new();
    for rows in segments {
        let more: Vec<i64> = (0..*rows).map(|row| keys.len() as i64 + row).collect();
        compute(&store, &more);
        store.flush().unwrap();
        keys.extend(more);
    }
    keys
}

#[test]
fn processes_of_one_machine_receive_a_large_file_once_while_they_read_it() {
    let server = Server::start();
    filled(&server, &[1000]);
    let near = tempfile::tempdir().unwrap();
    server.fail(|faults| faults.latency = Duration::from_millis(50));
    let receivers: Vec<_> =
        (0..3).map(|_| Process::start("receive", &server.url("p"), near.path())).collect();
    let received: u64 =
        receivers.iter().map(|process| process.line("received ").parse::<u64>().unwrap()).sum();
    let bytes = std::fs::metadata(&copies(near.path(), "seg-")[0]).unwrap().len();
    assert!(received < 2 * bytes, "{received} bytes of {bytes}");
}

#[test]
fn processes_that_race_for_the_budget_of_a_near_tier_do_not_exceed_it_and_find_all_rows() {
    let server = Server::start();
    let segments = [20; 5];
    let keys = filled(&server, &segments);
    let near = tempfile::tempdir().unwrap();
    let budget = 400_000;
    let readers: Vec<_> =
        (0..4).map(|_| Process::limited("read", &server.url("p"), near.path(), Some(budget))).collect();
    for reader in &readers {
        assert_eq!(reader.line("found "), keys.len().to_string());
    }
    let kept: u64 =
        copies(near.path(), "seg-").iter().map(|path| std::fs::metadata(path).unwrap().len()).sum();
    assert!(kept > 0 && kept <= budget, "{kept} bytes");
}

#[test]
fn a_process_that_is_killed_while_it_receives_a_file_leaves_the_budget_to_others() {
    let server = Server::start();
    filled(&server, &[1000]);
    let near = tempfile::tempdir().unwrap();
    server.fail(|faults| faults.bandwidth = 2 << 20);
    let budget = Some(9_000_000);
    let receiver = Process::limited("receive", &server.url("p"), near.path(), budget);
    while copies(near.path(), "get-").is_empty() {
        sleep(Duration::from_millis(5));
    }
    drop(receiver);
    server.fail(|faults| faults.bandwidth = 0);
    assert_eq!(copies(near.path(), "seg-").len(), 0);
    let next = Process::limited("receive", &server.url("p"), near.path(), budget);
    next.line("received ");
    assert_eq!((copies(near.path(), "seg-").len(), copies(near.path(), "get-").len()), (1, 0));
}

/// Whether a disk can be mounted; a test without is skipped.
#[cfg(target_os = "linux")]
fn can_mount() -> bool {
    let namespaces = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "tcx", "/mnt"]).status();
    let can_mount = namespaces.as_ref().is_ok_and(std::process::ExitStatus::success);
    if !can_mount {
        tcx_test_skips::skip("unshare", format!("a disk cannot be mounted: {namespaces:?}"));
    }
    can_mount
}

#[cfg(target_os = "linux")]
#[test]
fn copies_make_room_for_new_rows_on_a_full_disk() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    filled(&server, &[100, 100]);
    let near = tempfile::tempdir().unwrap();
    let filler = Process::on_a_disk("2m", "", "spill", &server.url("p"), near.path());
    assert_eq!(filler.line("found "), "60");
}

#[cfg(target_os = "linux")]
#[test]
fn rows_are_found_though_the_disk_of_the_near_tier_is_full() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let keys = filled(&server, &[60, 40]);
    let near = tempfile::tempdir().unwrap();
    let reader = Process::on_a_full_disk("read", &server.url("p"), near.path());
    assert_eq!(reader.line("found "), keys.len().to_string());
}
