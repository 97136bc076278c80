//! Rows that come and go: each round computes a block of rows anew, or invalidates it, while segments are joined and
//! removed.

use std::path::Path;
use std::time::Duration;

use tcx_store::{Keys, Options, Store};

use super::{refused, say};
use crate::churn::{BLOCKS, Event, block_ids, block_rows, values};
use crate::{Dice, options, spec};

pub(super) fn run(dir: &str, prefix: &str) -> ! {
    let options = Options { gc_grace: Duration::ZERO, ..options() };
    let store = Store::open(Path::new(dir), spec("224"), &options).unwrap_or_else(|error| refused(&error));
    let seed = prefix.bytes().fold(1, |seed: u64, byte| seed.wrapping_mul(257).wrapping_add(u64::from(byte)));
    let mut dice = Dice(seed | 1);
    for value in 1.. {
        let block = dice.roll(BLOCKS);
        let ids = block_ids(prefix, block);
        let keys = Keys::text(&ids, 0).unwrap();
        say(&Event::Killing(block).to_string());
        match dice.roll(3) {
            0 => store.invalidate(&keys).unwrap(),
            1 => store.invalidate_prefix(format!("{prefix}/{block}/").as_bytes()).unwrap(),
            _ => store.invalidate_where(|key| ids.iter().any(|id| id.as_bytes() == key)).unwrap(),
        }
        say(&Event::Dead(block).to_string());
        say(&Event::Computing(block, value).to_string());
        let mut rows = store.lookup(keys).unwrap();
        let missing = rows.distinct_missing_positions();
        assert_eq!(missing.len(), ids.len(), "what was invalidated is dead");
        store.insert(&mut rows, &missing, block_rows(&ids, value)).unwrap();
        store.flush().unwrap();
        say(&Event::Durable(block, value).to_string());
        match dice.roll(6) {
            0 => store.compact().unwrap(),
            1 => drop(store.collect(Duration::ZERO).unwrap()),
            _ => {}
        }
        assert_eq!(values(&store, &ids), vec![Some(value); ids.len()]);
        assert_eq!(store.stats().damaged_segments, 0);
    }
    unreachable!("the values do not end")
}
