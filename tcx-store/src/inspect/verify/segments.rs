//! Judging segments. Their bytes are read by several threads.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use crate::inspect::{Inspected, Inspection, SegmentState};
use crate::segment::{Segment, Verdict};
use crate::sys::runtime;

/// What a thread reads at a time: segments differ too much in size.
const PIECE: usize = 4 << 20;
/// More threads do not read faster from most disks.
const MOST_THREADS: usize = 4;

/// What came of a segment.
pub(super) enum Judged {
    Verdict(Verdict),
    /// Why it cannot be read.
    Unreadable(String),
    /// It has been judged by its footer, if at all.
    Not,
}

impl Judged {
    /// Whether its content is unknown.
    pub(super) fn is_unread(&self, own: &Inspected) -> bool {
        match self {
            Self::Verdict(verdict) => *verdict == Verdict::Unread,
            Self::Unreadable(_) => true,
            Self::Not => matches!(own.facts.state, SegmentState::Unreadable(_)),
        }
    }
}

/// Judges each segment. `read` gets the number of bytes that were read.
pub(super) fn verdicts(inspection: &Inspection, mut read: impl FnMut(usize)) -> Vec<Judged> {
    let segments = &inspection.segments;
    let mapped =
        segments.iter().enumerate().filter(|(_, own)| own.segment.as_deref().is_some_and(Segment::is_mapped));
    let pieces: Vec<_> =
        mapped.flat_map(|(number, own)| pieces(own).map(move |piece| (number, own, piece))).collect();
    let mut judged: Vec<Judged> = segments.iter().map(|_| Judged::Not).collect();
    let read_piece = |(_, own, piece): &(usize, &Inspected, Range<usize>)| {
        // First: a mapped page that the disk cannot give would kill the process.
        inspection.storage.read_through(&own.facts.name, piece.clone())?;
        // What verifies is remembered, and is not read again when the segment is judged.
        own.segment.as_ref().map(|segment| segment.verify_piece(piece.clone()));
        std::io::Result::Ok(())
    };
    in_parallel(&pieces, read_piece, |at, done| {
        let (number, _, piece) = &pieces[at];
        match done {
            Ok(()) => read(piece.len()),
            Err(error) => judged[*number] = Judged::Unreadable(error.to_string()),
        }
    });
    let readable: Vec<usize> =
        (0..segments.len()).filter(|number| matches!(judged[*number], Judged::Not)).collect();
    let judge = |number: &usize| segments[*number].segment.as_deref().map(Segment::judge_rest);
    in_parallel(&readable, judge, |at, verdict| {
        if let Some(verdict) = verdict {
            judged[readable[at]] = Judged::Verdict(verdict);
        }
    });
    judged
}

/// The file of a segment in pieces.
fn pieces(own: &Inspected) -> impl Iterator<Item = Range<usize>> + use<> {
    let bytes = own.segment.as_ref().map_or(0, |segment| segment.bytes());
    (0..bytes).step_by(PIECE).map(move |start| start..bytes.min(start + PIECE))
}

/// Does `work` on every item, several at a time, and passes each result to `done` on this thread.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync, mut done: impl FnMut(usize, R)) {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = if runtime::is_simulated() { 0 } else { processors.min(MOST_THREADS).min(items.len()) };
    let (next, (tell, told)) = (AtomicUsize::new(0), channel());
    let take = |tell: Sender<(usize, R)>| {
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = items.get(number)
        {
            // The receiver lives until every worker has ended.
            let _ = tell.send((number, work(item)));
        }
    };
    thread::scope(|scope| {
        let started = (0..threads).filter(|_| {
            let (tell, take) = (tell.clone(), &take);
            thread::Builder::new().spawn_scoped(scope, move || take(tell)).is_ok()
        });
        if started.count() == 0 {
            take(tell);
        } else {
            drop(tell);
        }
        for (number, result) in told {
            done(number, result);
        }
    });
}
