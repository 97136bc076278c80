//! Servers that others have written, and the tests that run on them: `tests/s3` is written by those who wrote the client.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::failure::{Failure, OnPath, Result};
use crate::process;
use crate::provision::environment;
use crate::tasks::skipped::LeftOut;
use crate::workspace::{Workspace, cargo};

/// Moto, and the client that makes a container in Azurite.
const PACKAGES: &str = include_str!("servers.txt");

/// Azure Blob Storage, in memory. For Node 20.
const AZURITE: &str = "azurite@3.35.0";

/// The account of Azurite and its key, which are the same for everyone.
const ACCOUNT: [&str; 2] = [
    "devstoreaccount1",
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
];

/// A server starts within this time.
const STARTS_WITHIN: Duration = Duration::from_mins(1);

/// The bucket, or container.
const BUCKET: &str = "tcx";

/// A server that runs until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the tests on each server; one that cannot be installed is listed, and a failure where `TCX_REQUIRE` contains it.
pub(super) fn run_tests(workspace: &Workspace, left_out: &mut LeftOut) -> Result<()> {
    let place = workspace.root().join("target/remote-servers");
    let python = match environment::provide(&place.join("python"), PACKAGES, "servers of object stores") {
        Ok(python) => python,
        Err(why) => {
            left_out.leave_out("moto", &why.to_string())?;
            return left_out.leave_out("azurite", &why.to_string());
        }
    };
    moto(workspace, &python)?;
    match install_azurite(&place.join("azurite")) {
        Ok(program) => azurite(workspace, &python, &program)?,
        Err(why) => left_out.leave_out("azurite", &why.to_string())?,
    }
    // No machine has it, so `TCX_REQUIRE=all` does not ask for it.
    left_out.add("radosgw", "it needs a Ceph cluster, which is not started here")
}

/// Amazon S3 as Moto has it. It creates objects one after the other, but does not lock them: one machine writes at a time.
fn moto(workspace: &Workspace, python: &Path) -> Result<()> {
    let port = free_port()?;
    let mut server = Command::new(python);
    server.args(["-m", "moto.server", "--host", "127.0.0.1", "--port", &port.to_string()]);
    let _running = start(&mut server, port)?;
    let endpoint = format!("http://127.0.0.1:{port}");
    let make = "import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], method='PUT'))";
    let bucket = format!("{endpoint}/{BUCKET}");
    process::run(Command::new(python).args(["-c", make, &bucket]), "making a bucket")?;
    let settings = [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT", &endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    test(workspace, "moto", &format!("s3://{BUCKET}/prefix"), &settings)
}

fn install_azurite(place: &Path) -> Result<std::path::PathBuf> {
    let program = place.join("node_modules/azurite/dist/src/blob/main.js");
    if !program.is_file() {
        std::fs::create_dir_all(place).on("create the folder", place)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-save", "--prefix"]).arg(place).arg(AZURITE);
        process::run(&mut npm, "`npm install` of azurite")?;
    }
    Ok(program)
}

fn azurite(workspace: &Workspace, python: &Path, program: &Path) -> Result<()> {
    let (port, [account, key]) = (free_port()?, ACCOUNT);
    let mut server = Command::new("node");
    server.arg(program).args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
    server.args(["--inMemoryPersistence", "--skipApiVersionCheck", "--silent"]);
    let _running = start(&mut server, port)?;
    let endpoint = format!("http://127.0.0.1:{port}/{account}");
    let make = "import sys; from azure.storage.blob import ContainerClient; \
                ContainerClient(sys.argv[1], sys.argv[2], {'account_name': sys.argv[3], 'account_key': sys.argv[4]}).create_container()";
    process::run(
        Command::new(python).args(["-c", make, &endpoint, BUCKET, account, key]),
        "making a container",
    )?;
    let settings = [
        ("AZURE_STORAGE_ACCOUNT_NAME", account),
        ("AZURE_STORAGE_ACCOUNT_KEY", key),
        ("AZURE_STORAGE_ENDPOINT", &endpoint),
        ("AZURE_ALLOW_HTTP", "true"),
    ];
    test(workspace, "azurite", &format!("az://{BUCKET}/prefix"), &settings)
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    port.map(|address| address.port()).map_err(|error| Failure::new(format!("no port is free: {error}")))
}

/// Starts a server and waits until it answers.
fn start(server: &mut Command, port: u16) -> Result<Running> {
    let started = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut running = Running(started.map_err(|error| process::cannot_start(server, &error))?);
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let has_ended = running.0.try_wait().is_ok_and(|status| status.is_some());
        if has_ended || start.elapsed() > STARTS_WITHIN {
            return Err(Failure::new(format!("`{server:?}` does not answer")));
        }
        sleep(Duration::from_millis(100));
    }
    Ok(running)
}

fn test(workspace: &Workspace, name: &str, url: &str, settings: &[(&str, &str)]) -> Result<()> {
    let mut tests = cargo("test");
    tests.current_dir(workspace.root()).args(["--package", "tcx-remote", "--test", "servers"]);
    tests.args(["--", "--ignored", "--test-threads", "1"]);
    tests.env("TCX_TEST_STORE", url).envs(settings.iter().copied());
    process::run(&mut tests, &format!("`cargo test` of object stores on {name}"))
}
