//! `tcx ls`, `compact`, `gc` and `prune` of a cache in an object store: from listings, and through stores that are opened there.

use std::time::Duration;

use super::gc::{Collected, Collection, Compacted, Joined};
use super::listing::{Listed, list};
use super::ls;
use super::prune::{Limits, Module as Pruning, Pruned};
use crate::args::{Deleting, Modules};
use crate::cache;
use crate::cache::store::StoreCache;
use crate::console::ask::confirm;
use crate::console::output::Output;
use crate::failure::{Failure, Result, Verdict};
use crate::text::human;
use serde::Serialize;
use tcx_store::Options;

/// Machines list a store seldom, and read files that were replaced until then.
const STAY: Duration = Duration::from_hours(1);

/// So often room is made, as the changes that say what goes take some of it.
const ATTEMPTS: usize = 4;

/// What a listing and change 0 say.
#[derive(Debug, Serialize)]
struct Module {
    module: String,
    id: String,
    bytes: u64,
    segments: usize,
    changes: usize,
    ids: &'static str,
    schema: String,
    weights: Option<String>,
}

pub(super) fn ls(store: &StoreCache, output: &Output) -> Result<Verdict> {
    list(store.chosen(None)?, |name| Module::read(store, name), output)
}

impl Module {
    fn read(store: &StoreCache, module: &str) -> Result<Self> {
        let (spec, files) = (store.spec(module)?, store.files(module)?);
        let count = |prefix| files.iter().filter(|own| own.name.starts_with(prefix)).count();
        Ok(Self {
            id: spec.module_id().to_owned(),
            bytes: files.iter().map(|own| own.bytes).sum(),
            segments: count("seg-"),
            changes: count("change-"),
            ids: spec.key_type().name(),
            schema: ls::schema(&spec),
            weights: ls::weights(&spec),
            module: module.to_owned(),
        })
    }
}

impl Listed for Module {
    const HEADINGS: &'static [&'static str] =
        &["MODULE", ">BYTES", ">SEGMENTS", ">CHANGES", "WEIGHTS", "SCHEMA"];

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn cells(&self) -> Vec<String> {
        vec![
            ls::indented(&self.module),
            human::size(self.bytes),
            human::count(self.segments as u64),
            human::count(self.changes as u64),
            ls::shortened(self.weights.as_deref()),
            self.schema.clone(),
        ]
    }
}

pub(super) fn compact(store: &StoreCache, modules: &Modules, output: &Output) -> Result<Verdict> {
    let mut done = Vec::new();
    for module in store.chosen(modules.module.as_deref())? {
        let opened = store.open(&module, &cache::options(false))?;
        let before = opened.stats().segments;
        opened.compact()?;
        // Joined segments that wait on this machine join nothing for others.
        opened.flush()?;
        let after = opened.stats().segments;
        done.push(Joined {
            module,
            segments_before: before as usize,
            segments_after: after as usize,
            reclaimable_bytes: None,
        });
    }
    output.show(&Compacted { modules: done })?;
    Ok(Verdict::Good)
}

pub(super) fn gc(
    store: &StoreCache,
    modules: &Modules,
    age: Option<Duration>,
    deleting: Deleting,
    output: &Output,
) -> Result<Verdict> {
    if deleting.dry_run {
        return Err(Failure::usage(
            "--dry-run works on directories: what can go from an object store is known when it is removed",
        ));
    }
    let names = store.chosen(modules.module.as_deref())?;
    let count = human::counted(names.len() as u64, "module");
    confirm(deleting.yes, &format!("remove the replaced files of {count} from the store"))?;
    let mut done = Vec::new();
    for module in names {
        let before = bytes(store, &module)?;
        let files = store.open(&module, &cache::options(false))?.collect(age.unwrap_or(STAY))?;
        let bytes = before.saturating_sub(bytes(store, &module)?);
        done.push(Collection { module, files, bytes });
    }
    output.show(&Collected { dry_run: false, modules: done, leftovers: Vec::new() })?;
    Ok(Verdict::Good)
}

/// Removes whole segments: those with rows that are too old, and the oldest ones until those of the module meet the size limit.
pub(super) fn prune(
    store: &StoreCache,
    modules: &Modules,
    limits: &Limits,
    deleting: Deleting,
    output: &Output,
) -> Result<Verdict> {
    check_prune(limits, modules.module.is_some(), deleting)?;
    let names = store.chosen(modules.module.as_deref())?;
    let count = human::counted(names.len() as u64, "module");
    let old = limits.older_than.map(|age| format!("rows older than {}", human::duration(age)));
    let large = limits.max_size.map(|size| format!("the oldest rows until {} are left", human::size(size)));
    let what: Vec<String> = old.into_iter().chain(large).collect();
    confirm(deleting.yes, &format!("remove {} from the store, of {count}", what.join(", and ")))?;
    let mut pruned = Pruned::default();
    for name in names {
        pruned.bytes_before += bytes(store, &name)?;
        let module = prune_module(store, &name, limits)?;
        pruned.bytes_after += bytes(store, &name)?;
        pruned.modules.extend(Some(module).filter(|own| own.segments > 0));
    }
    output.show(&pruned)?;
    Ok(Verdict::Good)
}

fn check_prune(limits: &Limits, is_named: bool, deleting: Deleting) -> Result<()> {
    if deleting.dry_run {
        let message =
            "--dry-run works on directories: what goes from an object store is known when it is removed";
        return Err(Failure::usage(message));
    }
    if limits.unused_for.is_some() {
        return Err(Failure::usage(
            "--unused-for works on directories: machines that use an object store do not record that in it; remove the prefix \
             of a cache with the tools of the provider",
        ));
    }
    if limits.max_size.is_some() && !is_named {
        return Err(Failure::usage(
            "name the module that --max-size limits: in an object store, each is pruned by itself",
        ));
    }
    Ok(())
}

fn prune_module(store: &StoreCache, name: &str, limits: &Limits) -> Result<Pruning> {
    // A store with a time to live does not count the rows that are too old.
    let before = store.open(name, &cache::options(false))?.stats();
    let options = Options { time_to_live: limits.older_than, ..cache::options(false) };
    let opened = store.open(name, &options)?;
    opened.collect(STAY)?;
    for _ in 0..ATTEMPTS {
        let excess = limits.max_size.map_or(0, |max| opened.stats().bytes.saturating_sub(max));
        if excess == 0 {
            break;
        }
        opened.make_room(excess)?;
    }
    let after = opened.stats();
    let mut module = Pruning::new(name);
    module.segments = before.segments.saturating_sub(after.segments) as usize;
    module.rows = before.rows.saturating_sub(after.rows);
    module.bytes = before.bytes.saturating_sub(after.bytes);
    Ok(module)
}

fn bytes(store: &StoreCache, module: &str) -> Result<u64> {
    Ok(store.files(module)?.iter().map(|own| own.bytes).sum())
}
