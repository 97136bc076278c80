//! What the programs of this crate share. Each caches the same module with another tensor library, so that one reads what another
//! has computed. A module's id is unique in a program, so that these are several.

#![expect(missing_docs, clippy::missing_panics_doc, clippy::unwrap_used, reason = "what only tests use")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use tcx::{Cache, CachedModule, I64Ids, Identity, Missing};

/// The samples of every program.
pub const IDS: [i64; 3] = [1, 2, 3];

/// The numbers of inputs and outputs of the layer.
pub const INPUTS: usize = 4;
pub const OUTPUTS: usize = 2;

/// The forward passes of this program.
pub static COMPUTED: AtomicUsize = AtomicUsize::new(0);

/// The numbers of a sample: as many as its id says, the others are zero.
pub fn sample(id: i64) -> [f32; INPUTS] {
    std::array::from_fn(|at| if at < id as usize { id as f32 / (at + 1) as f32 } else { 0. })
}

/// The arguments of a program: the folder of the cache, and the file of weights.
pub fn arguments() -> (PathBuf, PathBuf) {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(cache), Some(weights)) = (arguments.next(), arguments.next()) else {
        panic!("usage: PROGRAM CACHE WEIGHTS")
    };
    (cache, weights)
}

/// Caches the module, and prints the number of its forward passes, the bytes of the rows, and its identity.
pub fn run<M>(module: M, inputs: impl Fn(&[i64]) -> M::Input, bytes: impl Fn(&M::Output) -> Vec<u8>)
where
    M: CachedModule<Key = I64Ids>,
{
    let identity = Identity::of(&module).to_string();
    let cache = Cache::open(arguments().0).unwrap();
    let cached = cache.module(module).unwrap();
    let load = |missing: Missing<'_, i64>| Ok(inputs(&missing.ids().copied().collect::<Vec<_>>()));
    let rows = cached.fetch(&IDS, load).unwrap();
    cached.flush().unwrap();
    println!("{}\n{:?}\n{identity}", COMPUTED.load(Ordering::Relaxed), bytes(&rows));
}
