//! The table of `tcx ls`: one line for each module, in a directory and in an object store.

use std::io::{self, Write};

use serde::Serialize;

use crate::console::output::{Output, Report, Table};
use crate::failure::{Failure, Result, Unreadable, Verdict};

/// What is listed of a module.
pub(super) trait Listed: Serialize {
    const HEADINGS: &'static [&'static str];

    fn bytes(&self) -> u64;

    /// The cells below the headings.
    fn cells(&self) -> Vec<String>;
}

#[derive(Debug, Serialize)]
struct Listing<M> {
    modules: Vec<M>,
    bytes: u64,
    /// Modules that cannot be read.
    unreadable: Vec<Unreadable>,
}

/// Lists these modules.
///
/// # Errors
///
/// Returns an error if a module cannot be read, after the others were printed.
pub(super) fn list<M: Listed>(
    names: Vec<String>,
    read: impl Fn(&str) -> Result<M>,
    output: &Output,
) -> Result<Verdict> {
    let (mut modules, mut unreadable) = (Vec::new(), Vec::new());
    for name in names {
        match read(&name) {
            Ok(module) => modules.push(module),
            Err(failure) => unreadable.push(Unreadable::new(name, failure)),
        }
    }
    let bytes = modules.iter().map(M::bytes).sum();
    let listing = Listing { modules, bytes, unreadable };
    output.show(&listing)?;
    listing.verdict()
}

impl<M> Listing<M> {
    fn verdict(&self) -> Result<Verdict> {
        match &self.unreadable[..] {
            [] => Ok(Verdict::Good),
            unreadable @ [first, ..] => {
                let errors: Vec<_> =
                    unreadable.iter().map(|own| format!("{}: {}", own.module, own.error)).collect();
                Err(Failure::new(first.code, errors.join("\n")))
            }
        }
    }
}

impl<M: Listed> Report for Listing<M> {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        // All of them are unreadable, which an error reports.
        if self.modules.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(M::HEADINGS);
        self.modules.iter().for_each(|module| table.line(module.cells()));
        table.write(to)
    }
}
