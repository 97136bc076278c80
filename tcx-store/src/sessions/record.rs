//! A record of a session: lines of text, each a name and a value, the last one the checksum of the others.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use super::MOST_BYTES;
use crate::live::uses::ShortName;
use crate::stats::batch_times::BatchTimes;
use crate::stats::causes::MissCauses;
use crate::stats::{Stats, Timings};
use crate::storage::name::check_module_id;
use crate::sys::bytes::parse_hex64;
use crate::sys::checksum::checksum;
use crate::sys::clock::{millis, time};

/// The first line. Records of another version are left alone.
const FIRST: &str = "tcx session 1";
/// What precedes the checksum.
const CHECKSUM: &str = "checksum ";
/// The names of what was asked of an object store begin so.
const REQUESTS: &str = "requests.";
/// The bytes of the last line: the checksum has sixteen digits.
const CHECKSUM_LINE: usize = CHECKSUM.len() + 16 + 1;
/// The most bytes of a text of the program, and the most texts.
const MOST_TEXT: usize = 200;
const MOST_TEXTS: usize = 32;

/// What one process has done with a module, between opening and closing it. Read by [`sessions`](crate::sessions).
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// let host = vec![("host".to_owned(), "node7".to_owned())];
/// let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), host)?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # drop(store);
/// let session = &tcx_store::sessions(&dir.path().join("m_v1"))?[0];
/// assert_eq!((&*session.module, session.process), ("m_v1", std::process::id()));
/// assert_eq!(session.provenance("host"), Some("node7"));
/// assert_eq!(session.stats.rows_sealed, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Session {
    /// The id of the module.
    pub module: String,
    /// When the process opened it.
    pub started: SystemTime,
    /// When this was recorded.
    pub ended: SystemTime,
    /// Whether the process has closed it. If not, it may be at it still, or was killed.
    pub is_closed: bool,
    /// The number of the process.
    pub process: u32,
    /// The [provenance](crate::Spec::provenance) of the process.
    pub provenance: Vec<(String, String)>,
    /// What it did. What is so only at a moment (rows in the buffer or on disk, whether writing is off) is not recorded.
    pub stats: Stats,
    /// The uses of segments by the process, the most used first: those for which a record has room.
    pub(crate) uses: Vec<SegmentUses>,
}

/// How much a process has used a segment, as of the end of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentUses {
    pub(crate) segment: ShortName,
    pub(crate) rows: u64,
    /// How long before the end a row was served last.
    pub(crate) seconds_ago: u64,
}

impl SegmentUses {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let segment = parse_hex64(words.next()?)?;
        let mut number = || words.next()?.parse().ok();
        Some(Self { segment, rows: number()?, seconds_ago: number()? })
    }
}

