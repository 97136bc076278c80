//! How many bytes the copies of a near tier may have: those of all stores and modules in it, whichever process has received them.
//!
//! When they have that many, these copies stay, and everything else is read from its store. To make room for what was read last would
//! not help: an epoch that is larger than the disk, in another order each time, would find nothing of what the last one has left.
//!
//! Rows that wait to be sent are not among the copies. Nothing removes them.

mod full;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tcx_store::unstable::{disk_space, runtime};

use super::lock::{Attempt, is_held, lock_within};
use super::{MIRRORS, Near, age, names};

/// The folder of the near tier with what the processes say to each other. No store has a folder of this name.
const FOLDER: &str = ".budget";

/// So much of the disk stays free, or this part of it if that is less: programs need room, and so do rows that wait to be sent.
const FREE: (u64, u64) = (4 << 30, 50);

/// The copies are counted again at most this often, if they seem to be too many.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// The longest time that another process which counts them is waited for.
const LOCKED_AT_MOST: Duration = Duration::from_secs(2);

/// A process that was waited for in vain is not waited for again within this time.
const BUSY_FOR: Duration = Duration::from_secs(30);

/// They are counted again after this time in any case.
const COUNT_AT_LEAST_EVERY: Duration = Duration::from_hours(1);

/// The budget of a near tier.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    tier: PathBuf,
    /// `None` is no limit but that of the disk.
    most: Option<u64>,
    /// When another process was waited for in vain that counts the copies.
    busy: Arc<Mutex<Option<Instant>>>,
    /// When copies were removed last without making room.
    in_vain: Arc<Mutex<Option<Instant>>>,
}

/// What has become of a copy that was to be made.
#[derive(Debug)]
pub(crate) enum Admitted<T> {
    Made(T),
    /// There is no room for it.
    NoRoom,
    /// It is not known whether there is: another process counts the copies, or was stopped while it did.
    Busy,
}

impl Budget {
    pub(crate) fn new(tier: &Path, most: Option<u64>) -> Self {
        Self { tier: tier.to_owned(), most, busy: Arc::default(), in_vain: Arc::default() }
    }

