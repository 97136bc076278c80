//! What each setting of a cache does, seen through a module's handle.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tch::{Kind, Tensor};
use tcx::{
    BackgroundPriority, Cache, CacheBuilder, Cached, Compression, D1, Extractor, Mode, ReadMode, Tuning,
    Typed, cached_module,
};
use tcx_tests::{Scaled, wait_until};

const ROW: usize = 4096;
const HOUR: Duration = Duration::from_hours(1);

/// The lowest byte of the id, 4,096 times.
#[cached_module(id = "pages_v1", key = i64)]
struct Pages {}

impl Extractor for Pages {
    type Input = Tensor;
    type Output = Typed<u8, D1<4096>>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Self::Output> {
        Ok(inputs.to_kind(Kind::Uint8).unsqueeze(1).expand([-1, ROW as i64], false).into())
    }
}

fn open(dir: &Path, settings: CacheBuilder) -> Cached<Pages> {
    settings.open(dir).unwrap().module(Pages {}).unwrap()
}

/// Requests these rows, and checks every byte of them.
fn forward(pages: &Cached<Pages>, ids: &[i64]) {
    let found = pages.forward(ids, &Tensor::from_slice(ids)).unwrap();
    let expected = Pages {}.forward(&Tensor::from_slice(ids)).unwrap();
    assert!(found.equal(&expected));
}

/// The segments in the folder.
fn segments(dir: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(dir.join("pages_v1")).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "arrow")).collect()
}

#[test]
fn rows_are_written_once_so_many_bytes_of_them_have_come_together() {
    let dir = tempfile::tempdir().unwrap();
    let settings = |bytes| Cache::builder().tuning(Tuning::new().flush_interval(HOUR).flush_bytes(bytes));
    let small = open(&dir.path().join("small"), settings(2 * ROW));
    let large = open(&dir.path().join("large"), settings(1 << 30));
    for id in 0..4 {
        forward(&large, &[id]);
        forward(&small, &[id]);
    }
    wait_until("the rows are written", || small.stats().rows_sealed > 0);
    assert_eq!((large.stats().rows_sealed, large.stats().buffered_rows), (0, 4));
}

#[test]
fn rows_are_written_when_they_have_waited_so_long() {
    let dir = tempfile::tempdir().unwrap();
    let settings = |time| Cache::builder().tuning(Tuning::new().flush_interval(time));
    let patient = open(&dir.path().join("patient"), settings(HOUR));
    let hasty = open(&dir.path().join("hasty"), settings(Duration::from_millis(1)));
    forward(&patient, &[0]);
    // With the default interval of five seconds, this many rounds would exceed the time limit.
    for id in 0..12 {
        forward(&hasty, &[id]);
        wait_until("the row is written", || hasty.stats().buffered_rows == 0);
    }
    assert_eq!(hasty.stats().rows_sealed, 12);
    assert_eq!((patient.stats().rows_sealed, patient.stats().buffered_rows), (0, 1));
}

#[test]
fn no_more_than_so_many_bytes_wait_to_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let most = 16 * ROW;
    let tuning = Tuning::new().flush_interval(HOUR).flush_bytes(1 << 30).write_buffer_bytes(most);
    let pages = open(dir.path(), Cache::builder().tuning(tuning));
    for id in 0..64 {
        forward(&pages, &[id]);
        assert!(pages.stats().buffered_bytes <= most as u64);
    }
    assert!(pages.stats().rows_sealed > 0, "there was no room for them otherwise");
}

#[test]
fn read_rows_are_kept_in_memory_up_to_so_many_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<i64> = (0..64).collect();
    let fill = open(dir.path(), Cache::builder());
    forward(&fill, &ids);
    fill.flush().unwrap();
    drop(fill);
    let kept = |most: usize| {
        let settings = Cache::builder().tuning(Tuning::new().read_mode(ReadMode::Pread));
        let settings = settings.mode(Mode::ReadOnly).memory_cache_bytes(most);
        let pages = open(dir.path(), settings);
        forward(&pages, &ids);
        assert_eq!(pages.stats().misses, 0);
        pages.stats().memory_cache_bytes
    };
    assert_eq!(kept(0), 0);
    let (some, all) = (kept(100_000), kept(1 << 30));
    assert!(some > 0 && some <= 100_000 && all > 64 * ROW as u64, "{some} and {all} bytes are kept");
}

#[test]
fn hits_and_misses_are_counted_by_where_rows_were_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let tuning = Tuning::new().flush_interval(HOUR).read_mode(ReadMode::Pread);
    let pages = open(dir.path(), Cache::builder().tuning(tuning).memory_cache_bytes(1 << 30));
    let tiers = || {
        let tiers = pages.stats().tiers;
        [tiers.buffer, tiers.segments, tiers.memory_cache].map(|tier| (tier.hits, tier.misses))
    };
    forward(&pages, &[1, 2, 3]);
    assert_eq!(tiers(), [(0, 3), (0, 3), (0, 0)]);
    forward(&pages, &[1, 2, 3, 4]);
    assert_eq!(tiers(), [(3, 4), (0, 4), (0, 0)]);
    pages.flush().unwrap();
    forward(&pages, &[1, 2, 3, 5]);
    let [buffer, segments, (found, read)] = tiers();
    assert_eq!((buffer, segments), ((3, 8), (3, 5)));
    assert!(read > 0);
    forward(&pages, &[3, 2, 1, 5]);
    let [buffer, segments, hot] = tiers();
    assert_eq!((buffer, segments, hot.1), ((4, 11), (6, 5), read));
    assert!(hot.0 > found, "what was read is in memory");
    pages.coverage(&[1, 2, 7]).unwrap();
    assert_eq!((tiers()[0], tiers()[1]), (buffer, segments), "a look is no hit and no miss");
    let stats = pages.stats();
    assert_eq!((stats.hits, stats.misses), (10, 5));
}

