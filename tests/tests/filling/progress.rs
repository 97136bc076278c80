//! A program that uses tcx prints nothing on a terminal, unless it enables progress or calls `warm`.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// What `shown` prints on a stderr that is a terminal.
fn printed(setting: &str, work: &str) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let terminal = OpenOptions::new().read(true).write(true).open(name).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_shown"))
        .arg(dir.path())
        .args([setting, work])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(terminal)
        .spawn()
        .unwrap();
    // Reading a terminal that no process has open any more is an error: everything was read.
    let (mut printed, mut master) = (Vec::new(), File::from(master));
    let _ = master.read_to_end(&mut printed);
    assert!(child.wait().unwrap().success());
    String::from_utf8_lossy(&printed).into_owned()
}

#[test]
fn nothing_is_printed_unless_it_is_asked_for_but_the_bar_of_warm() {
    let cases = [
        ("default", "epoch"),
        ("on", "epoch"),
        ("off", "epoch"),
        ("default", "warm"),
        ("on", "warm"),
        ("off", "warm"),
    ];
    let runs = cases.map(|(setting, work)| thread::spawn(move || printed(setting, work)));
    let [default_epoch, epoch, no_epoch, default_warm, warm, no_warm] = runs.map(|run| run.join().unwrap());
    let closing = "slow_v1: 0 hits, 4 computed, 0% hits; 4 rows, ";

    assert_eq!((default_epoch.as_str(), no_epoch.as_str()), ("", ""));
    assert!(epoch.contains("slow_v1: 4 computed, 0 hits, ") && epoch.contains(closing), "{epoch}");

    assert_eq!(no_warm, "");
    let has_bar = |printed: &str| printed.contains("slow_v1 ") && printed.contains("/4, ");
    assert!(has_bar(&default_warm) && !default_warm.contains(closing), "{default_warm}");
    assert!(has_bar(&warm) && warm.contains(closing), "{warm}");
}
