//! An epoch: the outputs of many samples in a given order, a batch at a time, read ahead of the loop that uses them.

use std::fmt;
use std::iter::FusedIterator;
use std::mem::{forget, take};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::cache::Shared;
use crate::cached::Cached;
use crate::ids::Id;
use crate::module::extractor::{CachedModule, Extractor};
use crate::module::missing::Missing;
use crate::pipeline::{Queue, check_threads};
use crate::{Error, ErrorKind, Result};

/// Loads the inputs of missing samples.
type Load<M, I> = dyn Fn(Missing<'_, I>) -> Result<<M as Extractor>::Input> + Send + Sync;

impl<M: CachedModule + Send + 'static> Cached<M> {
    /// An epoch over these samples: an iterator of batches, `(ids, outputs)`, in the given order. Threads of its own look up, copy and,
    /// if the [output device](Self::output_device) is another one, transfer the next batches while the loop uses the last.
    ///
    /// ```
    /// use std::sync::Arc;
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "epoch_v1", key = i64)]
    /// # struct Squares {}
    /// # impl Extractor for Squares {
    /// #     type Input = Vec<i64>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|x| x * x).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// let squares = Arc::new(cache.module(Squares {})?);
    /// let order = [3, 1, 2, 0];
    /// let mut seen = Vec::new();
    /// for batch in squares.epoch(&order).batch_size(3).prefetch(2).load(|missing| Ok(missing.ids().copied().collect())) {
    ///     let (ids, outputs) = batch?;
    ///     seen.push((ids.to_vec(), outputs));
    /// }
    /// assert_eq!(seen, [(vec![3, 1, 2], vec![9, 1, 4]), (vec![0], vec![0])]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Nothing begins before it is iterated over.
    pub fn epoch<I>(self: &Arc<Self>, order: &[I]) -> Epoch<M, I>
    where
        I: Id<M::Key> + Clone + Send + Sync + 'static,
        M::Output: Send + 'static,
    {
        Epoch {
            cached: self.clone(),
            order: order.into(),
            view: 0,
            batch_size: self.batch_size,
            prefetch: PREFETCH,
            threads: 1,
            load: None,
        }
    }
}

/// The number of batches that are read ahead of the loop.
const PREFETCH: usize = 2;

/// The settings of an epoch. Made by [`Cached::epoch`], which has an example; a `for` loop over it runs it.
#[must_use = "an epoch does nothing unless it is iterated over"]
pub struct Epoch<M: Extractor, I> {
    cached: Arc<Cached<M>>,
    order: Arc<[I]>,
    view: u32,
    batch_size: usize,
    prefetch: usize,
    threads: usize,
    load: Option<Box<Load<M, I>>>,
}

impl<M: Extractor, I> Epoch<M, I> {
    /// The number of samples of each batch but the last (that of [`Cached::batch_size`]); at least 1.
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.batch_size = samples.max(1);
        self
    }

    /// The number of batches that are read while the loop uses one (2); at least 1. Their outputs are in memory.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches.max(1);
        self
    }

    /// The number of threads that read batches at the same time (1), at most as many as batches are [prefetched](Self::prefetch), and
    /// at most 1,024: more are an error in the place of the first batch. More than one helps where the loader is slow, or the rows are
    /// on a disk that serves several requests at once.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Reads this [view](Cached::view) of the samples.
    pub fn view(mut self, number: u32) -> Self {
        self.view = number;
        self
    }

    /// Loads the inputs of missing samples, as the loader of [`Cached::fetch`]: it is called at most once for each batch, on a thread
    /// of the epoch. Without it, a missing sample is an error.
    pub fn load(mut self, load: impl Fn(Missing<'_, I>) -> Result<M::Input> + Send + Sync + 'static) -> Self {
        self.load = Some(Box::new(load));
        self
    }
}

impl<M, I> Epoch<M, I>
where
    M: CachedModule + Send + 'static,
    M::Output: Send + 'static,
    I: Id<M::Key> + Send + Sync + 'static,
{
    /// The outputs of the samples at these places of the order.
    fn read(&self, places: Range<usize>) -> Result<M::Output> {
        let ids = &self.order[places];
        self.cached.fetch_view(ids, self.view, |missing| match &self.load {
            Some(load) => load(missing),
            None => Err(absent(missing.len()).in_module(M::ID)),
        })
    }
}

fn absent(samples: usize) -> Error {
    let samples = if samples == 1 {
        "1 sample of the batch is".to_owned()
    } else {
        format!("{samples} samples of the batch are")
    };
    let message = format!("{samples} not in the cache, and the epoch has no loader");
    Error::batch(message).with_remedy("give it one with `load`, or `warm` the samples first")
}

fn no_thread(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "the system starts no thread for the epoch")
        .with_remedy("raise the limit of threads of the process, or use `fetch`")
        .with_source(error)
}

