//! `tcx prune`: removes the oldest rows, and caches of identities that are no longer used.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tcx_store::{Inspection, Options, SegmentFacts, SegmentState};

use super::in_store;
use super::unused::{self, Unused};
use crate::args::{Deleting, Modules};
use crate::cache;
use crate::cache::store::StoreCache;
use crate::console::ask::confirm;
use crate::console::output::{Output, Report};
use crate::failure::{Code, Failure, Result, Verdict};
use crate::text::human;

/// The bytes of an index run without rows, about.
const RUN_HEADER: u64 = 512;
/// How often a segment is rewritten at most.
const ATTEMPTS: usize = 4;

/// The limits to meet.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) max_size: Option<u64>,
    pub(super) older_than: Option<Duration>,
    pub(super) unused_for: Option<Duration>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Pruned {
    dry_run: bool,
    pub(super) bytes_before: u64,
    pub(super) bytes_after: u64,
    pub(super) modules: Vec<Module>,
    /// Caches removed as a whole because no program has used them.
    unused: Vec<Unused>,
}

#[derive(Debug, Serialize)]
pub(super) struct Module {
    module: String,
    /// Segments removed as a whole.
    pub(super) segments: usize,
    /// Segments rewritten with fewer rows.
    rewritten: usize,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// The bytes of the index that no row needed.
    index_bytes: u64,
    /// The segments removed to meet the size limit, not because they are reclaimable or too old.
    #[serde(skip)]
    evicted: Vec<String>,
    #[serde(skip)]
    trim: Option<Trim>,
}

/// The segment that is rewritten with as many rows as fit.
#[derive(Clone, Debug)]
struct Trim {
    segment: String,
    born: SystemTime,
    rows: u64,
}

/// What is removed, and what is left.
struct Plan {
    modules: Vec<Module>,
    left: u64,
    /// The last segment removed for the size, if none of its rows fits alone.
    whole: Option<String>,
}

pub(super) fn run(
    modules: &Modules,
    limits: &Limits,
    deleting: Deleting,
    output: &Output,
) -> Result<Verdict> {
    if let Some(store) = StoreCache::at(&modules.dir)? {
        return in_store::prune(&store, modules, limits, deleting, output);
    }
    let mut inspections = inspected(modules)?;
    let before = size(&inspections);
    let mut unused = match limits.unused_for {
        Some(age) => unused::take(&modules.dir, &mut inspections, age)?,
        None => Vec::new(),
    };
    let plan = plan(&inspections, size(&inspections), limits);
    if let Some(warning) = plan.warning(limits) {
        Output::note(&warning);
    }
    let mut after = plan.left;
    let of_unused = |size: fn(&Unused) -> u64| unused.iter().map(size).sum::<u64>();
    let freed = plan.modules.iter().map(|own| own.bytes + own.index_bytes).sum::<u64>();
    let freed = freed + of_unused(|own| own.bytes);
    if !deleting.dry_run {
        if !plan.modules.is_empty() || !unused.is_empty() {
            let rows = of_unused(|own| own.rows) + plan.modules.iter().map(|own| own.rows).sum::<u64>();
            let (freed, left) = (human::size(freed), human::size(plan.left));
            let action = match rows {
                0 => format!("remove {freed} that no row needs and leave {left}"),
                rows => format!("remove {} ({freed}) and leave {left}", human::counted(rows, "row")),
            };
            confirm(deleting.yes, &action)?;
            drop(inspections);
            let age = limits.unused_for.unwrap_or_default();
            unused = unused::remove(&modules.dir, unused, age)?;
            remove(modules, &plan, limits)?;
        }
        after = size(&left_over(modules, &unused)?);
    }
    output.show(&Pruned {
        dry_run: deleting.dry_run,
        bytes_before: before,
        bytes_after: after,
        modules: plan.modules,
        unused,
    })?;
    Ok(Verdict::Good)
}

