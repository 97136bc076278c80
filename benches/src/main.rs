//! `cargo xtask bench --quick`: how fast rows are read and written, against the limit of the machine measured in
//! the same run, so that the figures are ratios and not times.
//!
//! | figure | against |
//! |---|---|
//! | `w1.random_read.vs_raw_gather` | a copy loop over a memory map of the same rows that knows where they are |
//! | `w1.fill.vs_raw_write_fsync` | writing the same bytes to a file, in order, and syncing it |
//!
//! and the same for `w2`. Above 1 is faster than the limit.

mod fill;
mod machine;
mod read;
mod report;
mod workload;

use workload::{W1, W2};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut report = report::Report::new();
    tch::set_num_threads(1);
    fill::measure::<W1>(&mut report)?;
    fill::measure::<W2>(&mut report)?;
    report.write()?;
    Ok(())
}
