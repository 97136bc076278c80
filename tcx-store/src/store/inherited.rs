//! What a process does with the stores that it has inherited from the process that it was forked from: it reads the folder
//! through a core of its own, and leaves everything else of the parent's alone.

use std::mem;
use std::ops::Deref;
use std::sync::Arc;

use crate::engine::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::store::Store;
use crate::sys::fork::{Made, PerProcess};

/// Whatever rows are looked up in.
pub(crate) enum Reader<'a> {
    Own(&'a Arc<Core>),
    /// Of an inherited store.
    Reopened(Arc<Made<Arc<Core>>>),
}

impl Deref for Reader<'_> {
    type Target = Arc<Core>;

    fn deref(&self) -> &Arc<Core> {
        match self {
            Self::Own(core) => core,
            Self::Reopened(core) => core,
        }
    }
}

/// The core that a child reads an inherited store through. The parent's core is full of locks that may be held forever.
pub(crate) type Reopened = PerProcess<Arc<Core>>;

impl Store {
    /// Whether this process was forked from the one that opened the store. Lookups go on: they see what the folder holds, what is
    /// missing is computed and not kept. Everything that needs the parent's threads is an error; opened again, the process has
    /// a store of its own.
    pub fn is_inherited(&self) -> bool {
        !self.process.is_current()
    }

    /// Where rows are looked up.
    ///
    /// # Errors
    ///
    /// Returns an error in a forked process, as [`open`](Self::open) does. A folder that cannot be listed is no error: its rows
    /// are misses.
    #[inline]
    pub(crate) fn reader(&self) -> Result<Reader<'_>> {
        if self.process.is_current() { Ok(Reader::Own(&self.core)) } else { self.reopened() }
    }

    #[cold]
    fn reopened(&self) -> Result<Reader<'_>> {
        let reopened = self.reopened.get_or_try_make(|| {
            let options = Options { read_only: true, ..self.options.clone() };
            Core::reopen(&self.core, &options).map(Arc::new)
        });
        reopened.map(Reader::Reopened)
    }

    /// # Errors
    ///
    /// Returns an error in a process that was forked from the one that opened the store.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        let (module, path) = (&self.core.spec.module_id, self.path().display());
        Err(Error::of_kind(
            ErrorKind::Forked,
            format!(
                "the cache of `{module}` at {path} was opened before this process was forked, and its background threads run in the \
             parent process only: open the cache again in this process"
            ),
        ))
    }
}

impl Core {
    /// A core of the same folder that shares nothing with `inherited` but what never changes.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), except that a folder that cannot be listed is no error.
    fn reopen(inherited: &Self, options: &Options) -> Result<Self> {
        Self::open_if(inherited.storage.clone(), inherited.spec.clone(), options, |listed| {
            listed.or_else(|error| if error.kind() == ErrorKind::Io { Ok(false) } else { Err(error) })
        })
    }
}

/// In a forked process nothing is sealed, and no thread is waited for. Nor is anything freed: another thread of the parent may have
/// been changing it at the fork.
impl Drop for Store {
    fn drop(&mut self) {
        if self.is_inherited() {
            mem::forget(self.take_writer());
            mem::forget((self.core.clone(), self.losses.clone()));
        }
    }
}
