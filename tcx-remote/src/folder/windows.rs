//! Bytes of segments in the store that were read last, and what is read with what is wanted: who reads one key after the other makes few
//! requests, and so does who opens a segment.

use std::collections::VecDeque;
use std::ops::Range;

/// What is read of the end of a segment at first: its footer, and the checksums before it.
const TAIL: usize = 256 << 10;

/// What is read at least, and at most if one read follows another.
const LENGTHS: (usize, usize) = (64 << 10, 4 << 20);

/// A read that begins within this distance of the end of another one goes on with it.
const NEAR: usize = 64 << 10;

/// The most bytes that are kept.
const MOST: usize = 64 << 20;

/// What was read last, of all segments.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// The newest is the last.
    kept: VecDeque<Window>,
    bytes: usize,
}

#[derive(Debug)]
struct Window {
    segment: String,
    start: usize,
    bytes: Vec<u8>,
}

impl Window {
    fn end(&self) -> usize {
        self.start + self.bytes.len()
    }

    /// Whether a read that begins there goes on with it.
    fn leads_to(&self, segment: &str, at: usize) -> bool {
        self.segment == segment && (self.start..=self.end() + NEAR).contains(&at)
    }
}

impl Windows {
    /// The bytes of a range, if they are kept.
    pub(super) fn find(&self, segment: &str, range: &Range<usize>) -> Option<&[u8]> {
        let own = self.kept.iter().rev().filter(|window| window.segment == segment);
        let mut found = own.filter_map(|window| {
            window.bytes.get(range.start.checked_sub(window.start)?..range.end.checked_sub(window.start)?)
        });
        found.next()
    }

    /// What to read when a range of a segment of this length is wanted.
    pub(super) fn plan(&self, segment: &str, range: &Range<usize>, length: usize) -> Range<usize> {
        if range.end == length {
            return range.start.min(length.saturating_sub(TAIL))..length;
        }
        let before = self.kept.iter().rev().find(|window| window.leads_to(segment, range.start));
        let more = before.map_or(LENGTHS.0, |before| (2 * before.bytes.len()).min(LENGTHS.1));
        range.start..range.end.max(range.start.saturating_add(more).min(length))
    }

    /// Keeps what was read.
    pub(super) fn add(&mut self, segment: &str, start: usize, bytes: Vec<u8>) {
        if bytes.len() > LENGTHS.1 {
            return;
        }
        // Who goes on does not come back.
        self.remove(|window| window.leads_to(segment, start) && window.start < start);
        self.bytes += bytes.len();
        self.kept.push_back(Window { segment: segment.to_owned(), start, bytes });
        while self.bytes > MOST {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.bytes.len();
        }
    }

    /// What is kept of a segment does not verify.
    pub(super) fn forget(&mut self, segment: &str) {
        self.remove(|window| window.segment == segment);
    }

    fn remove(&mut self, is_over: impl Fn(&Window) -> bool) {
        self.kept.retain(|window| !is_over(window));
        self.bytes = self.kept.iter().map(|window| window.bytes.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a range as a file does; how many bytes it had to ask for.
    fn read(windows: &mut Windows, range: Range<usize>, length: usize) -> usize {
        if windows.find("a", &range).is_some() {
            return 0;
        }
        let plan = windows.plan("a", &range, length);
        assert!(plan.start <= range.start && range.end <= plan.end && plan.end <= length, "{plan:?}");
        windows.add("a", plan.start, vec![0; plan.len()]);
        plan.len()
    }

    #[test]
    fn who_reads_one_block_after_the_other_makes_few_requests() {
        let (mut windows, length, mut requests) = (Windows::default(), 100 << 20, 0);
        for at in (0..64 << 20).step_by(4096) {
            let read = read(&mut windows, at..at + 4096, length);
            requests += usize::from(read > 0);
            assert!(read <= LENGTHS.1);
        }
        assert!(requests < 30, "{requests}");
        assert!(windows.bytes <= MOST);
    }

    #[test]
    fn two_places_that_are_read_in_turn_do_not_disturb_each_other() {
        let (mut windows, length, mut requests) = (Windows::default(), 100 << 20, 0);
        for at in (0..8 << 20).step_by(4096) {
            for start in [at, at + (50 << 20)] {
                requests += usize::from(read(&mut windows, start..start + 4096, length) > 0);
            }
        }
        assert!(requests < 30, "{requests}");
    }

    #[test]
    fn the_end_of_a_segment_is_read_with_what_is_before_it() {
        let (mut windows, length) = (Windows::default(), 1 << 30);
        assert_eq!(read(&mut windows, length - 100..length, length), TAIL);
        assert_eq!(read(&mut windows, length - TAIL..length - TAIL + 10, length), 0);
        assert_eq!(windows.plan("b", &(0..10), 20), 0..20);
        windows.forget("a");
        assert_eq!((windows.kept.len(), windows.bytes), (0, 0));
    }

    #[test]
    fn what_was_read_long_ago_is_let_go_of() {
        let mut windows = Windows::default();
        for number in 0..100 {
            windows.add(&number.to_string(), 0, vec![0; 1 << 20]);
        }
        assert!(windows.bytes <= MOST && windows.find("99", &(0..1)).is_some());
        assert!(windows.find("0", &(0..1)).is_none());
    }
}
