//! Reading parts of several objects: parts that are near each other with one request, and all requests at the same time.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, stream};

use super::Bucket;
use super::read::read_piece;
use crate::client::error::Failure;

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
    /// Parts of objects, which are read at the same time. Of what is between them, no more is in memory than what the requests in flight
    /// have read. Each of these has the time of a call; if one of them has used it up, no further requests are made.
    ///
    /// # Errors
    ///
    /// Returns an error if an object cannot have such a name. What cannot be read is an error of its part.
    pub(crate) fn read_parts(&self, wanted: &[(String, Vec<Range<u64>>)]) -> io::Result<PartsRead> {
        let (mut planned, mut objects) = (Vec::new(), Vec::new());
        for (number, (name, ranges)) in wanted.iter().enumerate() {
            let (key, place) = (self.key(name)?, self.url().show(name));
            let requests = requests(ranges).into_iter();
            planned.extend(requests.map(|range| (number, key.clone(), place.clone(), range)));
            objects.push(ObjectParts::new(ranges));
        }
        let lengths = planned.iter().map(|(.., range)| range.end - range.start);
        let (bytes, plans) = (lengths.clone().sum(), planned.len() as u64);
        // They share the connection.
        let most_in_flight = longest(lengths.collect(), self.parallel());
        let parts = self.call("read", "", most_in_flight, |client, deadline| async move {
            let is_over = AtomicBool::new(false);
            let read = stream::iter(planned).map(|(number, key, place, range)| {
                let (client, is_over) = (&client, &is_over);
                async move {
                    let read = if is_over.load(Ordering::Relaxed) {
                        Err(Failure::timed_out())
                    } else {
                        read_piece(client, deadline.again(), &key, range.clone()).await
                    };
                    // It was tried until its time was over.
                    let ends = read.as_ref().is_err_and(|failure| failure.is_transient);
                    is_over.fetch_or(ends, Ordering::Relaxed);
                    (number, range, read.map_err(|failure| failure.into_error("read", &place)))
                }
            });
            let mut read = read.buffered(client.parallel);
            while let Some((number, range, read)) = read.next().await {
                objects[number].take(&range, &read);
            }
            Ok(objects.into_iter().map(|object| object.parts).collect())
        })?;
        Ok(PartsRead { parts, requests: plans, bytes })
    }
}