fn inspected(modules: &Modules) -> Result<BTreeMap<String, Inspection>> {
    let names = cache::chosen(&modules.dir, modules.module.as_deref())?;
    names.into_iter().map(|name| Ok((name.clone(), cache::inspect(&modules.dir, &name)?))).collect()
}

/// What is left after these caches were removed: nothing, if one of them was named.
fn left_over(modules: &Modules, removed: &[Unused]) -> Result<BTreeMap<String, Inspection>> {
    let is_removed = |module: &String| removed.iter().any(|own| own.module == *module);
    if modules.module.as_ref().is_some_and(is_removed) { Ok(BTreeMap::new()) } else { inspected(modules) }
}

fn size(inspections: &BTreeMap<String, Inspection>) -> u64 {
    inspections.values().map(cache::bytes).sum()
}

/// What to remove, by module: what is reclaimable of the index, segments that are reclaimable or too old, and the oldest of all modules until the rest
/// meets the size limit. Of the last one, the rows that fit stay.
fn plan(inspections: &BTreeMap<String, Inspection>, before: u64, limits: &Limits) -> Plan {
    let oldest_kept = limits.older_than.and_then(|age| SystemTime::now().checked_sub(age));
    let is_old = |own: &SegmentFacts| oldest_kept.is_some_and(|oldest| own.born < oldest);
    if limits.max_size.is_none() && limits.older_than.is_none() {
        return Plan { modules: Vec::new(), left: before, whole: None };
    }
    let mut gone: BTreeMap<&str, Module> = BTreeMap::new();
    let (mut left, mut rest) = (before, Vec::new());
    for (name, inspection) in inspections {
        let goes = |own: &SegmentFacts| {
            own.state.is_reclaimable() || own.state == SegmentState::Served && is_old(own)
        };
        let all = inspection.other_files().run_bytes;
        let trimmed = inspection.trimmed_index_bytes(|own| !goes(own));
        // The run of a few rows is not worth a question.
        let index = if trimmed + RUN_HEADER < all { trimmed } else { all };
        let stale = all - index;
        if stale > 0 {
            left = left.saturating_sub(stale);
            gone.entry(name).or_insert_with(|| Module::new(name)).index_bytes = stale;
        }
        let rows: u64 = inspection.segments().filter(|own| !goes(own)).map(|own| own.rows).sum();
        // The segment with its share of the index, which is removed with it.
        let size = |own: &SegmentFacts| own.bytes + (index * own.rows).checked_div(rows).unwrap_or(0);
        for own in inspection.segments() {
            if goes(own) {
                left = left.saturating_sub(own.bytes);
                gone.entry(name).or_insert_with(|| Module::new(name)).take(own);
            } else if own.state == SegmentState::Served {
                rest.push((own, name, inspection, size(own)));
            }
        }
    }
    rest.sort_by(|a, b| (a.0.born, &a.0.name).cmp(&(b.0.born, &b.0.name)));
    let (mut whole, mut evicted) = (None, BTreeMap::<_, Vec<&str>>::new());
    for (own, name, inspection, size) in rest {
        let Some(max) = limits.max_size.filter(|max| left > *max) else { break };
        let names = evicted.entry(name).or_default();
        let said = inspection.removal_bytes(names);
        names.push(&own.name);
        // The changes that say so stay.
        left = (left + inspection.removal_bytes(names)).saturating_sub(size + said);
        let module = gone.entry(name).or_insert_with(|| Module::new(name));
        if let Some((rows, kept)) = fitting(inspection, own, size, max.saturating_sub(left)) {
            left += kept;
            module.shorten(own, rows);
            break;
        }
        module.take(own);
        module.evicted.push(own.name.clone());
        whole = (left < max).then(|| own.name.clone());
    }
    Plan { modules: gone.into_values().collect(), left, whole }
}

