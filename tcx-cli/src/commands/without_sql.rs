//! `tcx sql` in a build without SQL.

use std::path::Path;

use crate::console::output::Output;
use crate::failure::{Failure, Result, Verdict};

pub(super) fn run(_: &Path, _: &str, _: &Output) -> Result<Verdict> {
    Err(Failure::usage(
        "this `tcx` was built without SQL; install it again with SQL, which takes minutes: \
         from the registry with `cargo install --locked tcx-cli --features sql`, \
         from a git repository with `cargo install --locked --git URL tcx-cli --features sql`, \
         from a clone with `cargo install --locked --path tcx-cli --features sql`",
    ))
}
