//! A list of ids that need not be in memory.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::iter::Fuse;
use std::path::PathBuf;

use crate::{Error, Result};

/// Ids in an order: a slice, a function of the position, an iterator or the lines of a file. The last three need not be in
/// memory: [`Warming::run_shared`](crate::Warming::run_shared) has one work range of them at a time.
///
/// Every worker needs the same ids in the same order.
///
/// ```
/// use tcx::Sequence;
///
/// let listed = Sequence::from(&["a", "b"]);
/// let numbers = Sequence::by_position(100_000_000, |position| position as i64);
/// let even = Sequence::repeated(|| (0..100_i64).filter(|id| id % 2 == 0));
/// let lines = Sequence::lines("ids.txt"); // one id a line
/// assert_eq!((listed.len(), numbers.len(), even.len()), (Some(2), Some(100_000_000), None));
/// # drop(lines);
/// ```
pub struct Sequence<'a, I>(Kind<'a, I>);

type Ids<'a, I> = Box<dyn Iterator<Item = Result<I>> + 'a>;

enum Kind<'a, I> {
    Slice(&'a [I]),
    ByPosition { len: u64, id: Box<dyn FnMut(u64) -> I + 'a>, read: Vec<I> },
    Repeated(Repeated<'a, I>),
}

/// Ids that are read one after the other, from the beginning if need be.
struct Repeated<'a, I> {
    begin: Box<dyn FnMut() -> Result<Ids<'a, I>> + 'a>,
    /// One that has ended stays so, whatever the caller's iterator does.
    ids: Option<Fuse<Ids<'a, I>>>,
    /// The position of the next id.
    at: u64,
    len: Option<u64>,
    read: Vec<I>,
}

impl<I> Repeated<'_, I> {
    /// Reads the ids at these positions.
    fn read(&mut self, start: u64, count: u64) -> Result<()> {
        self.read.clear();
        if self.ids.is_none() || start < self.at {
            (self.ids, self.at) = (Some((self.begin)()?.fuse()), 0);
        }
        let Some(ids) = &mut self.ids else { return Ok(()) };
        while self.at < start.saturating_add(count) {
            let Some(id) = ids.next() else {
                self.len = Some(self.at);
                break;
            };
            let id = id?;
            if self.at >= start {
                self.read.push(id);
            }
            self.at += 1;
        }
        Ok(())
    }
}

impl<'a, I> Sequence<'a, I> {
    /// The ids `id(0)`, `id(1)`, …
    pub fn by_position(len: u64, id: impl FnMut(u64) -> I + 'a) -> Self {
        Self(Kind::ByPosition { len, id: Box::new(id), read: Vec::new() })
    }

    /// The ids of an iterator. `begin` makes it again whenever ids are needed that have passed: rarely more than twice.
    pub fn repeated<T: Iterator<Item = I> + 'a>(mut begin: impl FnMut() -> T + 'a) -> Self {
        Self::fallible(move || Ok(Box::new(begin().map(Ok))))
    }

    fn fallible(begin: impl FnMut() -> Result<Ids<'a, I>> + 'a) -> Self {
        Self(Kind::Repeated(Repeated {
            begin: Box::new(begin),
            ids: None,
            at: 0,
            len: None,
            read: Vec::new(),
        }))
    }

    /// How many ids there are; `None` for an iterator or a file that was not read to its end.
    pub fn len(&self) -> Option<u64> {
        match &self.0 {
            Kind::Slice(ids) => Some(ids.len() as u64),
            Kind::ByPosition { len, .. } => Some(*len),
            Kind::Repeated(repeated) => repeated.len,
        }
    }

    /// Whether there are no ids, if it is known.
    pub fn is_empty(&self) -> Option<bool> {
        self.len().map(|len| len == 0)
    }

    /// Whether ids can be read in any order.
    pub(crate) fn jumps(&self) -> bool {
        !matches!(self.0, Kind::Repeated(_))
    }

    /// The ids from position `start`: `count`, or fewer at the end.
    pub(crate) fn read(&mut self, start: u64, count: u64) -> Result<&[I]> {
        match &mut self.0 {
            Kind::Slice(ids) => {
                let len = ids.len() as u64;
                let end = start.saturating_add(count).min(len);
                Ok(&ids[start.min(len) as usize..end as usize])
            }
            Kind::ByPosition { len, id, read } => {
                let end = start.saturating_add(count).min(*len);
                read.clear();
                read.extend((start..end).map(id));
                Ok(read)
            }
            Kind::Repeated(repeated) => {
                repeated.read(start, count)?;
                Ok(&repeated.read)
            }
        }
    }
}

impl Sequence<'_, String> {
    /// The lines of a text file, which are read as they are needed. Empty lines are left out.
    pub fn lines(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::fallible(move || {
            let failed = |error: std::io::Error, path: &PathBuf| {
                let what = format!("cannot read ids from {}", path.display());
                Error::loader(error).returned_by(|| what)
            };
            let file = File::open(&path).map_err(|error| failed(error, &path))?;
            let path = path.clone();
            let lines =
                BufReader::new(file).lines().map(move |line| line.map_err(|error| failed(error, &path)));
            Ok(Box::new(lines.filter(|line| !line.as_ref().is_ok_and(String::is_empty))))
        })
    }
}

impl<'a, I> From<&'a [I]> for Sequence<'a, I> {
    fn from(ids: &'a [I]) -> Self {
        Self(Kind::Slice(ids))
    }
}

impl<'a, I> From<&'a Vec<I>> for Sequence<'a, I> {
    fn from(ids: &'a Vec<I>) -> Self {
        Self(Kind::Slice(ids))
    }
}

impl<'a, I, const N: usize> From<&'a [I; N]> for Sequence<'a, I> {
    fn from(ids: &'a [I; N]) -> Self {
        Self(Kind::Slice(ids))
    }
}

impl<I> fmt::Debug for Sequence<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iterator_that_goes_on_after_its_end_has_no_more_ids() {
        let begin = || {
            let mut calls = 0;
            std::iter::from_fn(move || {
                calls += 1;
                (calls != 4).then_some(calls)
            })
        };
        let mut ids = Sequence::repeated(begin);
        assert_eq!(ids.read(0, 10).unwrap(), [1, 2, 3]);
        assert_eq!(ids.read(3, 10).unwrap(), [] as [i32; 0]);
        assert_eq!(ids.len(), Some(3));
    }
}
