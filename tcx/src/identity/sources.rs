//! Where the rows of a module come from: from its weights, and from those of the modules whose outputs are its inputs. What
//! changed weights have computed must not become durable, nor what other modules have made of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tcx_store::Attestation;

use crate::identity::Identity;
use crate::identity::watch::Memories;

/// The sources of a module's rows.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// The modules whose outputs are the inputs.
    before: Vec<Arc<Self>>,
    state: Mutex<State>,
}

/// Nothing here keeps weights in memory: rows do, until they are written.
#[derive(Debug, Default)]
struct State {
    /// The module's own weights, once they have computed something.
    own: Weak<Memories>,
    /// What was last asked for the rows, and the weights that it looks at.
    asked: (Weak<Attestation>, Vec<Weak<Memories>>),
}

impl Sources {
    /// Of a module that comes after these.
    pub(crate) fn after(before: Vec<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { before, state: Mutex::default() })
    }

    /// What the store asks before it makes rows durable that these weights have just computed, if the module has any.
    pub(crate) fn attestation(
        &self,
        own: Option<(&Arc<Attestation>, &Arc<Memories>)>,
    ) -> Option<Arc<Attestation>> {
        let mut memories = Vec::new();
        self.before.iter().for_each(|before| before.gather(&mut memories));
        let mut state = self.state();
        state.own = own.map_or_else(Weak::new, |(_, memories)| Arc::downgrade(memories));
        if memories.is_empty() {
            return own.map(|(attestation, _)| attestation.clone());
        }
        memories.extend(own.map(|(_, memories)| memories.clone()));
        // The writer asks each attestation once for all rows, so that it has to be the same one as long as rows wait.
        let State { asked: (asked, of), .. } = &mut *state;
        let is_of = of.len() == memories.len()
            && of.iter().zip(&memories).all(|(of, own)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(own)));
        if let Some(asked) = asked.upgrade().filter(|_| is_of) {
            return Some(asked);
        }
        *of = memories.iter().map(Arc::downgrade).collect();
        let attestation = Attestation::new(move || {
            memories.iter().try_for_each(|memories| memories.check()).map_err(|error| format!("{error:#}"))
        });
        *asked = Arc::downgrade(&attestation);
        Some(attestation)
    }

    /// The weights behind the rows of this module and of those before it, each once.
    fn gather(&self, memories: &mut Vec<Arc<Memories>>) {
        self.before.iter().for_each(|before| before.gather(memories));
        let own = self.state().own.upgrade();
        memories.extend(own.filter(|own| !memories.iter().any(|other| Arc::ptr_eq(own, other))));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Identity {
    /// The sources of a module of this identity.
    pub(crate) fn sources(&self) -> Arc<Sources> {
        Sources::after(self.before.clone())
    }
}