#[test]
fn rows_of_other_processes_are_looked_for_so_often_even_if_nothing_is_missing() {
    let fill = |dir: &Path, count: &str| {
        let filler = Command::new(env!("CARGO_BIN_EXE_filler"))
            .arg(dir)
            .args(["3", count])
            .stdout(Stdio::null())
            .status();
        assert!(filler.unwrap().success());
    };
    // Read-only, because a writer that joins segments would list the folder for that.
    let rows_seen = |every: Duration| {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), "20");
        let settings = Cache::builder().tuning(Tuning::new().refresh_every(every)).mode(Mode::ReadOnly);
        let scaled = settings.open(dir.path()).unwrap().module(Scaled::new(3.)).unwrap();
        assert_eq!(scaled.stats().rows, 20);
        fill(dir.path(), "40");
        Scaled::check(&scaled.forward(&[7], &Scaled::input(&[7])).unwrap(), &[7], 3.);
        assert_eq!(scaled.stats().misses, 0);
        scaled.stats().rows
    };
    assert_eq!((rows_seen(Duration::ZERO), rows_seen(HOUR)), (40, 20));
}

#[test]
fn replaced_files_are_removed_when_they_are_so_old() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = ["at-once", "later"].map(|name| dir.path().join(name));
    let pages = [Duration::ZERO, HOUR].map(|age| Cache::builder().tuning(Tuning::new().gc_grace(age)));
    let pages: Vec<_> = dirs.iter().zip(pages).map(|(dir, settings)| open(dir, settings)).collect();
    for id in 0..4 {
        for pages in &pages {
            forward(pages, &[id]);
            pages.flush().unwrap();
        }
    }
    for pages in &pages {
        wait_until("the segments are joined", || pages.stats().segments == 1);
    }
    wait_until("the replaced ones are removed", || segments(&dirs[0]).len() == 1);
    assert_eq!(segments(&dirs[1]).len(), 5, "four that were joined, and the one they became");
}

#[test]
fn compressed_files_are_smaller_and_hold_the_same() {
    let ids: Vec<i64> = (0..64).collect();
    let bytes = [Compression::None, Compression::Lz4, Compression::Zstd].map(|compression| {
        let dir = tempfile::tempdir().unwrap();
        let pages = open(dir.path(), Cache::builder().compression(compression));
        forward(&pages, &ids);
        pages.flush().unwrap();
        forward(&pages, &ids);
        assert_eq!((pages.stats().hits, pages.stats().misses), (64, 64));
        pages.stats().bytes
    });
    let [none, lz4, zstd] = bytes;
    assert!(none > 64 * ROW as u64 && lz4 < none / 4 && zstd < none / 4, "{bytes:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn files_are_mapped_or_read_as_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let fill = open(dir.path(), Cache::builder());
    forward(&fill, &[1, 2]);
    fill.flush().unwrap();
    drop(fill);
    let [segment] = &segments(dir.path())[..] else { panic!("one segment") };
    let open = |mode: ReadMode| {
        let pages =
            open(dir.path(), Cache::builder().tuning(Tuning::new().read_mode(mode)).mode(Mode::ReadOnly));
        forward(&pages, &[2, 1]);
        assert_eq!(pages.stats().misses, 0);
        pages
    };
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(segment.to_str().unwrap())
    };
    let read = open(ReadMode::Pread);
    assert!(!is_mapped());
    drop(read);
    let _mapped = open(ReadMode::Map);
    // The system's list of maps may lack a line while other threads map and unmap files.
    wait_until("the file is mapped", is_mapped);
}

/// The scheduler's policy for each thread of this name, which is field 41 of its status.
#[cfg(target_os = "linux")]
fn policies_of(name: &str) -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    // A thread may end meanwhile.
    let status = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    let own = status.filter_map(|status| {
        let (before, after) = status.rsplit_once(") ")?;
        before.ends_with(name).then(|| after.split(' ').nth(41 - 3).unwrap().to_owned())
    });
    own.collect()
}

#[test]
#[cfg(target_os = "linux")]
fn the_writer_runs_where_a_processor_is_idle_if_it_is_said() {
    const IDLE: &str = "5";
    let dir = tempfile::tempdir().unwrap();
    let settings = Cache::builder().tuning(Tuning::new().background_priority(BackgroundPriority::Idle));
    let pages = open(dir.path(), settings);
    forward(&pages, &[1]);
    pages.flush().unwrap();
    // The writers of other tests of this program have another policy.
    assert!(policies_of("tcx-writer").iter().any(|policy| policy == IDLE));
}

#[test]
fn two_caches_of_one_directory_may_have_other_settings_for_other_tables() {
    let dir = tempfile::tempdir().unwrap();
    let forever = Cache::open(dir.path()).unwrap();
    let daily = Cache::builder().time_to_live(24 * HOUR).open(dir.path()).unwrap();
    let numbers = forever.table::<Vec<i64>>("numbers_v1").unwrap();
    let answers = daily.table::<Vec<i64>>("answers_v1").unwrap();
    numbers.put(&["a"], &vec![1]).unwrap();
    answers.put(&["a"], &vec![2]).unwrap();
    let error = daily.table::<Vec<i64>>("numbers_v1").unwrap_err().to_string();
    assert!(error.ends_with("drop first what has it open: every handle of `numbers_v1`, and every cache object that has opened one"), "{error}");
    drop(numbers);
    daily.table::<Vec<i64>>("numbers_v1").unwrap_err();
    drop(forever);
    daily.table::<Vec<i64>>("numbers_v1").unwrap();
}
