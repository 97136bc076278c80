//! From a store to a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tcx_store::Inspection;

use super::files::{Kind, change, kind};
use super::stage::{Busy, Stage};
use super::{Copied, LISTED_AT_MOST, changes, local, moving, remove_if_any};
use crate::bucket::{Bucket, Object};

/// Files in flight together; long ones are read in ranges that are in flight together as well.
const FILES_IN_FLIGHT: usize = 4;

/// Copies what a directory lacks of a module in a store. The files get their names once they are verified. Programs may use both sides. A
/// copy that was interrupted is continued by the next one.
///
/// `progress` gets the bytes that were received and those to receive.
///
/// # Errors
///
/// Returns an error of the kind `WouldBlock` while another process copies the module to this directory; of the kind `AlreadyExists` if
/// the directory has another cache of this name, if both sides have got changes since they were copied, or if rows were evicted on one side that
/// may have been joined with others on the other side; of the kind `InvalidData` if a change is damaged or missing; of the kind `NotFound` if the store has no such
/// module; and other ones if a side cannot be read or written. Damaged segments are left out instead.
pub fn pull(
    bucket: &Bucket,
    cache: &Path,
    module: &str,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> io::Result<Copied> {
    let stage = Stage::of(cache, module, &Busy::Refuse)?;
    let copied = pull_in(&stage, bucket, cache, module, Held::Here, progress)?;
    stage.remove();
    Ok(copied)
}

/// Where the rows of a directory are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// The directory may be the only place that has some of them.
    Here,
    /// All came from the store.
    InStore,
}

/// As [`pull`], with a stage that stays.
pub(super) fn pull_in(
    stage: &Stage,
    bucket: &Bucket,
    cache: &Path,
    module: &str,
    held: Held,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> io::Result<Copied> {
    let dir = cache.join(module);
    local::refuse_link(&dir)?;
    let pull = Pull { bucket, module, dir, held, stage: stage.dir().to_owned() };
    let mut copied = Copied::default();
    for pass in 0..LISTED_AT_MOST {
        if pull.pull_listed(pass == 0, &mut copied, progress)? {
            return Ok(copied);
        }
    }
    Err(moving(module))
}

/// Files that get no name.
#[derive(Default)]
struct Unsound {
    /// Each with the reason.
    files: Vec<(String, String)>,
    /// Those that are intact, and not of this module.
    foreign: Vec<String>,
}

struct Pull<'a> {
    bucket: &'a Bucket,
    module: &'a str,
    dir: PathBuf,
    held: Held,
    stage: PathBuf,
}

