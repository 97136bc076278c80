//! `tcx sql` where it is not built in.

use std::path::Path;

use crate::failure::{Failure, Result, Verdict};
use crate::output::Output;

pub(super) fn run(_: &Path, _: &str, _: &Output) -> Result<Verdict> {
    Err(Failure::usage(
        "this tcx is built without SQL, which takes minutes to build: in the clone of tcx, cargo install --locked --path tcx-cli --features sql",
    ))
}
