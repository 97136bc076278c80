//! A scheduler and two executors, each a process of its own, answer a query over a cache in an object store.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tcx_remote::{Bucket, ClientOptions, Location, push};
use tcx_store::{Column, ColumnType, DType, Field, Identity, KeyType, Keys, Options, Spec, Store};
use tcx_test_s3::Server;

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(server: &Server, near: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tcx-ballista"));
    command.env("TCX_NEAR_TIER", near);
    for (name, value) in server.settings() {
        command.env(name.to_uppercase(), value);
    }
    command
}

/// Ports that are free, two in a row.
fn ports() -> u16 {
    loop {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = first.local_addr().expect("it is bound").port();
        if port < u16::MAX && TcpListener::bind((Ipv4Addr::LOCALHOST, port + 1)).is_ok() {
            return port;
        }
    }
}

fn wait_for(port: u16) {
    let start = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing listens on port {port}");
        sleep(Duration::from_millis(50));
    }
}

const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "vector", column: ColumnType::Dense { dtype: DType::F32, shape: &[256] } },
    Field { name: "label", column: ColumnType::Dense { dtype: DType::I64, shape: &[] } },
]);
const SEGMENTS: i64 = 6;
const ROWS: i64 = 2000;

/// A module of several segments; the label of a row is its id modulo three.
fn fill(server: &Server) {
    let dir = tempfile::tempdir().expect("there is a temporary directory");
    let spec = Spec::new("resnet50_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new());
    let store =
        Store::open(dir.path(), spec.expect("it can be stored"), &Options::default()).expect("it opens");
    for segment in 0..SEGMENTS {
        let ids = segment * ROWS..(segment + 1) * ROWS;
        let mut rows = store.lookup(Keys::ints(ids.clone(), 0)).expect("it can be read");
        let vectors: Vec<u8> =
            ids.clone().flat_map(|id| vec![id as f32; 256]).flat_map(f32::to_le_bytes).collect();
        let labels: Vec<u8> = ids.flat_map(|id| (id % 3).to_le_bytes()).collect();
        let all: Vec<usize> = (0..rows.len()).collect();
        store
            .insert(&mut rows, &all, vec![Column::dense(&vectors), Column::dense(&labels)])
            .expect("they fit");
        store.flush().expect("it can be written");
    }
    let client = server.settings().into_iter();
    let client = client.fold(ClientOptions::default(), |client, (name, value)| client.set(name, value));
    let Ok(Location::Store(url)) = Location::parse(&server.url("p")) else { panic!("it is a URL") };
    let bucket = Bucket::new(url, client).expect("its settings are complete");
    push(dir.path(), &bucket, "resnet50_v1", &mut |_, _| {}).expect("it can be sent");
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn two_executors_answer_a_query_over_a_cache_in_an_object_store() {
    let (server, dir) = (Server::start(), tempfile::tempdir().expect("there is a temporary directory"));
    fill(&server);
    let near = |name: &str| dir.path().join(name);
    let port = ports();
    let scheduler = format!("127.0.0.1:{port}");
    let mut command_of = command(&server, &near("scheduler"));
    let _scheduler =
        Process(command_of.args(["scheduler", "--port", &port.to_string()]).spawn().expect("it starts"));
    wait_for(port);
    let logs = [near("log 1"), near("log 2")];
    let _executors = logs.each_ref().map(|log| {
        let (port, work) = (ports(), log.with_extension("work"));
        let mut executor = command(&server, &near("executors"));
        executor
            .args(["executor", "--scheduler", &scheduler, "--port", &port.to_string(), "--work-dir"])
            .arg(work);
        executor.env("RUST_LOG", "ballista_executor=info").stderr(File::create(log).expect("it can be made"));
        let executor = Process(executor.spawn().expect("it starts"));
        wait_for(port + 1);
        executor
    });
    let ask = |sql: &str| {
        let mut query = command(&server, &near("client"));
        query.args(["query", "--scheduler", &scheduler, &server.url("p"), sql]);
        query.output().expect("it ends")
    };
    let sql = "select label, count(*) as rows, max(vector[1]) as most from resnet50_v1 where label > 0 group by label order by label";
    let answer = ask(sql);
    let (stdout, all) = (String::from_utf8_lossy(&answer.stdout).into_owned(), shown(&answer));
    assert!(answer.status.success(), "{all}");
    let words: Vec<&str> = stdout.split_whitespace().filter(|word| *word != "|").collect();
    let at = words.iter().position(|word| *word == "1").unwrap_or_else(|| panic!("{all}"));
    assert_eq!(words[at..at + 6], ["1", "4000", "11998.0", "2", "4000", "11999.0"], "{all}");
    for log in &logs {
        let log = fs::read_to_string(log).expect("it can be read");
        assert!(log.contains("Execute task"), "an executor has executed nothing: {log}");
    }
}
