//! `tcx sql` in a build without SQL.

use std::path::Path;

use crate::console::output::Output;
use crate::failure::{Failure, Result, Verdict};

pub(super) fn run(_: &Path, _: &str, _: &Output) -> Result<Verdict> {
    Err(Failure::usage(
        "this `tcx` was built without SQL; install it from a clone with `cargo install --locked --path tcx-cli --features sql` \
         (takes minutes)",
    ))
}