impl Session {
    /// The value of an entry of the provenance.
    pub fn provenance(&self, name: &str) -> Option<&str> {
        self.provenance.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// Numbers of a record by their names.
fn numbers(stats: &mut Stats) -> [(&'static str, &mut u64); 28] {
    let MissCauses { absent, invalidated, expired, damaged, unreadable, recomputed, rejected, outdated } =
        &mut stats.miss_causes;
    let traffic = &mut stats.traffic;
    [
        ("hits", &mut stats.hits),
        ("missed.absent", absent),
        ("missed.invalidated", invalidated),
        ("missed.expired", expired),
        ("missed.damaged", damaged),
        ("missed.unreadable", unreadable),
        ("missed.recomputed", recomputed),
        ("missed.rejected", rejected),
        ("missed.outdated", outdated),
        ("rows.computed", &mut stats.rows_computed),
        ("rows.accepted", &mut stats.rows_accepted),
        ("rows.dropped", &mut stats.rows_dropped),
        ("rows.superseded", &mut stats.rows_superseded),
        ("rows.sealed", &mut stats.rows_sealed),
        ("bytes.served", &mut stats.bytes_served),
        ("bytes.accepted", &mut stats.bytes_accepted),
        ("bytes.sealed", &mut stats.bytes_sealed),
        ("damaged_segments", &mut stats.damaged_segments),
        ("failed_reads", &mut stats.failed_reads),
        ("rebuilt_runs", &mut stats.rebuilt_runs),
        ("troubles", &mut stats.write_failures),
        ("requests.puts", &mut traffic.puts),
        ("requests.lists", &mut traffic.lists),
        ("requests.gets", &mut traffic.gets),
        ("requests.heads", &mut traffic.heads),
        ("requests.deletes", &mut traffic.deletes),
        ("requests.bytes_sent", &mut traffic.bytes_sent),
        ("requests.bytes_received", &mut traffic.bytes_received),
    ]
}

/// Timings of a record by their names.
fn times(stats: &mut Stats) -> [(&'static str, &mut Timings); 6] {
    [
        ("time.compute", &mut stats.compute_times),
        ("time.flush", &mut stats.flush_times),
        ("time.seal", &mut stats.seal_times),
        ("time.merge", &mut stats.merge_times),
        ("time.compaction", &mut stats.compaction_times),
        ("time.collection", &mut stats.collection_times),
    ]
}

/// Times of lookups of a record by their names.
fn batches(stats: &mut Stats) -> [(&'static str, &mut BatchTimes); 2] {
    [("batches.found", &mut stats.hit_times), ("batches.missed", &mut stats.miss_times)]
}

/// The bytes of a record.
pub(crate) fn encode(session: &Session) -> Vec<u8> {
    let mut text = format!("{FIRST}\nmodule {}\n", session.module);
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name} {value}");
    };
    line("started", &millis(session.started));
    line("ended", &millis(session.ended));
    line("closed", &if session.is_closed { "yes" } else { "no" });
    line("process", &session.process);
    let mut stats = session.stats;
    for (name, number) in numbers(&mut stats) {
        // Most modules are in a directory.
        if *number > 0 || !name.starts_with(REQUESTS) {
            line(name, number);
        }
    }
    for (name, Timings { count, total, longest }) in times(&mut stats) {
        line(name, &format_args!("{count} {} {}", total.as_nanos(), longest.as_nanos()));
    }
    for (name, times) in batches(&mut stats).into_iter().filter(|(_, times)| times.count() > 0) {
        let buckets: Vec<String> =
            times.buckets().map(|(bucket, count)| format!("{bucket}:{count}")).collect();
        line(name, &buckets.join(" "));
    }
    let words = session.provenance.iter().filter(|(name, _)| is_word(name)).take(MOST_TEXTS);
    let from = words.map(|(name, value)| format!("from.{name} {}\n", shortened(value)));
    let uses = session.uses.iter().map(|SegmentUses { segment, rows, seconds_ago }| {
        format!("uses {segment:016x} {rows} {seconds_ago}\n")
    });
    for line in from.chain(uses) {
        // A longer record would not be read.
        if text.len() + line.len() > MOST_BYTES - CHECKSUM_LINE {
            break;
        }
        text += &line;
    }
    with_checksum(text)
}

pub(super) fn with_checksum(mut text: String) -> Vec<u8> {
    let sum = checksum(text.as_bytes());
    let _ = writeln!(text, "{CHECKSUM}{sum:016x}");
    text.into_bytes()
}

fn is_word(name: &str) -> bool {
    (1..=MOST_TEXT).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A text of one line, cut where it is too long.
fn shortened(text: &str) -> String {
    let mut short = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if short.len() + c.len_utf8() > MOST_TEXT {
            break;
        }
        short.push(c);
    }
    short
}

/// Reads a record; `None` if it is malformed, damaged or of another version. Lines of other names are left out.
pub(crate) fn decode(bytes: &[u8]) -> Option<Session> {
    if bytes.len() > MOST_BYTES {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let at = text.len().checked_sub(CHECKSUM.len() + 16)?;
    let sum = parse_hex64(text.get(at..)?.strip_prefix(CHECKSUM)?)?;
    let text = text.get(..at).filter(|text| checksum(text.as_bytes()) == sum)?;
    let mut lines = text.split('\n');
    if lines.next() != Some(FIRST) {
        return None;
    }
    let (mut module, mut started, mut ended, mut process) = (None, None, None, None);
    let (mut is_closed, mut provenance, mut stats) = (false, Vec::new(), Stats::default());
    let mut uses = Vec::new();
    for (name, value) in lines.filter_map(|line| line.split_once(' ')) {
        match name {
            "module" => module = check_module_id(value).is_ok().then(|| value.to_owned()),
            "started" => started = Some(time(value.parse().ok()?)),
            "ended" => ended = Some(time(value.parse().ok()?)),
            "closed" => is_closed = value == "yes",
            "process" => process = value.parse().ok(),
            "uses" => uses.push(SegmentUses::parse(value)?),
            _ => match name.strip_prefix("from.") {
                Some(name) if is_word(name) && provenance.len() < MOST_TEXTS => {
                    provenance.push((name.to_owned(), shortened(value)));
                }
                Some(_) => {}
                None => put(&mut stats, name, value)?,
            },
        }
    }
    stats.misses = stats.miss_causes.all();
    let (started, ended) = (started?, ended?);
    let (module, process) = (module?, process?);
    Some(Session { module, started, ended, is_closed, process, provenance, stats, uses })
}

/// `None` for a malformed value.
fn put(stats: &mut Stats, name: &str, value: &str) -> Option<()> {
    if let Some((_, number)) = numbers(stats).into_iter().find(|(own, _)| *own == name) {
        *number = value.parse().ok()?;
    } else if let Some((_, times)) = times(stats).into_iter().find(|(own, _)| *own == name) {
        let mut numbers = value.split(' ').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let (count, total, longest) = (next()?, next()?, next()?);
        let [total, longest] = [total, longest].map(Duration::from_nanos);
        *times = Timings { count, total, longest };
    } else if let Some((_, times)) = batches(stats).into_iter().find(|(own, _)| *own == name) {
        for bucket in value.split(' ') {
            let (bucket, count) = bucket.split_once(':')?;
            times.add(bucket.parse().ok()?, count.parse().ok()?)?;
        }
    }
    Some(())
}
