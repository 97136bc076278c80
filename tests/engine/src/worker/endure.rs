//! A process that goes on computing, whatever the disk does.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use tcx_store::{ErrorKind, Options, ReadMode, Store};

use super::refused;
use crate::endure::BATCH;
use crate::{get_or_compute, options, spec};

/// Says `durable N` for each batch whose flush says so, and `failed N: WHY` for each that is not.
pub(super) fn run(dir: &str, prefix: &str, read_mode: ReadMode) {
    let said = File::from(std::io::stdout().as_fd().try_clone_to_owned().unwrap());
    let say = |line: &str| write_all(&said, &format!("{line}\n"));
    let options = Options { read_mode, ..options() };
    let store = Store::open(Path::new(dir), spec("224"), &options).unwrap_or_else(|error| refused(&error));
    for batch in 0.. {
        let ids: Vec<String> = (0..BATCH).map(|row| format!("{prefix}{batch}/{row}")).collect();
        // Changes are written too, now or later; a flush reports those that cannot be.
        if batch % 7 == 3 {
            let _ = store.invalidate_prefix(format!("{prefix}no such id").as_bytes());
        }
        // Found or computed, every row is right.
        get_or_compute(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>());
        match store.flush() {
            Ok(()) => say(&format!("durable {batch}")),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                say(&format!("failed {batch}: {}", format!("{error:#}").replace('\n', " ")));
            }
        }
        // A small disk must not be full before the trial fills it.
        if batch % 8 == 5 {
            let _ = store.collect(Duration::ZERO);
        }
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(store.stats().damaged_segments, 0);
    }
}

/// Until it is said: this may fail too.
fn write_all(mut file: &File, line: &str) {
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
