//! A process on a folder that is moved away and comes back: it goes on, whatever fails, and looks at what another such process
//! does.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tcx_store::{Error, ErrorKind, Keys, Options, Store};

use super::{refused, say};
use crate::churn::{BLOCKS, Event, block_ids, block_rows, try_look};
use crate::{Dice, options, spec};

/// Says its events as `churn` does, `failed WHY` and `refused WHY` for what could not be done, and `wrong WHAT` for a row of
/// a process whose events are in the file `other`. After a refusal it waits until the file `back` exists, and opens again.
pub(super) fn run(dir: &str, prefix: &str, other: &str, back: &str) -> ! {
    let mut store = open(dir);
    let mut dice = Dice(prefix.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte)));
    for value in 1.. {
        if let Err(error) = step(&store, prefix, dice.roll(BLOCKS), value) {
            let is_io = error.kind() == ErrorKind::Io;
            let why = format!("{error:#}").replace('\n', " ");
            say(&format!("{} {why}", if is_io { "failed" } else { "refused" }));
            if !is_io {
                drop(store);
                wait_for(back.as_ref());
                store = open(dir);
            }
        }
        look(&store, other.as_ref(), dice.roll(BLOCKS));
        std::thread::sleep(Duration::from_millis(3));
    }
    unreachable!("the values do not end")
}

fn open(dir: &str) -> Arc<Store> {
    let options = Options { gc_grace: Duration::ZERO, ..options() };
    Store::open(Path::new(dir), spec("224"), &options).unwrap_or_else(|error| refused(&error))
}

fn wait_for(file: &Path) {
    while !file.exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Invalidates a block and computes it again. An error is one of the disk, or of a folder that is another's.
fn step(store: &Store, prefix: &str, block: usize, value: i64) -> Result<(), Error> {
    let ids = block_ids(prefix, block);
    let keys = Keys::text(&ids, 0)?;
    say(&Event::Killing(block).to_string());
    store.invalidate(&keys)?;
    say(&Event::Dead(block).to_string());
    say(&Event::Computing(block, value).to_string());
    let mut rows = store.lookup(keys)?;
    let missing = rows.distinct_missing_positions();
    assert_eq!(missing.len(), ids.len(), "invalidated rows are served");
    store.insert(&mut rows, &missing, block_rows(&ids, value))?;
    store.flush()?;
    say(&Event::Durable(block, value).to_string());
    Ok(())
}

/// Rows that are missing are another matter: this process may be cut off from them.
fn look(store: &Store, other: &Path, block: usize) {
    let said = || Event::parse_all(&fs::read_to_string(other).unwrap_or_default());
    let name = other.file_name().and_then(|name| name.to_str()).unwrap();
    if let Ok(findings) = try_look(store, name, block, said) {
        findings.wrong.iter().for_each(|what| say(&format!("wrong {what}")));
    }
}
