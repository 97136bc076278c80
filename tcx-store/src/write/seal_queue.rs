//! Sealing the write buffer: one generation is written while the one before is being synced. They become durable and
//! leave the buffer strictly in the order in which they were accepted.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;

use crate::buffer::generation::Generation;
use crate::engine::Core;
use crate::engine::threads::{Role, works_for};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::Work;
use crate::sys::runtime::spawn;
use crate::sys::wait::wait;
use crate::write::generation::{Written, give_up, publish, write};

/// So long a flush goes on while other processes change the folder again and again, and so long it waits in between.
const CONTENDED_AT_MOST: Duration = Duration::from_secs(10);
const CONTENDED_PAUSE: Duration = Duration::from_millis(20);

/// Moves rows from the buffer to the disk.
pub(crate) struct SealQueue {
    core: Arc<Core>,
    publishing: Option<Publishing>,
}

/// The generation whose segments are being made durable by a thread of its own.
struct Publishing {
    /// Its memory is free as soon as the buffer lets go of it.
    generation: Weak<Generation>,
    published: oneshot::Receiver<Result<()>>,
}

impl SealQueue {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, publishing: None }
    }

    /// Seals everything that has been accepted. When this succeeds, it is durable.
    ///
    /// # Errors
    ///
    /// Returns an error if rows cannot be written. They stay in the buffer, unless they can never be written.
    pub(crate) fn seal_all(&mut self) -> Result<()> {
        self.write_all()?;
        self.wait_for_publishing().inspect_err(|error| give_up(&self.core, error))?;
        self.core.check()
    }

    /// As [`seal_all`](Self::seal_all), again and again as long as other processes keep changing the folder, or files look damaged that may
    /// have been misread, but not forever.
    ///
    /// # Errors
    ///
    /// As [`seal_all`](Self::seal_all).
    pub(crate) fn seal_all_in_time(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            let sealed = self.seal_all();
            let pause = match &sealed {
                Ok(()) => None,
                Err(error) if error.kind() == ErrorKind::Contended => Some(CONTENDED_PAUSE),
                Err(_) => self.core.another_look_in(),
            };
            match pause {
                Some(pause) if start.elapsed() < CONTENDED_AT_MOST => thread::sleep(pause),
                _ => return sealed,
            }
        }
    }

    /// Makes what was found of other processes durable.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be synced. This is no statement about rows that wait to be sealed.
    pub(crate) fn sync_names(&self) -> Result<()> {
        let synced = self.core.live().sync_names();
        synced.map_err(|e| Error::io("cannot sync", self.core.storage.path(), e))
    }

    /// Brings what waits on this machine to the folder.
    ///
    /// # Errors
    ///
    /// Returns an error if some of it still waits.
    pub(crate) fn settle(&self) -> Result<()> {
        let settled = self.core.storage.settle();
        settled.map_err(|e| Error::io("cannot write to", self.core.storage.path(), e))
    }

    /// As [`settle`](Self::settle), unless the folder has just been out of reach: nothing is lost by what waits.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    pub(crate) fn settle_at_the_end(&self) -> Result<()> {
        if self.core.storage.is_away() { Ok(()) } else { self.settle() }
    }

    /// Writes everything that has been accepted. It is durable once what is being published [is](Self::published).
    ///
    /// # Errors
    ///
    /// As [`seal_all`](Self::seal_all). Nothing is being published after an error.
    pub(crate) fn write_all(&mut self) -> Result<()> {
        self.core.buffer.freeze();
        self.write_frozen().inspect_err(|error| {
            // In order: what is on its way to the disk may still get there.
            let _ = self.wait_for_publishing();
            give_up(&self.core, error);
        })
    }

    fn write_frozen(&mut self) -> Result<()> {
        while let Some(generation) = self.core.buffer.oldest_after(self.publishing()) {
            if generation.replaces() && self.is_replacing() {
                // A plan that does not know the tombstones of the generation before would not hold: the rows would be written twice.
                self.wait_for_publishing()?;
            }
            let start = Instant::now();
            let written = write(&self.core, &generation)?;
            // Where that failed, what was written now is let go of too, and written again from the buffer.
            self.wait_for_publishing()?;
            self.publish(generation, written, start)?;
        }
        Ok(())
    }

    /// What has been written since `start`.
    fn publish(&mut self, generation: Arc<Generation>, written: Written, start: Instant) -> Result<()> {
        let (done, published) = oneshot::channel();
        let (core, oldest) = (self.core.clone(), Arc::downgrade(&generation));
        let task = move || {
            works_for(&core, Role::Writes);
            let published = publish(&core, &generation, written);
            drop(generation);
            if published.is_ok() {
                core.took(Work::Seal, start);
            }
            // Before it is reported: a store that is closed keeps no file mapped.
            drop(core);
            // The receiver may have gone.
            drop(done.send(published));
        };
        let failed = |e| Error::io("cannot start a thread that syncs", self.core.storage.path(), e);
        spawn("tcx-sync", task).map_err(failed)?;
        self.publishing = Some(Publishing { generation: oldest, published });
        Ok(())
    }

    fn publishing(&self) -> Option<&Weak<Generation>> {
        self.publishing.as_ref().map(|publishing| &publishing.generation)
    }

    /// Whether the generation that is being published creates tombstones.
    fn is_replacing(&self) -> bool {
        let publishing = self.publishing().and_then(Weak::upgrade);
        publishing.is_some_and(|generation| generation.replaces())
    }

    /// Since when the oldest row has waited to be written.
    pub(crate) fn oldest_since(&self) -> Option<Instant> {
        self.core.buffer.oldest_since(self.publishing())
    }

    /// Waits until what is being published is durable; forever if nothing is.
    ///
    /// # Errors
    ///
    /// Returns an error if the rows cannot be written.
    pub(crate) async fn published(&mut self) -> Result<()> {
        let Some(publishing) = &mut self.publishing else { return std::future::pending().await };
        let published = (&mut publishing.published).await;
        self.end_publishing(published).inspect_err(|error| give_up(&self.core, error))
    }

    fn wait_for_publishing(&mut self) -> Result<()> {
        let Some(publishing) = &mut self.publishing else { return Ok(()) };
        let published = wait(&mut publishing.published);
        self.end_publishing(published)
    }

    fn end_publishing(&mut self, published: Result<Result<()>, RecvError>) -> Result<()> {
        self.publishing = None;
        published.unwrap_or_else(|_| {
            let panicked = io::Error::other("the thread that syncs has panicked");
            Err(Error::io("cannot write a segment in", self.core.storage.path(), panicked))
        })
    }
}

impl Drop for SealQueue {
    fn drop(&mut self) {
        // Once the writer has ended, no thread takes rows out of the buffer or turns writing on.
        let _ = self.wait_for_publishing();
    }
}
