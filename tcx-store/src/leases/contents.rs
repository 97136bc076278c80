//! The contents of the files: lines of text, each a name and a value, the last one the checksum of the others. A file that does not
//! verify says nothing.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use super::ranges::RangeSet;
use crate::sys::bytes::{Random, parse_hex64};
use crate::sys::checksum::checksum;

/// The first line. A file of another version says nothing.
const FIRST: &str = "tcx leases 1";
const CHECKSUM: &str = "checksum ";
/// How many digests of finished ranges a record has.
const DIGESTS: usize = 64;
/// The most bytes of a text of the caller.
const MOST_TEXT: usize = 200;

/// What all workers of a job must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The name of the job: workers with the same name share the work.
    pub name: String,
    /// The view of the samples.
    pub view: u32,
    /// How many ids a work range has; the last one may have fewer.
    pub range_size: u64,
    /// How many ids there are; `None` if no worker knows before it has read them all.
    pub ids: Option<u64>,
    /// The digest of the ids of the first range.
    pub first: u64,
}

impl Job {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut lines = Lines::new();
        lines.add("job", shortened(&self.name));
        lines.add("view", self.view);
        lines.add("range_size", self.range_size);
        if let Some(ids) = self.ids {
            lines.add("ids", ids);
        }
        lines.add("first", format_args!("{:016x}", self.first));
        lines.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut name, mut view, mut range_size, mut ids, mut first) = (None, None, None, None, None);
        for (own, value) in lines(bytes)? {
            match own {
                "job" => name = Some(value.to_owned()),
                "view" => view = Some(value.parse().ok()?),
                "range_size" => range_size = Some(value.parse().ok()?),
                "ids" => ids = Some(value.parse().ok()?),
                "first" => first = Some(parse_hex64(value)?),
                _ => {}
            }
        }
        Some(Self { name: name?, view: view?, range_size: range_size?, ids, first: first? })
    }
}

/// What became of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WorkerState {
    /// It renews its record, or was killed.
    #[default]
    Working,
    /// It has left: it works on no range.
    Left,
}

/// What a worker reports: that it is alive, what it has finished, and what that took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerRecord {
    /// It grows whenever the record is written.
    pub(crate) counter: u64,
    pub(crate) host: String,
    pub(crate) process: u32,
    pub(crate) state: WorkerState,
    /// How many ids there are, once it knows.
    pub(crate) ids: Option<u64>,
    /// The finished ranges, by the newest change that the worker knew then: their rows are durable.
    pub(crate) done: BTreeMap<u64, RangeSet>,
    /// The digests of some of the finished ranges.
    pub(crate) digests: BTreeMap<u64, u64>,
    pub(crate) facts: WorkerCounts,
}

/// What a worker did, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// The samples that it computed.
    pub computed: u64,
    /// The samples that it found.
    pub found: u64,
    /// The work ranges that it finished.
    pub ranges: u64,
    /// How many of them it took over from others.
    pub taken_over: u64,
}

impl WorkerRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut lines = Lines::new();
        lines.add("counter", self.counter);
        lines.add("host", shortened(&self.host));
        lines.add("process", self.process);
        lines.add("state", if self.state == WorkerState::Working { "working" } else { "left" });
        if let Some(ids) = self.ids {
            lines.add("ids", ids);
        }
        let WorkerCounts { computed, found, ranges, taken_over } = self.facts;
        lines.add("computed", computed);
        lines.add("found", found);
        lines.add("ranges", ranges);
        lines.add("taken_over", taken_over);
        for (change, done) in &self.done {
            lines.add("done", format_args!("{change} {done}"));
        }
        for (range, digest) in self.digests.iter().rev().take(DIGESTS) {
            lines.add("digest", format_args!("{range} {digest:016x}"));
        }
        lines.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut record = Self::default();
        let facts = &mut record.facts;
        for (name, value) in lines(bytes)? {
            match name {
                "counter" => record.counter = value.parse().ok()?,
                "host" => value.clone_into(&mut record.host),
                "process" => record.process = value.parse().ok()?,
                "state" if value == "left" => record.state = WorkerState::Left,
                "ids" => record.ids = Some(value.parse().ok()?),
                "computed" => facts.computed = value.parse().ok()?,
                "found" => facts.found = value.parse().ok()?,
                "ranges" => facts.ranges = value.parse().ok()?,
                "taken_over" => facts.taken_over = value.parse().ok()?,
                "done" => {
                    let (change, done) = value.split_once(' ')?;
                    record.done.insert(change.parse().ok()?, RangeSet::parse(done)?);
                }
                "digest" => {
                    let (range, digest) = value.split_once(' ')?;
                    record.digests.insert(range.parse().ok()?, parse_hex64(digest)?);
                }
                _ => {}
            }
        }
        Some(record)
    }

    /// Takes note of a finished range.
    pub(crate) fn finished(&mut self, range: u64, change: u64, digest: u64) {
        self.done.entry(change).or_default().insert(range);
        self.digests.insert(range, digest);
        if self.digests.len() > 2 * DIGESTS {
            // A record has the greatest ones; what is kept for that is bounded.
            self.digests.pop_first();
        }
        self.facts.ranges += 1;
    }
}