impl<M, I> IntoIterator for Epoch<M, I>
where
    M: CachedModule + Send + 'static,
    M::Output: Send + 'static,
    I: Id<M::Key> + Send + Sync + 'static,
{
    type Item = Result<(EpochIds<I>, M::Output)>;
    type IntoIter = EpochBatches<I, M::Output>;

    /// Begins to read the first batches.
    fn into_iter(self) -> EpochBatches<I, M::Output> {
        let queue = Arc::new(Queue::new(self.prefetch, usize::MAX));
        let mut batches = EpochBatches {
            shared: self.cached.shared().clone(),
            order: self.order.clone(),
            batch_size: self.batch_size,
            asked: 0,
            taken: 0,
            queue,
            threads: Vec::new(),
            failed: None,
        };
        if self.cached.shared().check_process().is_err() {
            // The first batch will be that error.
            return batches;
        }
        let threads = self.threads.min(self.prefetch).min(batches.len());
        if let Err(error) = check_threads("threads", threads) {
            batches.failed = Some(error.in_module(M::ID));
            return batches;
        }
        let epoch = Arc::new(self);
        for number in 0..threads {
            let (epoch, queue) = (epoch.clone(), Arc::clone(&batches.queue));
            let name = format!("tcx-epoch-{number}");
            match Builder::new().name(name).spawn(move || queue.work(|places| epoch.read(places))) {
                Ok(thread) => batches.threads.push(thread),
                Err(error) => batches.failed = Some(no_thread(error)),
            }
        }
        batches.ask();
        batches
    }
}

/// The batches of an epoch: `(ids, outputs)`, in order. Made by iterating over an [`Epoch`].
///
/// A batch that fails is an error in its place, with what [`Cached::fetch`] says of it; the next batches follow. If the loader or the
/// module panics, the panic goes on in the thread that asks for the batch. Dropping it ends the epoch: it waits for the batches that
/// are being read or loaded, and begins no others.
///
/// In a process that was forked from the one that began the epoch, the next batch is an error and the last.
pub struct EpochBatches<I, O> {
    shared: Arc<Shared>,
    order: Arc<[I]>,
    batch_size: usize,
    /// The places in the order up to which batches are being read, and were taken.
    asked: usize,
    taken: usize,
    queue: Arc<Queue<Range<usize>, Result<O>>>,
    threads: Vec<JoinHandle<()>>,
    /// Why no batch can be read.
    failed: Option<Error>,
}

impl<I, O> EpochBatches<I, O> {
    /// Asks the threads for as many batches as may be read ahead.
    fn ask(&mut self) {
        while self.asked < self.order.len() && self.queue.has_room() {
            let end = self.order.len().min(self.asked.saturating_add(self.batch_size));
            self.queue.push(self.asked..end, end - self.asked);
            self.asked = end;
        }
    }

    /// Why there are no more batches.
    fn over(&mut self) -> Option<Error> {
        let error = match self.shared.check_process() {
            Ok(()) => self.failed.take()?,
            Err(forked) => forked,
        };
        (self.asked, self.taken) = (self.order.len(), self.order.len());
        Some(error)
    }
}

impl<I, O> Iterator for EpochBatches<I, O> {
    type Item = Result<(EpochIds<I>, O)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.taken == self.order.len() {
            return None;
        }
        if let Some(error) = self.over() {
            return Some(Err(error));
        }
        let places = self.taken..self.order.len().min(self.taken.saturating_add(self.batch_size));
        // Before the batch is taken: if reading it panicked, the others follow all the same.
        self.taken = places.end;
        // If reading the last batch panicked, nothing was asked for since.
        self.ask();
        let output = self.queue.pop()?;
        self.ask();
        Some(output.map(|output| (EpochIds { order: self.order.clone(), places }, output)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let batches = (self.order.len() - self.taken).div_ceil(self.batch_size);
        (batches, Some(batches))
    }
}

impl<I, O> ExactSizeIterator for EpochBatches<I, O> {}

impl<I, O> FusedIterator for EpochBatches<I, O> {}

impl<I, O> Drop for EpochBatches<I, O> {
    fn drop(&mut self) {
        // A forked process has no such threads, and one of them may have held the lock of the queue.
        if self.shared.check_process().is_err() {
            forget((take(&mut self.threads), self.queue.clone()));
            return;
        }
        self.queue.close();
        for thread in self.threads.drain(..) {
            // Panics of the work are caught by the queue.
            let _ = thread.join();
        }
    }
}

/// The ids of a batch of an epoch: a part of its order, as a slice.
pub struct EpochIds<I> {
    order: Arc<[I]>,
    places: Range<usize>,
}

impl<I> EpochIds<I> {
    /// The places of the samples in the order of the epoch.
    pub fn places(&self) -> Range<usize> {
        self.places.clone()
    }
}

impl<I> Deref for EpochIds<I> {
    type Target = [I];

    fn deref(&self) -> &[I] {
        &self.order[self.places()]
    }
}

impl<I: fmt::Debug> fmt::Debug for EpochIds<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<M: Extractor, I> fmt::Debug for Epoch<M, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let samples = self.order.len();
        f.debug_struct("Epoch")
            .field("samples", &samples)
            .field("batch_size", &self.batch_size)
            .finish_non_exhaustive()
    }
}

impl<I, O> fmt::Debug for EpochBatches<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let samples = self.order.len();
        f.debug_struct("EpochBatches")
            .field("samples", &samples)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}
