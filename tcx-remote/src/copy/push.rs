//! From a directory to a store.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use tcx_store::Inspection;

use super::confirm::{Copy, gone};
use super::files::{Kind, change, kind};
use super::local::Counting;
use super::stage::{Busy, Stage};
use super::{Copied, LISTED_AT_MOST, changes, local, moving, remove_if_any};
use crate::bucket::Bucket;

/// Files in flight together: short ones take as long as the store takes to answer.
const FILES_IN_FLIGHT: usize = 8;

/// Copies what a store lacks of a module in a directory. Every file is verified before. Programs may use both sides; what they add to the
/// directory since the copy began may be left for the next. A copy that was interrupted is continued by the next one.
///
/// `progress` gets the bytes that were sent and those to send.
///
/// # Errors
///
/// Returns an error of the kind `AlreadyExists` if the store has another cache of this name, if both sides have got changes since they were
/// copied, or if rows were evicted on one side that the other may have joined with others; of the kind `WouldBlock` if that is to be found out
/// while another process copies the module to the directory; of the kind `InvalidData` if a change is damaged or missing; of the kind `Unsupported` if the store cannot create
/// objects conditionally; and other ones if a side cannot be read or written. Damaged segments are left out instead.
pub fn push(
    cache: &Path,
    bucket: &Bucket,
    module: &str,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> io::Result<Copied> {
    let dir = cache.join(module);
    let left_out = unsound(&dir)?;
    bucket.check_conditional_puts()?;
    let mut copied = Copied { left_out, ..Copied::default() };
    for _ in 0..LISTED_AT_MOST {
        if push_listed(&dir, bucket, module, &mut copied, progress)? {
            return Ok(copied);
        }
    }
    Err(moving(module))
}

/// The files that are not to be copied.
///
/// # Errors
///
/// Returns an error if a change is damaged: what its tombstone kills is not known, so no segment can be copied either.
fn unsound(dir: &Path) -> io::Result<Vec<(String, String)>> {
    let verified = tcx_store::verify(dir, &mut |_, _| {}).map_err(|error| {
        let kind = if error.kind() == tcx_store::ErrorKind::Corrupt {
            ErrorKind::InvalidData
        } else {
            ErrorKind::Other
        };
        io::Error::new(kind, format!("{error:#}"))
    })?;
    let damaged = verified.damage.iter().find(|damage| matches!(kind(&damage.file), Some(Kind::Change(_))));
    if let Some(damage) = damaged {
        let what = format!(
            "cannot copy {}: {} is damaged ({}); run `tcx verify --repair` first",
            dir.display(),
            damage.file,
            damage.what
        );
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    let damage = verified.damage.into_iter().map(|damage| (damage.file, damage.what));
    Ok(damage.chain(verified.unreadable).chain(verified.foreign).collect())
}

/// One pass; `false` if a file has vanished.
fn push_listed(
    dir: &Path,
    bucket: &Bucket,
    module: &str,
    copied: &mut Copied,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> io::Result<bool> {
    // Before the listings: a segment to which others were joined by now is in them, too.
    let own = Inspection::open(dir).ok();
    // Segments first, then changes: what a segment counts on is in a listing that is made after it has its name. What a change commits
    // has its name before the change.
    let segments = local::list(dir)?;
    let files = local::list(dir)?;
    let here = changes::count(&dir.display().to_string(), local::changes(files.keys()))?;
    let last = local::list(dir)?;
    let there = bucket.list(module, None)?;
    let there: BTreeMap<String, u64> = there.into_iter().map(|object| (object.name, object.bytes)).collect();
    let known = changes::count(&format!("{}/{module}", bucket.url()), local::changes(there.keys()))?;
    compare(dir, bucket, module, (&files, &there), here.min(known))?;
    let newer = check_evictions(dir, bucket, module, here..known)?;
    check_seen(dir, module, known..here, there.keys().filter(|name| !files.contains_key(*name)))?;
    let is_wanted = |name: &String| {
        let is_left_out = || copied.left_out.iter().any(|(left_out, _)| left_out == name);
        // What was joined to a segment that is left out is all there is of its rows.
        let has_replaced = |own: &Inspection| copied.left_out.is_empty() && own.has_replaced(name);
        let is_dead = || own.iter().chain(&newer).any(|known| known.is_evicted(name));
        !is_left_out() && !own.as_ref().is_some_and(has_replaced) && !is_dead()
    };
    let counting = local::counting_on(dir, known..here)?;
    let files = Files::missing([segments, last], &there, is_wanted, &counting);
    copied.present = files.present;
    let mut copy = Copy::new(dir, bucket, module, known, here)?;
    let is_complete = send(&mut copy, files, known..here, copied, progress)?;
    count(copied, &copy.sent);
    Ok(is_complete)
}

/// Sends what changes commit, the changes, and then what counts on them; `false` if a file has vanished: it was joined with others, and the next
/// listing shows what took its place.
fn send(
    copy: &mut Copy<'_>,
    Files { before, after, .. }: Files,
    changes: Range<u64>,
    copied: &mut Copied,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> io::Result<bool> {
    let bytes = |files: &[(String, u64)]| files.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let (early, total) = (bytes(&before), bytes(&before) + bytes(&after));
    if !push_files(copy, before, &mut |done, _| progress(done, total))? {
        return Ok(false);
    }
    if !changes.is_empty() {
        copy.confirm()?;
        let created = copy.create(changes.clone());
        // What counts on these changes must not be served beside others, also if not all of them could be created.
        copy.confirm()?;
        copied.bytes += created?;
        copied.files += changes.end - changes.start;
    }
    let is_complete = push_files(copy, after, &mut |done, _| progress(early + done, total));
    // Also if some could not be sent.
    let confirmed = copy.confirm();
    let is_complete = is_complete?;
    confirmed.map(|()| is_complete)
}

fn count(copied: &mut Copied, sent: &[(String, u64)]) {
    copied.files += sent.len() as u64;
    copied.bytes += sent.iter().map(|(_, bytes)| bytes).sum::<u64>();
}

/// The files but for changes that are sent, each with its length.
struct Files {
    /// What the changes commit.
    before: Vec<(String, u64)>,
    after: Vec<(String, u64)>,
    /// How many the store has.
    present: u64,
}

impl Files {
    /// Those of two listings that the store lacks. Of the last one, only what counts on the changes: the rest is left for the next copy. Index
    /// runs are made again where they are used: in a store, nothing would remove them.
    fn missing(
        [first, mut last]: [BTreeMap<String, u64>; 2],
        there: &BTreeMap<String, u64>,
        is_wanted: impl Fn(&String) -> bool,
        counting: &Counting,
    ) -> Self {
        last.retain(|name, _| counting.committed.contains(name) || counting.others.contains(name));
        let mut files: BTreeMap<String, u64> = first.into_iter().chain(last).collect();
        files.retain(|name, _| !matches!(kind(name), Some(Kind::Change(_) | Kind::Run) | None));
        let is_present = |(name, bytes): &(String, u64)| there.get(name) == Some(bytes);
        let (present, mut missing): (Vec<_>, Vec<_>) = files.into_iter().partition(is_present);
        missing.retain(|(name, _)| is_wanted(name));
        let is_committed = |(name, _): &(String, u64)| counting.committed.contains(name);
        let (before, after) = missing.into_iter().partition(is_committed);
        Self { before, after, present: present.len() as u64 }
    }
}

/// Makes sure that both sides are copies of one module.
fn compare(
    dir: &Path,
    bucket: &Bucket,
    module: &str,
    (files, there): (&BTreeMap<String, u64>, &BTreeMap<String, u64>),
    common: u64,
) -> io::Result<()> {
    changes::compare_lengths(module, common, files, there)?;
    changes::compare(module, common, |name| {
        let object = bucket.read(&format!("{module}/{name}"), u64::MAX)?;
        Ok([local::read(&dir.join(name))?, object.ok_or_else(|| gone(bucket, module, name))?])
    })
}

/// Makes sure that the store has no changes by which rows of the directory would be lost, because it has joined them with rows that were
/// evicted elsewhere. Returns what is known by these changes, if there are any.
fn check_evictions(
    dir: &Path,
    bucket: &Bucket,
    module: &str,
    newer: Range<u64>,
) -> io::Result<Option<Inspection>> {
    let Some(cache) = dir.parent().filter(|_| !newer.is_empty()) else { return Ok(None) };
    // What an interrupted pull has left there is used by the next one.
    let is_new = !Stage::exists(cache, module);
    let stage = Stage::of(cache, module, &Busy::Refuse)?;
    for number in 0..newer.end {
        let (name, to) = (change(number), stage.dir().join(change(number)));
        let bytes = if number < newer.start {
            local::read(&dir.join(&name))?
        } else {
            bucket.read(&format!("{module}/{name}"), u64::MAX)?.ok_or_else(|| gone(bucket, module, &name))?
        };
        remove_if_any(&to)?;
        fs::write(&to, bytes).map_err(|error| local::failed("write", &to, &error))?;
    }
    let there = inspect(stage.dir())?;
    let lost = inspect(dir)?.lost_by(&there);
    if is_new {
        stage.remove();
    }
    lost.first().map_or(Ok(Some(there)), |segment| Err(changes::evicted_beside(module, segment)))
}

fn inspect(dir: &Path) -> io::Result<Inspection> {
    Inspection::open(dir).map_err(|error| io::Error::other(format!("{error:#}")))
}

/// Makes sure that evictions which are about to be sent have seen the segments that the store alone has: they kill those that may have rows of
/// what they have removed.
fn check_seen<'a>(
    dir: &Path,
    module: &str,
    sent: Range<u64>,
    there_alone: impl Iterator<Item = &'a String>,
) -> io::Result<()> {
    let mut segments = there_alone.filter(|name| kind(name) == Some(Kind::Segment)).peekable();
    if sent.is_empty() || segments.peek().is_none() {
        return Ok(());
    }
    let here = inspect(dir)?;
    let is_unseen = |name: &&String| !here.is_evicted(name) && !here.has_joined(name);
    match segments.find(is_unseen).filter(|_| here.evicts_since(sent.start)) {
        Some(unseen) => Err(changes::unseen(module, unseen)),
        None => Ok(()),
    }
}

/// Notes those that were sent; `false` if one has vanished.
fn push_files(
    copy: &mut Copy<'_>,
    files: Vec<(String, u64)>,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> io::Result<bool> {
    let (dir, bucket, module) = (copy.dir.clone(), copy.bucket, copy.module);
    let total = files.iter().map(|(_, bytes)| bytes).sum();
    progress(0, total);
    let begun = Mutex::new(Vec::new());
    let (left, sent) = (Mutex::new(files), Mutex::new((Vec::new(), progress)));
    let (vanished, gives_up) = (AtomicBool::new(false), AtomicBool::new(false));
    let work = || -> io::Result<()> {
        while !gives_up.load(Ordering::Relaxed) {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some((name, bytes)) = next else { break };
            let path = dir.join(&name);
            let file = match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    vanished.store(true, Ordering::Relaxed);
                    continue;
                }
                file => file.map_err(|error| local::failed("read", &path, &error))?,
            };
            // Before: what is answered with an error may arrive all the same.
            begun.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
            bucket.upload(&format!("{module}/{name}"), &file.into(), bytes)?;
            let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
            sent.0.push((name, bytes));
            let done = sent.0.iter().map(|(_, bytes)| bytes).sum();
            (sent.1)(done, total);
        }
        Ok(())
    };
    let results = std::thread::scope(|scope| {
        let start = |_| scope.spawn(|| work().inspect_err(|_| gives_up.store(true, Ordering::Relaxed)));
        let threads: Vec<_> = (0..FILES_IN_FLIGHT).map(start).collect();
        let panicked = |_| Err(io::Error::other("a thread that copies has panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect::<Vec<_>>()
    });
    let (sent, _) = sent.into_inner().unwrap_or_else(PoisonError::into_inner);
    copy.sent.extend(sent);
    copy.begun.extend(begun.into_inner().unwrap_or_else(PoisonError::into_inner));
    results.into_iter().collect::<io::Result<()>>()?;
    Ok(!vanished.into_inner())
}