impl Pull<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.module)
    }

    /// One pass; `false` if an object has vanished.
    fn pull_listed(
        &self,
        is_first: bool,
        copied: &mut Copied,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> io::Result<bool> {
        // Segments first, then changes: what a segment counts on is in a listing that is made after it has its name. What a change
        // commits has its name before the change.
        let segments = self.bucket.list(self.module, None)?;
        let listed = self.bucket.list(self.module, None)?;
        let committed = self.bucket.list(self.module, None)?;
        let place = format!("{}/{}", self.bucket.url(), self.module);
        let there = changes::count(&place, local::changes(listed.iter().map(|object| &object.name)))?;
        if there == 0 {
            return Err(io::Error::new(ErrorKind::NotFound, format!("there is no module at {place}")));
        }
        let here = local::list(&self.dir)?;
        let known = changes::count(&self.dir.display().to_string(), local::changes(here.keys()))?;
        let lengths: BTreeMap<_, _> = listed.into_iter().map(|object| (object.name, object.bytes)).collect();
        changes::compare_lengths(self.module, known.min(there), &here, &lengths)?;
        changes::compare(self.module, known.min(there), |name| {
            Ok([local::read(&self.dir.join(name))?, self.read(name)?])
        })?;
        // All of them: a segment is verified beside the changes that it counts on.
        let wanted = (0..there).map(|number| (change(number), lengths[&change(number)]));
        let early: BTreeSet<String> = segments.iter().map(|object| object.name.clone()).collect();
        // Index runs are made again where they are used.
        let is_other = |name: &String| !matches!(kind(name), Some(Kind::Change(_) | Kind::Run) | None);
        let is_late = |own: &Object| kind(&own.name) == Some(Kind::Segment) && !early.contains(&own.name);
        let late = committed.into_iter().filter(is_late);
        let others = segments.into_iter().filter(|object| is_other(&object.name)).chain(late);
        let (present, missing): (Vec<_>, Vec<_>) =
            others.partition(|own| here.get(&own.name) == Some(&own.bytes));
        copied.present = present.len() as u64;
        let wanted = wanted.chain(missing.into_iter().map(|object| (object.name, object.bytes)));
        let mut wanted: BTreeMap<String, u64> = wanted.collect();
        self.keep_in_stage(&wanted, is_first)?;
        self.stage_known(known.min(there));
        // They say which segments are dead, and not worth to be received.
        let changes = wanted.iter().filter(|(name, _)| matches!(kind(name), Some(Kind::Change(_))));
        let changes = changes.map(|(name, bytes)| (name.clone(), *bytes)).collect();
        let sides =
            if self.fetch(changes, &mut |_, _| {})? { self.inspect(known) } else { return Ok(false) };
        // What the directory has joined with other segments would be collected there again.
        let is_unwanted = |name: &String| {
            // Of a mirror, what the store lacks is removed: also what was joined from these.
            let has_replaced = |here: &Inspection| self.held == Held::Here && here.has_replaced(name);
            sides.iter().flatten().any(|side| side.is_evicted(name))
                || sides[1].as_ref().is_some_and(has_replaced)
        };
        for name in wanted.keys().filter(|name| is_unwanted(name)) {
            remove_if_any(&self.stage.join(name))?;
        }
        wanted.retain(|name, _| !is_unwanted(name));
        let is_complete = self.fetch(wanted.into_iter().collect(), progress)?;
        if !is_complete {
            // They were joined: the next listing shows what took their place.
            return Ok(false);
        }
        let unsound = self.verify()?;
        (copied.left_out, copied.foreign) = (unsound.files, unsound.foreign);
        if self.held == Held::Here {
            self.check_evictions(known)?;
        }
        self.publish(known..there, &early, copied)?;
        Ok(true)
    }

    /// What is known of the module: by the changes that were received, and by those of the directory if there are any. What cannot be read
    /// is reported when it is verified.
    fn inspect(&self, known: u64) -> [Option<Inspection>; 2] {
        [Some(&self.stage), (known > 0).then_some(&self.dir)].map(|dir| Inspection::open(dir?).ok())
    }

    /// Makes sure that no rows are lost because they were joined on one side and others evicted on the other.
    ///
    /// # Errors
    ///
    /// Returns an error if there are such rows.
    fn check_evictions(&self, known: u64) -> io::Result<()> {
        let [Some(there), Some(here)] = &self.inspect(known) else { return Ok(()) };
        let lost = here.lost_by(there).into_iter().chain(there.lost_by(here)).next();
        lost.map_or(Ok(()), |segment| Err(changes::evicted_beside(self.module, &segment)))
    }

    /// Removes from the stage what this copy does not want. What an earlier one has left may be of another store, or of a prefix that was
    /// filled again: only segments are named by their contents.
    fn keep_in_stage(&self, wanted: &BTreeMap<String, u64>, is_first: bool) -> io::Result<()> {
        for name in local::list(&self.stage)?.into_keys() {
            let is_named_by_its_content = kind(&name) == Some(Kind::Segment);
            if !wanted.contains_key(&name) || is_first && !is_named_by_its_content {
                remove_if_any(&self.stage.join(&name))?;
            }
        }
        if !is_first {
            // The prefix may have been filled again since the last pass.
            let staged = local::changes(local::list(&self.stage)?.keys());
            for number in staged.iter().min().into_iter().chain(staged.iter().max()) {
                let name = change(*number);
                if local::read(&self.stage.join(&name))? != self.read(&name)? {
                    return Err(moving(self.module));
                }
            }
        }
        Ok(())
    }

    /// Takes the changes that both sides have from the directory. What is not taken is received, and so is what is damaged there.
    fn stage_known(&self, common: u64) {
        for name in (0..common).map(change) {
            let _ = fs::hard_link(self.dir.join(&name), self.stage.join(&name));
        }
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let gone = || {
            let what = format!("{}/{} has vanished", self.bucket.url(), self.key(name));
            io::Error::new(ErrorKind::NotFound, what)
        };
        self.bucket.read(&self.key(name), u64::MAX)?.ok_or_else(gone)
    }

    /// Reads these objects into the stage, but for those that are there. `false` if one has vanished.
    fn fetch(
        &self,
        wanted: Vec<(String, u64)>,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> io::Result<bool> {
        let staged = local::list(&self.stage)?;
        let missing: Vec<_> =
            wanted.into_iter().filter(|(name, bytes)| staged.get(name) != Some(bytes)).collect();
        let total = missing.iter().map(|(_, bytes)| bytes).sum();
        progress(0, total);
        let (left, received) = (Mutex::new(missing), Mutex::new((0, progress)));
        let (vanished, gives_up) = (AtomicBool::new(false), AtomicBool::new(false));
        let work = |worker: usize| -> io::Result<()> {
            while !gives_up.load(Ordering::Relaxed) {
                let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some((name, bytes)) = next else { break };
                if !self.fetch_one(&name, bytes, worker)? {
                    vanished.store(true, Ordering::Relaxed);
                }
                let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
                received.0 += bytes;
                let done = received.0;
                (received.1)(done, total);
            }
            Ok(())
        };
        let results = std::thread::scope(|scope| {
            let (work, gives_up) = (&work, &gives_up);
            let start = |worker| {
                scope.spawn(move || work(worker).inspect_err(|_| gives_up.store(true, Ordering::Relaxed)))
            };
            let threads: Vec<_> = (0..FILES_IN_FLIGHT).map(start).collect();
            let panicked = |_| Err(io::Error::other("a thread that copies has panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect::<Vec<_>>()
        });
        results.into_iter().collect::<io::Result<()>>()?;
        Ok(!vanished.into_inner())
    }

    /// `false` if there is no such object any more.
    fn fetch_one(&self, name: &str, bytes: u64, worker: usize) -> io::Result<bool> {
        // Another process may copy to the same directory.
        let path = self.stage.join(format!("part-{}-{worker}", std::process::id()));
        remove_if_any(&path)?;
        let file = Arc::new(local::create(&path)?);
        if !self.bucket.download(&self.key(name), bytes, &file)? {
            remove_if_any(&path)?;
            return Ok(false);
        }
        local::seal(&file, &path)?;
        let to = self.stage.join(name);
        fs::rename(&path, &to).map_err(|error| local::failed("create", &to, &error))?;
        Ok(true)
    }

    /// Verifies what is in the stage. What is damaged is fetched again, once; what is damaged then as well is left out.
    fn verify(&self) -> io::Result<Unsound> {
        for is_last in [false, true] {
            let Unsound { files: damaged, foreign } = self.unsound()?;
            let changes = damaged.iter().find(|(name, _)| matches!(kind(name), Some(Kind::Change(_))));
            if let (Some((name, what)), true) = (changes, is_last) {
                let what = format!(
                    "cannot copy `{}`: {}/{} is damaged: {what}; repair the copy that it came from, and push it to another prefix",
                    self.module,
                    self.bucket.url(),
                    self.key(name)
                );
                return Err(io::Error::new(ErrorKind::InvalidData, what));
            }
            let lengths = local::list(&self.stage)?;
            for (name, _) in &damaged {
                remove_if_any(&self.stage.join(name))?;
            }
            if damaged.is_empty() || is_last {
                return Ok(Unsound { files: damaged, foreign });
            }
            let again = damaged.into_iter().filter_map(|(name, _)| lengths.get_key_value(&name));
            self.fetch(again.map(|(name, bytes)| (name.clone(), *bytes)).collect(), &mut |_, _| {})?;
        }
        Ok(Unsound::default())
    }

    /// The files in the stage that are damaged or not of this module.
    fn unsound(&self) -> io::Result<Unsound> {
        let zero = self.stage.join(change(0));
        let verified = match tcx_store::verify(&self.stage, &mut |_, _| {}) {
            Err(error) if error.kind() == tcx_store::ErrorKind::Corrupt && zero.exists() => {
                return Ok(Unsound { files: vec![(change(0), format!("{error:#}"))], foreign: Vec::new() });
            }
            verified => verified.map_err(|error| io::Error::other(format!("{error:#}")))?,
        };
        let damage = verified.damage.into_iter().map(|damage| (damage.file, damage.what));
        let foreign = verified.foreign.iter().map(|(name, _)| name.clone()).collect();
        Ok(Unsound { files: damage.chain(verified.foreign).collect(), foreign })
    }

    /// Gives the files in the stage their names: what a change commits before the change, the changes in their order, because a process
    /// that finds one finds those before it, and then the others. Of those that were listed after the changes, and are not in `early`, only
    /// what counts on one of these.
    fn publish(&self, changes: Range<u64>, early: &BTreeSet<String>, copied: &mut Copied) -> io::Result<()> {
        local::make(&self.dir)?;
        let staged = local::list(&self.stage)?;
        if let Some(number) = changes.clone().find(|number| !staged.contains_key(&change(*number))) {
            return Err(self.vanished(number));
        }
        // The prefix may have been filled again since it was compared.
        changes::compare(self.module, changes.start.min(changes.end), |name| {
            Ok([local::read(&self.dir.join(name))?, local::read(&self.stage.join(name))?])
        })?;
        let counting = local::counting_on(&self.stage, changes.clone())?;
        for (name, bytes) in staged.iter().filter(|(name, _)| counting.committed.contains(*name)) {
            self.give_name(name, *bytes, copied)?;
        }
        local::sync(&self.dir)?;
        let is_after = |name: &String| {
            let is_before = matches!(kind(name), Some(Kind::Change(_))) || counting.committed.contains(name);
            !is_before && (early.contains(name) || counting.others.contains(name))
        };
        let after: Vec<_> = staged.iter().filter(|(name, _)| is_after(name)).collect();
        for number in changes {
            let name = change(number);
            let bytes = staged.get(&name).ok_or_else(|| self.vanished(number))?;
            let from = self.stage.join(&name);
            let own = local::read(&from)?;
            // The stage keeps its own: segments that are fetched later are verified beside it.
            let copy = self.stage.join(format!("given-{}", std::process::id()));
            remove_if_any(&copy)?;
            fs::hard_link(&from, &copy).map_err(|error| local::failed("create", &copy, &error))?;
            let to = self.dir.join(&name);
            if !local::give_name(&copy, &to)? && local::read(&to)? != own {
                return Err(changes::diverged(self.module, number));
            }
            local::sync(&self.dir)?;
            copied.files += 1;
            copied.bytes += bytes;
        }
        for (name, bytes) in after {
            self.give_name(name, *bytes, copied)?;
        }
        local::sync(&self.dir)
    }

    fn vanished(&self, number: u64) -> io::Error {
        let (module, stage) = (self.module, self.stage.display());
        io::Error::other(format!(
            "cannot copy `{module}`: {} has vanished from {stage}, which no other program may change; try again",
            change(number)
        ))
    }

    fn give_name(&self, name: &str, bytes: u64, copied: &mut Copied) -> io::Result<()> {
        let (from, to) = (self.stage.join(name), self.dir.join(name));
        let is_named_by_its_content = kind(name) == Some(Kind::Segment);
        let is_new = if is_named_by_its_content && fs::metadata(&to).is_ok_and(|own| own.len() != bytes) {
            // That is a part of the file.
            fs::rename(&from, &to).map_err(|error| local::failed("create", &to, &error))?;
            true
        } else {
            local::give_name(&from, &to)?
        };
        copied.files += u64::from(is_new);
        copied.bytes += bytes;
        Ok(())
    }
}