/// The sum of the `count` largest.
fn longest(mut lengths: Vec<u64>, count: usize) -> u64 {
    lengths.sort_unstable_by(|one, other| other.cmp(one));
    lengths.iter().take(count).sum()
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

/// The parts of an object, as far as they were read.
struct ObjectParts {
    ranges: Vec<Range<u64>>,
    /// Their numbers, in the order of their starts, and how many of these have come to their end.
    order: Vec<usize>,
    over: usize,
    parts: Vec<io::Result<Vec<u8>>>,
}

impl ObjectParts {
    fn new(ranges: &[Range<u64>]) -> Self {
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_by_key(|&part| ranges[part].start);
        let part = |range: &Range<u64>| Ok(Vec::with_capacity((range.end - range.start) as usize));
        Self { ranges: ranges.to_vec(), order, over: 0, parts: ranges.iter().map(part).collect() }
    }

    /// Takes what a request has read. Those of an object come in the order of their ranges.
    fn take(&mut self, read: &Range<u64>, bytes: &io::Result<Vec<u8>>) {
        let Self { ranges, order, over, parts } = self;
        while order.get(*over).is_some_and(|&part| ranges[part].end <= read.start) {
            *over += 1;
        }
        let begun = order[*over..].iter().take_while(|&&part| ranges[part].start < read.end);
        for &part in begun {
            let (start, end) = (ranges[part].start.max(read.start), ranges[part].end.min(read.end));
            if start >= end {
                continue;
            }
            match (&mut parts[part], bytes) {
                (Ok(part), Ok(bytes)) => {
                    part.extend_from_slice(
                        &bytes[(start - read.start) as usize..(end - read.start) as usize],
                    );
                }
                (part @ Ok(_), Err(error)) => *part = Err(io::Error::new(error.kind(), error.to_string())),
                (Err(_), _) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tcx_test_s3::{Fault, Operation, Server};

    use super::*;
    use crate::options::ClientOptions;
    use crate::url::Location;

    #[test]
    fn parts_near_each_other_are_one_request_and_long_ones_several() {
        let far = GAP + 1;
        assert_eq!(requests(&[10..20, 30..40, 0..5, 6 * MOST..6 * MOST + 1]).len(), 2);
        assert_eq!(requests(&[10..20, 30..40, 0..5])[0], 0..40);
        assert_eq!(requests(&[0..10, 10 + GAP..20 + GAP, 20 + GAP + far..30 + GAP + far]).len(), 2);
        let long = requests(&[0..2 * MOST + 1, 5..5]);
        assert_eq!(long, [0..MOST, MOST..2 * MOST, 2 * MOST..2 * MOST + 1]);
    }

    /// The parts of an object, by what these requests have read.
    fn parts(ranges: &[Range<u64>], read: &[(Range<u64>, io::Result<Vec<u8>>)]) -> Vec<io::Result<Vec<u8>>> {
        let mut object = ObjectParts::new(ranges);
        for (range, bytes) in read {
            object.take(range, bytes);
        }
        object.parts
    }

    #[test]
    fn each_part_is_cut_out_of_the_requests_that_have_it() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * MOST as usize).collect();
        let ranges =
            [MOST - 3..MOST + 3, 0..2, 7..7, 2 * MOST + 1..2 * MOST + 2, 1..2 * MOST + 5, 5..9, 5..6];
        let read =
            |range: Range<u64>| (range.clone(), Ok(bytes[range.start as usize..range.end as usize].to_vec()));
        let read: Vec<_> = requests(&ranges).into_iter().map(read).collect();
        for (range, part) in ranges.iter().zip(parts(&ranges, &read)) {
            assert_eq!(part.unwrap(), bytes[range.start as usize..range.end as usize], "{range:?}");
        }
    }

    #[test]
    fn a_request_that_fails_is_an_error_of_its_parts_alone() {
        let failed = Err(io::Error::from(io::ErrorKind::TimedOut));
        let read = [(0..10, Ok(vec![1; 10])), (10..20, failed), (20..30, Ok(vec![2; 10]))];
        let parts = parts(&[0..10, 5..15, 5..25, 20..22], &read);
        assert_eq!(parts[0].as_ref().unwrap(), &[1; 10]);
        for part in &parts[1..3] {
            assert_eq!(part.as_ref().unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(parts[3].as_ref().unwrap(), &[2; 2]);
    }

    fn bucket(server: &Server) -> Bucket {
        let Ok(Location::Store(url)) = Location::parse(&server.url("p")) else { panic!("it is a URL") };
        let options = ClientOptions::default().parallel(1);
        let set = |options: ClientOptions, (name, value)| options.set(name, value);
        Bucket::new(url, server.settings().into_iter().fold(options, set)).unwrap()
    }

    /// Parts that are so far apart that each needs a request.
    fn apart(count: u64) -> (Vec<u8>, Vec<Range<u64>>) {
        let step = GAP + 8;
        (vec![7; (count * step) as usize], (0..count).map(|part| part * step..part * step + 1).collect())
    }

    #[test]
    fn a_batch_of_many_requests_takes_as_long_as_they_take_if_each_is_answered_in_time() {
        let (server, (bytes, ranges)) = (Server::start(), apart(8));
        server.put("p/m/x", &bytes);
        server.fail(|faults| faults.latency = Duration::from_millis(400));
        let bucket = bucket(&server).with_deadline(Duration::from_millis(2500));
        let read = bucket.read_parts(&[("m/x".to_owned(), ranges)]).unwrap();
        assert_eq!(read.requests, 8);
        for part in read.parts.iter().flatten() {
            assert_eq!(part.as_ref().unwrap(), &[7]);
        }
    }

    #[test]
    fn no_further_requests_are_made_if_the_time_of_one_is_over() {
        let (server, (bytes, ranges)) = (Server::start(), apart(50));
        server.put("p/m/x", &bytes);
        server.fail(|faults| faults.is_away = true);
        let bucket = bucket(&server).with_deadline(Duration::from_millis(500));
        let start = Instant::now();
        let read = bucket.read_parts(&[("m/x".to_owned(), ranges)]).unwrap();
        assert!(read.parts.iter().flatten().all(Result::is_err));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }

    #[test]
    fn a_request_that_waits_for_others_of_this_process_has_its_time_still() {
        let server = Server::start();
        server.put("p/m/x", b"1");
        let bucket = bucket(&server);
        server.fail_next(Operation::Get, "/x", Fault::Late(Duration::from_secs(3)));
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| bucket.read("m/x", 10).unwrap());
            while server.planned() > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let found = bucket.with_deadline(Duration::from_secs(1)).head("m/x").unwrap();
            assert_eq!((found.unwrap().bytes, slow.join().unwrap().unwrap()), (1, b"1".to_vec()));
        });
    }
}
