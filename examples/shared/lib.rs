//! What the larger examples share. The examples themselves are programs that a user of tcx would write; README.md orders them.

mod args;
mod cores;
mod epoch;
mod place;
mod progress;
mod table;

pub use args::positive;
pub use cores::{cores, on_all_cores};
pub use epoch::{Epoch, INTERRUPTED, Malformed, Stopped, epoch, stop_on_ctrl_c};
pub use place::{Kind, Place};
pub use table::{Line, Table, first_name};
