//! Where the rows of a module come from: from its weights, and from those of the modules whose outputs are its inputs. What
//! changed weights have computed must not become durable, nor what other modules have made of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tcx_store::Attestation;

use crate::Result;
use crate::identity::watch::{Memories, Verdict};

/// The weights of one module in a cache, in every handle that has computed something. It keeps none of them in memory: handles do, and
/// rows until they are written. What was found of weights that are gone stays.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    computed: Mutex<Computed>,
}

#[derive(Debug, Default)]
struct Computed {
    weights: Vec<(Weak<Memories>, Arc<Verdict>)>,
    /// Whether other modules come after this one.
    is_followed: bool,
}

impl Origin {
    fn add(&self, own: &Arc<Memories>) {
        let mut computed = self.computed();
        if computed.is_followed {
            own.verdict().follow();
        }
        if !computed.weights.iter().any(|(_, other)| Arc::ptr_eq(other, own.verdict())) {
            computed.weights.retain(|(_, verdict)| !verdict.is_settled());
            computed.weights.push((Arc::downgrade(own), own.verdict().clone()));
        }
    }

    fn follow(&self) {
        let mut computed = self.computed();
        computed.is_followed = true;
        for (_, verdict) in &computed.weights {
            verdict.follow();
        }
    }

    fn computed(&self) -> MutexGuard<'_, Computed> {
        self.computed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sources of the rows of one handle.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The modules whose outputs are the inputs.
    before: Vec<Arc<Self>>,
    /// Shared by the handles of the module: nothing shows which of them has computed an output that is an input of another module.
    origin: Arc<Origin>,
    /// What was last asked for the rows, and the weights that it looks at.
    asked: Mutex<(Weak<Attestation>, Vec<Weak<Memories>>)>,
}

impl Sources {
    /// Of a handle of the module with this origin, which comes after these.
    pub(crate) fn new(origin: Arc<Origin>, before: Vec<Arc<Self>>) -> Arc<Self> {
        for before in &before {
            before.origin.follow();
        }
        Arc::new(Self { before, origin, asked: Mutex::default() })
    }

    /// What the store asks before it makes rows durable that these weights have just computed, if there are any weights.
    ///
    /// # Errors
    ///
    /// Returns an error that names a weight of the modules before this one, if that weight is known to have changed.
    pub(crate) fn attestation(
        &self,
        own: Option<(&Arc<Attestation>, &Arc<Memories>)>,
    ) -> Result<Option<Arc<Attestation>>> {
        let mut memories = Vec::new();
        self.before.iter().try_for_each(|before| before.gather(&mut memories))?;
        // Before the rows are handed out: modules after this one gather these weights then.
        if let Some((_, own)) = own {
            self.origin.add(own);
        }
        if memories.is_empty() {
            return Ok(own.map(|(attestation, _)| attestation.clone()));
        }
        memories.iter().try_for_each(|memories| memories.check_known())?;
        memories.extend(own.map(|(_, memories)| memories.clone()));
        // The writer asks each attestation once for all rows, so that it has to be the same one as long as rows wait.
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, of) = &mut *asked;
        let is_of = of.len() == memories.len()
            && of.iter().zip(&memories).all(|(of, own)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(own)));
        if let Some(last) = last.upgrade().filter(|_| is_of) {
            return Ok(Some(last));
        }
        *of = memories.iter().map(Arc::downgrade).collect();
        let attestation = Attestation::new(move || {
            memories.iter().try_for_each(|memories| memories.check()).map_err(|error| format!("{error:#}"))
        });
        *last = Arc::downgrade(&attestation);
        Ok(Some(attestation))
    }

    /// The weights behind the rows of this module and of those before it, each once.
    ///
    /// # Errors
    ///
    /// Returns an error that names a weight of a handle that is gone, if that weight had changed.
    fn gather(&self, memories: &mut Vec<Arc<Memories>>) -> Result<()> {
        self.before.iter().try_for_each(|before| before.gather(memories))?;
        // Without the lock: weights that go in this moment are waited for.
        let computed = self.origin.computed().weights.clone();
        for (own, verdict) in computed {
            let Some(own) = own.upgrade() else {
                verdict.check_ended()?;
                continue;
            };
            if !memories.iter().any(|other| Arc::ptr_eq(&own, other)) {
                memories.push(own);
            }
        }
        Ok(())
    }
}