/// How many rows of a segment, which takes `size` bytes with its share of the index, fit in `room` bytes, and the bytes that they take;
/// `None` if none fits.
fn fitting(inspection: &Inspection, own: &SegmentFacts, size: u64, room: u64) -> Option<(u64, u64)> {
    let room = room.checked_sub(RUN_HEADER)?;
    let share = own.bytes as f64 / size.max(1) as f64;
    let rows = inspection.rows_within(&own.name, (room as f64 * share) as u64);
    // An estimate, as the sizes of rows may differ.
    let kept = (size as f64 * rows as f64 / own.rows.max(1) as f64) as u64 + RUN_HEADER;
    (0 < rows && rows < own.rows).then_some((rows, kept.min(room + RUN_HEADER)))
}

impl Plan {
    /// What to say before much more is removed than the limit demands.
    fn warning(&self, limits: &Limits) -> Option<String> {
        let (max, whole) = (limits.max_size?, self.whole.as_ref()?);
        (self.left < max / 10 * 9).then(|| {
            format!(
                "{} will be left, {} below --max-size: no row of the segment {whole} fits beside the newer segments",
                human::size(self.left),
                human::size(max - self.left)
            )
        })
    }
}

impl Module {
    pub(super) fn new(module: &str) -> Self {
        let module = module.to_owned();
        Self {
            module,
            segments: 0,
            rewritten: 0,
            rows: 0,
            bytes: 0,
            index_bytes: 0,
            evicted: Vec::new(),
            trim: None,
        }
    }

    fn take(&mut self, own: &SegmentFacts) {
        self.segments += 1;
        self.rows += if own.state == SegmentState::Served { own.rows } else { 0 };
        self.bytes += own.bytes;
    }

    /// The bytes of the segments that are to go and are still there. Never removes more live rows than the user has confirmed, even if others
    /// were removed in the meantime.
    ///
    /// # Errors
    ///
    /// Returns an error if the oldest segment is another one: it may have the rows of those that were to go, joined with others.
    fn confirmed(&self, modules: &Modules) -> Result<u64> {
        if self.evicted.is_empty() {
            return Ok(0);
        }
        let inspection = cache::inspect(&modules.dir, &self.module)?;
        let served = inspection.segments().filter(|own| own.state == SegmentState::Served);
        let mut served: Vec<_> = served.map(|own| (own.born, &own.name, own.bytes)).collect();
        served.sort_unstable();
        let is_confirmed = |(_, name, _): &&(_, &String, _)| self.evicted.contains(name);
        let (first, all) =
            (served.iter().take_while(is_confirmed).count(), served.iter().filter(is_confirmed).count());
        if first < all || all == 0 {
            let changed = format!(
                "the segments of `{}` have changed since they were looked at, for example because a program has joined some: no more rows were \
                 removed; run the command again",
                self.module
            );
            return Err(Failure::new(Code::Unfit, changed));
        }
        Ok(served.iter().take(first).map(|(.., bytes)| bytes).sum())
    }

    /// Of a segment, `rows` rows stay.
    fn shorten(&mut self, own: &SegmentFacts, rows: u64) {
        let gone = own.rows - rows;
        self.rewritten += 1;
        self.rows += gone;
        self.bytes += (own.bytes as f64 * gone as f64 / own.rows as f64) as u64;
        self.trim = Some(Trim { segment: own.name.clone(), born: own.born, rows });
    }
}

/// Removes what is planned: whole segments first, which makes room for the one that is rewritten.
fn remove(modules: &Modules, plan: &Plan, limits: &Limits) -> Result<()> {
    let options = Options { time_to_live: limits.older_than, ..cache::options(false) };
    for planned in &plan.modules {
        let store = cache::open(&modules.dir, &planned.module, &options)?;
        store.collect(Duration::ZERO)?;
        let confirmed = planned.confirmed(modules)?;
        if confirmed > 0 {
            store.make_room(confirmed)?;
            store.collect(Duration::ZERO)?;
        }
        // Also removes the index of the removed segments.
        store.trim_index()?;
    }
    for planned in &plan.modules {
        if let (Some(first), Some(max)) = (&planned.trim, limits.max_size) {
            shorten(modules, &planned.module, first.clone(), max)?;
        }
    }
    Ok(())
}