    /// Makes a copy of this number of bytes, or the file that becomes one, if there is room for it.
    ///
    /// # Errors
    ///
    /// Returns the error of `make`, or an error if the near tier cannot be read or written.
    pub(crate) fn admit<T>(
        &self,
        bytes: u64,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Admitted<T>> {
        let is_free = |(free, all): (u64, u64)| free.saturating_sub(bytes) >= FREE.0.min(all / FREE.1);
        if !disk_space(&self.tier).is_none_or(is_free) {
            return Ok(Admitted::NoRoom);
        }
        let Some(most) = self.most else { return make().map(Admitted::Made) };
        if bytes > most {
            return Ok(Admitted::NoRoom);
        }
        fs::create_dir_all(self.tier.join(FOLDER))?;
        let alone = self.lock()?;
        if matches!(alone, Attempt::Busy) {
            return Ok(Admitted::Busy);
        }
        let mut used = self.used(COUNT_AT_LEAST_EVERY)?;
        if used + bytes > most {
            used = self.used(COUNT_EVERY)?;
        }
        if used + bytes > most {
            return Ok(Admitted::NoRoom);
        }
        // Before it is made: a process that is killed in between leaves too large a number, and none that is too small.
        fs::write(self.counted(), (used + bytes).to_string())?;
        make().map(Admitted::Made)
    }

    /// Gives a file that was [admitted](Self::admit) its name. No other process counts the copies at this moment: it could find neither name.
    /// One that was stopped while it did is not waited for long; it may then count one file too few, until the next count.
    ///
    /// # Errors
    ///
    /// Returns the error of `rename`, or an error if the near tier cannot be written.
    pub(crate) fn name(&self, rename: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _alone = self.most.map(|_| self.lock()).transpose()?;
        rename()
    }

    /// Copies were removed: they are counted before the next one is made.
    pub(crate) fn changed(&self) {
        if self.most.is_some() {
            let _ = fs::remove_file(self.counted());
        }
    }

    /// Removes copies, those that were received last, until there are no more than there may be: the budget may have been larger before.
    pub(crate) fn keep(&self) -> io::Result<()> {
        let Some(most) = self.most else { return Ok(()) };
        fs::create_dir_all(self.tier.join(FOLDER))?;
        let alone = self.lock()?;
        if matches!(alone, Attempt::Busy) {
            return Ok(());
        }
        let mut copies = self.copies()?;
        let mut used: u64 = copies.iter().map(|copy| copy.bytes).sum();
        copies.sort_by_key(|copy| copy.modified);
        while used > most {
            let Some(last) = copies.pop() else { break };
            if last.is_complete && fs::remove_file(&last.path).is_ok() {
                used -= last.bytes;
            }
        }
        fs::write(self.stamp(), "")?;
        fs::write(self.counted(), used.to_string())
    }

    /// A process that is stopped while it has the lock is not waited for long, and not for each file: lookups need it.
    fn lock(&self) -> io::Result<Attempt> {
        let busy = || self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let is_busy = busy().is_some_and(|since| runtime::now().duration_since(since) < BUSY_FOR);
        let longest = if is_busy { Duration::ZERO } else { LOCKED_AT_MOST };
        let attempt = lock_within(&self.tier.join(FOLDER).join("lock"), longest)?;
        match attempt {
            Attempt::Own(_) => *busy() = None,
            Attempt::Busy if !is_busy => *busy() = Some(runtime::now()),
            Attempt::Busy => {}
        }
        Ok(attempt)
    }

    /// Where the number of bytes is.
    fn counted(&self) -> PathBuf {
        self.tier.join(FOLDER).join("bytes")
    }

    /// The bytes of all copies; they are counted if no process has counted them within this time.
    fn used(&self, within: Duration) -> io::Result<u64> {
        let counted = fs::read_to_string(self.counted()).ok().and_then(|bytes| bytes.parse().ok());
        let is_recent = age(&self.stamp()).is_some_and(|age| age < within);
        if let Some(bytes) = counted.filter(|_| is_recent) {
            return Ok(bytes);
        }
        let bytes: u64 = self.copies()?.iter().map(|copy| copy.bytes).sum();
        fs::write(self.stamp(), "")?;
        // Also if there is no room: else each segment without room would count all copies again.
        fs::write(self.counted(), bytes.to_string())?;
        Ok(bytes)
    }

    /// The file whose time is that of the last count.
    fn stamp(&self) -> PathBuf {
        self.tier.join(FOLDER).join("counted")
    }

    /// The copies of segments in all modules, and the files that become some. What a process has left that was killed is removed.
    fn copies(&self) -> io::Result<Vec<Copy>> {
        let mut copies = Vec::new();
        for store in names(&self.tier)?.into_iter().filter(|store| store != FOLDER && store != MIRRORS) {
            for module in folders(&self.tier.join(&store))? {
                copies.extend(Copy::all_of(&Near::new(&self.tier, &store, &module))?);
            }
        }
        Ok(copies)
    }
}

/// A copy of a segment, or a file that becomes one.
struct Copy {
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
    is_complete: bool,
}

impl Copy {
    fn all_of(near: &Near) -> io::Result<Vec<Self>> {
        let mut copies = Vec::new();
        for name in folders(&near.files())? {
            let path = near.file(&name);
            let arriving = Near::arriving_segment(&name);
            if arriving.is_some_and(|arriving| !is_held(&near.lock(arriving))) {
                let _ = fs::remove_file(path);
                continue;
            }
            let is_complete = arriving.is_none();
            if is_complete && !name.starts_with("seg-") {
                continue;
            }
            match fs::metadata(&path) {
                Ok(found) => copies.push(Self {
                    path,
                    bytes: found.len(),
                    modified: found.modified().ok(),
                    is_complete,
                }),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(copies)
    }
}

/// The names in a directory; none of what is not one.
fn folders(dir: &Path) -> io::Result<Vec<String>> {
    match names(dir) {
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(Vec::new()),
        names => names,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::lock::lock;
    use super::*;

    fn near(tier: &Path, module: &str) -> Near {
        let near = Near::new(tier, "store", module);
        near.make().unwrap();
        near
    }

    /// Receives a segment of this length.
    fn receive(budget: &Budget, near: &Near, name: &str, bytes: u64) -> bool {
        let _alone = lock(&near.lock(name)).unwrap();
        let made = budget.admit(bytes, || near.create_arriving(name, bytes)).unwrap();
        let rename = |(path, _)| budget.name(|| fs::rename(path, near.file(name))).unwrap();
        match made {
            Admitted::Made(made) => {
                rename(made);
                true
            }
            Admitted::NoRoom | Admitted::Busy => false,
        }
    }

    /// A segment of this length begins to arrive.
    fn begin(budget: &Budget, near: &Near, name: &str, bytes: u64) {
        let made = budget.admit(bytes, || near.create_arriving(name, bytes)).unwrap();
        assert!(matches!(made, Admitted::Made(_)), "{made:?}");
    }

    #[test]
    fn the_copies_of_all_modules_have_one_budget_and_existing_copies_stay() {
        let tier = tempfile::tempdir().unwrap();
        let budget = Budget::new(tier.path(), Some(100));
        let (one, other) = (near(tier.path(), "a_v1"), near(tier.path(), "b_v1"));
        assert!(receive(&budget, &one, "seg-1", 60));
        assert!(!receive(&budget, &other, "seg-2", 50));
        assert!(receive(&budget, &other, "seg-3", 40));
        assert!(!receive(&budget, &one, "seg-4", 1));
        assert!(!receive(&budget, &one, "seg-5", 101));
        assert!(one.file("seg-1").exists() && other.file("seg-3").exists());
        assert!(receive(&Budget::new(tier.path(), None), &one, "seg-6", 1000));
    }

    #[test]
    fn copies_are_counted_once_however_many_segments_have_no_room() {
        let tier = tempfile::tempdir().unwrap();
        let budget = Budget::new(tier.path(), Some(100));
        let near = near(tier.path(), "a_v1");
        assert!(receive(&budget, &near, "seg-1", 60));
        budget.changed();
        assert!(!receive(&budget, &near, "seg-2", 50));
        assert_eq!(fs::read_to_string(budget.counted()).unwrap(), "60");
        assert!(receive(&budget, &near, "seg-3", 40));
    }

    #[test]
    fn it_is_not_known_whether_there_is_room_while_a_process_that_was_stopped_counts_the_copies() {
        let tier = tempfile::tempdir().unwrap();
        let (budget, near) = (Budget::new(tier.path(), Some(100)), near(tier.path(), "a_v1"));
        assert!(receive(&budget, &near, "seg-1", 10));
        let stopped = budget.lock().unwrap();
        for _ in 0..2 {
            assert!(matches!(budget.admit(10, || Ok(())).unwrap(), Admitted::Busy));
        }
        drop(stopped);
        assert!(receive(&budget, &near, "seg-2", 10));
    }

    #[test]
    fn what_was_removed_or_left_by_a_killed_process_takes_no_room() {
        let tier = tempfile::tempdir().unwrap();
        let budget = Budget::new(tier.path(), Some(100));
        let near = near(tier.path(), "a_v1");
        assert!(receive(&budget, &near, "seg-1", 60));
        // As of a process that was killed: no process has the lock.
        begin(&budget, &near, "seg-2", 30);
        assert!(!receive(&budget, &near, "seg-3", 40));
        fs::remove_file(near.file("seg-1")).unwrap();
        budget.changed();
        assert!(receive(&budget, &near, "seg-4", 100));
    }

    #[test]
    fn a_file_that_arrives_counts_and_waiting_rows_do_not() {
        let tier = tempfile::tempdir().unwrap();
        let budget = Budget::new(tier.path(), Some(100));
        let near = near(tier.path(), "a_v1");
        let (path, _) = near.create_temporary().unwrap();
        fs::write(&path, [1; 500]).unwrap();
        near.to_spool(&path, "origin", "seg-1").unwrap();
        let alone = lock(&near.lock("seg-2")).unwrap();
        begin(&budget, &near, "seg-2", 80);
        budget.changed();
        assert!(!receive(&budget, &near, "seg-3", 30));
        drop(alone);
        budget.changed();
        assert!(receive(&budget, &near, "seg-3", 30));
    }

    #[test]
    fn a_smaller_budget_removes_what_was_received_last_and_nothing_that_waits() {
        let tier = tempfile::tempdir().unwrap();
        let near = near(tier.path(), "a_v1");
        let large = Budget::new(tier.path(), None);
        for (number, name) in (0_u64..).zip(["seg-1", "seg-2", "seg-3"]) {
            assert!(receive(&large, &near, name, 50));
            let file = fs::File::options().write(true).open(near.file(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(number)).unwrap();
        }
        let (path, _) = near.create_temporary().unwrap();
        fs::write(&path, [1; 500]).unwrap();
        let waiting = near.to_spool(&path, "origin", "seg-4").unwrap();
        let small = Budget::new(tier.path(), Some(120));
        small.keep().unwrap();
        let left: Vec<_> = ["seg-1", "seg-2", "seg-3"].map(|name| near.file(name).exists()).into();
        assert_eq!((left, waiting.path.exists()), (vec![true, true, false], true));
        assert!(!receive(&small, &near, "seg-5", 50) && receive(&small, &near, "seg-5", 20));
    }

    #[test]
    fn threads_that_race_for_the_budget_do_not_exceed_it() {
        let tier = tempfile::tempdir().unwrap();
        let near = near(tier.path(), "a_v1");
        let received = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (near, received, tier) = (&near, &received, tier.path());
                scope.spawn(move || {
                    let budget = Budget::new(tier, Some(1000));
                    for number in 0..20 {
                        if number % 7 == 0 {
                            budget.changed();
                        }
                        let bytes = 30 + 10 * thread;
                        if receive(&budget, near, &format!("seg-{thread}-{number}"), bytes) {
                            received.fetch_add(bytes, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let received = received.into_inner();
        assert!((901..=1000).contains(&received), "{received}");
    }
}
