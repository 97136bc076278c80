//! The commands, one file each.

mod about;
mod coverage;
mod diff;
mod export;
mod gc;
mod import;
mod in_store;
mod info;
mod jobs;
mod listing;
mod ls;
mod merge;
mod pack;
mod prune;
#[cfg(feature = "remote")]
mod remote;
#[cfg(not(feature = "remote"))]
#[path = "without_remote.rs"]
mod remote;
mod report;
mod rm;
mod rows;
mod shell;
#[cfg(feature = "sql")]
mod sql;
#[cfg(not(feature = "sql"))]
#[path = "without_sql.rs"]
mod sql;
mod stats;
mod top;
mod unused;
mod verify;
mod work;

use std::path::{Path, PathBuf};

use tcx_store::url_scheme;

use crate::args::Command;
use crate::cache::destination::Destination;
use crate::cache::store;
use crate::console::output::Output;
use crate::failure::{Result, Verdict};
use crate::formats::draft;

pub(crate) fn run(mut command: Command, output: &Output) -> Result<Verdict> {
    check_targets(&command)?;
    let named = match &command {
        Command::Report { modules, .. } | Command::Stats { modules, .. } => modules.dir.clone(),
        _ => PathBuf::new(),
    };
    bring(&mut command)?;
    match command {
        Command::Ls { dir } => ls::run(&dir, output),
        Command::Info(module) => info::run(&module, output),
        Command::Head { module, rows } => rows::head(&module, rows, output),
        Command::Show { module, id, view } => rows::show(&module, &id, view, output),
        Command::Sql { dir, query } => sql::run(&dir, &query, output),
        Command::Stats { modules, prices } => stats::run((&modules, &named), prices, output),
        Command::Coverage { module, ids, view, missing_to } => {
            coverage::run(&module, &ids, view, missing_to.as_deref(), output)
        }
        Command::Verify { modules, repair, deleting } => verify::run(modules, repair, deleting, output),
        Command::Compact(modules) => gc::compact(&modules, output),
        Command::Gc { modules, older_than, deleting } => gc::run(&modules, older_than, deleting, output),
        Command::Prune { modules, max_size, older_than, unused_for, deleting } => {
            let limits = prune::Limits { max_size, older_than, unused_for };
            prune::run(&modules, &limits, deleting, output)
        }
        Command::Rm { module, id, prefix, deleting } => {
            let part = rm::Part { ids: id, prefixes: prefix };
            rm::run(&module, &part, deleting, output)
        }
        Command::Export { module, to, format, fields } => {
            export::run(&module, &to, &export::Choice { fields, format }, output)
        }
        Command::Import { module, from, revive } => import::run(&module, &from, revive, output),
        Command::Pack { module, to } => pack::pack(&module, &to, output),
        Command::Unpack { dir, from, revive, create, separate, dry_run } => {
            let target = pack::Target { cache: &dir, create, separate };
            pack::unpack(&target, &from, merge::How { revive, dry_run }, output)
        }
        Command::Merge { a, b, module, only, revive, create, dry_run } => {
            let module = module.or(only);
            let from = merge::Source { cache: &b, module: module.as_deref() };
            merge::run(&a, &from, create, merge::How { revive, dry_run }, output)
        }
        Command::Diff { a, b, module, only } => diff::run(&a, &b, module.or(only).as_deref(), output),
        Command::Push(copying) => remote::push(&copying, output),
        Command::Pull(copying) => remote::pull(&copying, output),
        Command::Sync(copying) => remote::sync(&copying, output),
        Command::Report { modules, to, sample, color_by } => {
            report::run(&modules, &to, &report::Drawing { place: named, sample, color_by }, output)
        }
        Command::Top { dir, every } => top::run(&dir, every, output),
        Command::Jobs { modules, every, prices } => {
            jobs::run((&modules.dir, modules.module.as_deref()), every, prices, output)
        }
        Command::Work(work) => work::run(&work, output),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man { to } => shell::man(to.as_deref()),
    }
}

/// Makes sure, before anything is received from a URL, that a command can write what it reads.
fn check_targets(command: &Command) -> Result<()> {
    match command {
        Command::Export { module, to, .. } | Command::Pack { module, to } if is_url(&module.dir) => {
            draft::check_absent(to)
        }
        Command::Report { modules, to, .. } if is_url(&modules.dir) => draft::check_absent(to),
        Command::Merge { a, b, create, .. } if is_url(b) => Destination::at(a, *create).map(drop),
        _ => Ok(()),
    }
}

fn is_url(dir: &Path) -> bool {
    url_scheme(dir).is_some()
}

/// For commands that only read: replaces URLs by directories of this machine with what they read.
fn bring(command: &mut Command) -> Result<()> {
    match command {
        Command::Info(module)
        | Command::Head { module, .. }
        | Command::Show { module, .. }
        | Command::Coverage { module, .. }
        | Command::Export { module, .. }
        | Command::Pack { module, .. } => store::bring(&mut module.dir, Some(&module.module)),
        Command::Stats { modules, .. } | Command::Report { modules, .. } => {
            store::bring(&mut modules.dir, modules.module.as_deref())
        }
        Command::Merge { b, module, only, .. } => store::bring(b, module.as_deref().or(only.as_deref())),
        Command::Diff { a, b, module, only } => {
            let module = module.as_deref().or(only.as_deref());
            store::bring(a, module)?;
            store::bring(b, module)
        }
        _ => Ok(()),
    }
}
