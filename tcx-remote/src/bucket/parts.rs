//! Reading parts of several objects: parts that are near each other with one request, and all requests at the same time.

use std::io;
use std::ops::Range;

use futures::{StreamExt, stream};

use super::Bucket;
use super::read::read_piece;

/// Parts with at most this number of bytes between them are read together: a request takes as long as these bytes.
const GAP: u64 = 256 << 10;

/// The most bytes of one request: if it fails, little has to be read again.
const MOST: u64 = 8 << 20;

/// What became of parts of objects.
pub(crate) struct PartsRead {
    /// Of each object in order, and of each of its parts.
    pub(crate) parts: Vec<Vec<io::Result<Vec<u8>>>>,
    /// How many requests were needed, and the bytes that they had to read.
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

impl Bucket {
    /// Parts of objects, which are read at the same time.
    ///
    /// # Errors
    ///
    /// Returns an error if an object cannot have such a name. What cannot be read is an error of its part.
    pub(crate) fn read_parts(&self, wanted: &[(String, Vec<Range<u64>>)]) -> io::Result<PartsRead> {
        let mut planned = Vec::new();
        for (name, ranges) in wanted {
            let (key, place) = (self.key(name)?, self.url().show(name));
            planned.extend(requests(ranges).into_iter().map(|range| (key.clone(), place.clone(), range)));
        }
        let bytes = planned.iter().map(|(.., range)| range.end - range.start).sum();
        let plans = planned.len() as u64;
        let read = self.call("read", "", bytes, |client, deadline| async move {
            let read = stream::iter(planned).map(|(key, place, range)| {
                let client = &client;
                async move {
                    let read = read_piece(client, deadline, &key, range.clone()).await;
                    (range, read.map_err(|failure| failure.into_error("read", &place)))
                }
            });
            Ok(read.buffered(client.parallel).collect::<Vec<_>>().await)
        })?;
        let mut read = read.into_iter();
        let parts = wanted.iter().map(|(_, ranges)| {
            let own: Vec<_> = read.by_ref().take(requests(ranges).len()).collect();
            ranges.iter().map(|range| cut(range, &own)).collect()
        });
        Ok(PartsRead { parts: parts.collect(), requests: plans, bytes })
    }
}

/// The requests that read these parts of an object, in order.
fn requests(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP) => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    let pieces = |range: Range<u64>| {
        let starts = (range.start..range.end).step_by(MOST as usize);
        starts.map(move |start| start..range.end.min(start + MOST))
    };
    joined.into_iter().flat_map(pieces).collect()
}

/// A part, of what the requests for it and others have read.
fn cut(range: &Range<u64>, read: &[(Range<u64>, io::Result<Vec<u8>>)]) -> io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity((range.end - range.start) as usize);
    let first = read.partition_point(|(own, _)| own.end <= range.start);
    for (own, bytes) in read[first..].iter().take_while(|(own, _)| own.start < range.end) {
        let bytes = bytes.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        let (start, end) = (range.start.max(own.start), range.end.min(own.end));
        part.extend_from_slice(&bytes[(start - own.start) as usize..(end - own.start) as usize]);
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_near_each_other_are_one_request_and_long_ones_several() {
        let far = GAP + 1;
        assert_eq!(requests(&[10..20, 30..40, 0..5, 6 * MOST..6 * MOST + 1]).len(), 2);
        assert_eq!(requests(&[10..20, 30..40, 0..5])[0], 0..40);
        assert_eq!(requests(&[0..10, 10 + GAP..20 + GAP, 20 + GAP + far..30 + GAP + far]).len(), 2);
        let long = requests(&[0..2 * MOST + 1, 5..5]);
        assert_eq!(long, [0..MOST, MOST..2 * MOST, 2 * MOST..2 * MOST + 1]);
    }

    #[test]
    fn each_part_is_cut_out_of_the_requests_that_have_it() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * MOST as usize).collect();
        let ranges = [MOST - 3..MOST + 3, 0..2, 7..7, 2 * MOST + 1..2 * MOST + 2, 1..2 * MOST + 5];
        let read =
            |range: Range<u64>| (range.clone(), Ok(bytes[range.start as usize..range.end as usize].to_vec()));
        let read: Vec<_> = requests(&ranges).into_iter().map(read).collect();
        for range in ranges {
            assert_eq!(cut(&range, &read).unwrap(), bytes[range.start as usize..range.end as usize]);
        }
    }

    #[test]
    fn a_request_that_fails_is_an_error_of_its_parts_alone() {
        let failed = Err(io::Error::from(io::ErrorKind::TimedOut));
        let read = [(0..10, Ok(vec![1; 10])), (10..20, failed)];
        assert_eq!(cut(&(0..10), &read).unwrap(), [1; 10]);
        assert_eq!(cut(&(5..15), &read).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
