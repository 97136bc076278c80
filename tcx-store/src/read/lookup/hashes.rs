//! The hashes of the keys of a lookup.

use super::Lookup;
use crate::schema::key::{KeyHash, KeySeed};

/// The hashes by which the keys are looked for in index runs.
#[derive(Debug, Default)]
pub(super) struct Hashes {
    /// By position; of no key as long as no run was looked into.
    hashes: Vec<KeyHash>,
    seed: Option<KeySeed>,
}

impl Lookup {
    /// Hashes the keys as a run of this seed does. All runs of a cache have the same one, but for those of earlier versions.
    #[inline]
    pub(crate) fn hash_keys(&mut self, seed: KeySeed) {
        if self.hashes.seed != Some(seed) {
            self.hash_again(seed);
        }
    }

    fn hash_again(&mut self, seed: KeySeed) {
        self.hashes.hashes.clear();
        self.hashes.hashes.extend((0..self.keys.len()).map(|position| self.keys.hash(position, seed)));
        self.hashes.seed = Some(seed);
    }

    /// The hash of a key; [`hash_keys`](Self::hash_keys) was called.
    #[inline]
    pub(crate) fn hash(&self, position: usize) -> KeyHash {
        self.hashes.hashes[position]
    }
}