/// The contents of a lease: whose it is.
pub(crate) fn encode_lease(worker: Random) -> Vec<u8> {
    let mut lines = Lines::new();
    lines.add("worker", worker);
    lines.finish()
}

pub(crate) fn decode_lease(bytes: &[u8]) -> Option<Random> {
    lines(bytes)?.find(|(name, _)| *name == "worker").and_then(|(_, value)| Random::parse(value))
}

/// The contents of the mark of an end.
pub(crate) fn encode_end(ids: u64) -> Vec<u8> {
    let mut lines = Lines::new();
    lines.add("ids", ids);
    lines.finish()
}

/// Who has a claim, or had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimRecord {
    pub(crate) holder: Random,
    /// It grows whenever the record is written.
    pub(crate) counter: u64,
    pub(crate) is_free: bool,
}

impl ClaimRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut lines = Lines::new();
        lines.add("holder", self.holder);
        lines.add("counter", self.counter);
        lines.add("state", if self.is_free { "free" } else { "held" });
        lines.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut holder, mut counter, mut is_free) = (None, None, None);
        for (name, value) in lines(bytes)? {
            match name {
                "holder" => holder = Some(Random::parse(value)?),
                "counter" => counter = Some(value.parse().ok()?),
                "state" => is_free = Some(value == "free"),
                _ => {}
            }
        }
        Some(Self { holder: holder?, counter: counter?, is_free: is_free? })
    }
}

struct Lines(String);

impl Lines {
    fn new() -> Self {
        Self(format!("{FIRST}\n"))
    }

    fn add(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn finish(mut self) -> Vec<u8> {
        let sum = checksum(self.0.as_bytes());
        let _ = writeln!(self.0, "{CHECKSUM}{sum:016x}");
        self.0.into_bytes()
    }
}

/// The names and values of a file that verifies.
fn lines(bytes: &[u8]) -> Option<impl Iterator<Item = (&str, &str)>> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let at = text.len().checked_sub(CHECKSUM.len() + 16)?;
    let sum = parse_hex64(text.get(at..)?.strip_prefix(CHECKSUM)?)?;
    let text = text.get(..at).filter(|text| checksum(text.as_bytes()) == sum)?;
    let mut lines = text.split('\n');
    (lines.next() == Some(FIRST)).then(|| lines.filter_map(|line| line.split_once(' ')))
}

/// A text of one line, cut where it is too long.
pub(crate) fn shortened(text: &str) -> String {
    let mut short = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if short.len() + c.len_utf8() > MOST_TEXT {
            break;
        }
        short.push(c);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> WorkerRecord {
        let mut record =
            WorkerRecord { counter: 7, host: "node 7".to_owned(), process: 12, ..Default::default() };
        (record.state, record.ids) = (WorkerState::Left, Some(1 << 40));
        (0..100).for_each(|range| record.finished(range * 2, range / 50, range * 3));
        record.facts.computed = 99;
        record
    }

    #[test]
    fn contents_are_read_back() {
        let job = Job { name: "warm".into(), view: 1, range_size: 64, ids: None, first: u64::MAX };
        assert_eq!(Job::decode(&job.encode()), Some(job.clone()));
        let job = Job { ids: Some(0), ..job };
        assert_eq!(Job::decode(&job.encode()), Some(job));
        let (own, read) = (record(), WorkerRecord::decode(&record().encode()).unwrap());
        assert_eq!(read.digests.len(), DIGESTS);
        assert_eq!(WorkerRecord { digests: own.digests.clone(), ..read }, own);
        let worker = Random([9; 16]);
        assert_eq!(decode_lease(&encode_lease(worker)), Some(worker));
        let claim = ClaimRecord { holder: worker, counter: 3, is_free: true };
        assert_eq!(ClaimRecord::decode(&claim.encode()), Some(claim));
    }

    #[test]
    fn a_changed_byte_says_nothing() {
        let bytes = record().encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(WorkerRecord::decode(&damaged), None, "byte {at}");
            assert_eq!(WorkerRecord::decode(&bytes[..at]), None, "cut at {at}");
        }
    }
}
