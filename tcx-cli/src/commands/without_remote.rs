//! `tcx push`, `pull` and `sync` in a build without object stores.

use crate::args::Copying;
use crate::console::output::Output;
use crate::failure::{Failure, Result, Verdict};

pub(super) fn push(_: &Copying, _: &Output) -> Result<Verdict> {
    Err(not_built())
}

pub(super) fn pull(_: &Copying, _: &Output) -> Result<Verdict> {
    Err(not_built())
}

pub(super) fn sync(_: &Copying, _: &Output) -> Result<Verdict> {
    Err(not_built())
}

fn not_built() -> Failure {
    Failure::usage(
        "this `tcx` was built without object stores; install it again with them: \
         from the registry with `cargo install --locked tcx-cli --features remote`, \
         from a git repository with `cargo install --locked --git URL tcx-cli --features remote`, \
         from a clone with `cargo install --locked --path tcx-cli --features remote`",
    )
}
