//! `tcx push`, `pull` and `sync` in a build without object stores.

use crate::args::Copying;
use crate::cache::store::not_built;
use crate::console::output::Output;
use crate::failure::{Result, Verdict};

pub(super) fn push(_: &Copying, _: &Output) -> Result<Verdict> {
    Err(not_built())
}

pub(super) fn pull(_: &Copying, _: &Output) -> Result<Verdict> {
    Err(not_built())
}

pub(super) fn sync(_: &Copying, _: &Output) -> Result<Verdict> {
    Err(not_built())
}
