//! `tcx sql` where it is not built in.

use std::path::Path;

use crate::console::output::Output;
use crate::failure::{Failure, Result, Verdict};

pub(super) fn run(_: &Path, _: &str, _: &Output) -> Result<Verdict> {
    Err(Failure::usage(
        "this tcx is built without SQL, which takes minutes to build: in the clone of tcx, cargo install --locked --path tcx-cli --features sql",
    ))
}