/// Rewrites a segment with the rows that stay. Their number is estimated: as long as the cache is a little too large, it is rewritten
/// again with fewer.
fn shorten(modules: &Modules, module: &str, mut trim: Trim, max: u64) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let before = inspected(modules)?;
        let was_there = |name: &str| before[module].segments().any(|own| own.name == name);
        let store = cache::open(&modules.dir, module, &cache::options(false))?;
        let is_done = store.trim_segment(&trim.segment, trim.rows)?;
        // First the replaced segment, then its index.
        store.collect(Duration::ZERO)?;
        store.trim_index()?;
        drop(store);
        let inspections = inspected(modules)?;
        let excess = size(&inspections).saturating_sub(max);
        let is_own = |own: &&SegmentFacts| {
            let is_like_it = own.born == trim.born && own.rows == trim.rows;
            own.state == SegmentState::Served && is_like_it && !was_there(&own.name)
        };
        let inspection = &inspections[module];
        let Some(own) = inspection.segments().find(is_own).filter(|_| is_done && excess > 0) else { break };
        // What other programs have added since is not removed.
        let room = own.bytes - excess.min(own.bytes / 10).min(own.bytes);
        let rows = inspection.rows_within(&own.name, room).min(own.rows - 1);
        if rows == 0 {
            break;
        }
        trim = Trim { segment: own.name.clone(), rows, ..trim };
    }
    Ok(())
}

impl Report for Pruned {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let did = if self.dry_run { "would remove" } else { "removed" };
        for Module { module, segments, rewritten, rows, bytes, index_bytes, .. } in &self.modules {
            let whole = (*segments > 0).then(|| human::counted(*segments as u64, "segment"));
            let part = (*rewritten > 0).then(|| "a part of one segment".to_owned());
            let parts: Vec<String> = [whole, part].into_iter().flatten().collect();
            let removed = (!parts.is_empty()).then(|| {
                let rows = human::counted(*rows, "row");
                format!("{rows}, {}, {}", parts.join(" and "), human::size(*bytes))
            });
            let index = (*index_bytes > 0).then(|| format!("{} of the index", human::size(*index_bytes)));
            let all: Vec<String> = [removed, index].into_iter().flatten().collect();
            writeln!(to, "{module}: {did} {}", all.join(", and "))?;
        }
        for Unused { module, rows, bytes, last_used, .. } in &self.unused {
            let rows = human::counted(*rows, "row");
            writeln!(to, "{module}: {did}, last used {last_used}, {rows}, {}", human::size(*bytes))?;
        }
        if self.modules.is_empty() && self.unused.is_empty() {
            writeln!(to, "nothing to remove")?;
        }
        writeln!(to, "{} → {}", human::size(self.bytes_before), human::size(self.bytes_after))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Spec, Store};

    use super::*;

    fn open(cache: &Path) -> Arc<Store> {
        let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
        let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
        Store::open(cache, spec, &Options::default()).unwrap()
    }

    fn add(store: &Store, key: i64) {
        let mut rows = store.lookup(Keys::ints([key], 0)).unwrap();
        store.insert(&mut rows, &[0], vec![Column::dense(&[7])]).unwrap();
        store.flush().unwrap();
    }

    #[test]
    fn what_was_joined_since_the_plan_is_not_removed_for_what_was_confirmed() {
        let dir = tempfile::tempdir().unwrap();
        let modules = Modules { dir: dir.path().to_owned(), module: None };
        let store = open(dir.path());
        add(&store, 1);
        let inspection = Inspection::open(&dir.path().join("m_v1")).unwrap();
        let mut planned = Module::new("m_v1");
        let oldest = inspection.segments().next().unwrap();
        planned.evicted.push(oldest.name.clone());
        add(&store, 2);
        assert_eq!(planned.confirmed(&modules).unwrap(), oldest.bytes);
        store.compact().unwrap();
        assert_eq!(planned.confirmed(&modules).unwrap_err().code, Code::Unfit);
    }
}
