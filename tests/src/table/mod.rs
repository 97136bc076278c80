//! Every dtype and rank, in every form of output, requested in every way: the cache returns, bit for bit, what the module
//! returns. The modules compute each sample exactly.

pub mod modules;
pub mod values;
pub mod varying;

use std::ops::Range;
use std::path::Path;

use tch::Tensor;
use tcx::{Cache, Cached, CachedModule, Element, bf16, f16};

use crate::bits::Parts;
use modules::{
    BF16, Bool, F16, F32, F64, I8, I16, I32, I64, InPlaceBF16, InPlaceBool, InPlaceF16, InPlaceF32,
    InPlaceF64, InPlaceI8, InPlaceI16, InPlaceI32, InPlaceI64, InPlaceU8, Made, Makes, Nested, Rank0, Rank1,
    Rank2, Rank3, Rank4, Rank5, Tuple, U8,
};
use values::Values;
use varying::{
    Varying, VaryingBF16, VaryingBool, VaryingF16, VaryingF32, VaryingF64, VaryingI8, VaryingI16, VaryingI32,
    VaryingI64, VaryingU8,
};

/// A module of the table.
pub trait Module:
    CachedModule<Input = Tensor, Output: Parts, Key = <InPlaceF32 as CachedModule>::Key> + Default + Send
{
}

impl<M> Module for M where
    M: CachedModule<Input = Tensor, Output: Parts, Key = <InPlaceF32 as CachedModule>::Key> + Default + Send
{
}

/// One cell of the table, with a folder of its own.
pub struct Case {
    pub form: &'static str,
    pub name: String,
    run: fn(&Cache, Step),
}

/// What a process does.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The first: everything is computed, found, and partly found.
    First,
    /// Another one: finds what the first has computed, and computes more.
    Other,
    /// The first again, after opening the cache again: everything is found.
    Again,
}

impl Case {
    fn of<M: Module>(form: &'static str, name: &str) -> Self {
        Self { form, name: name.to_owned(), run: run::<M> }
    }

    /// Runs a step in the folder of all cases.
    pub fn run(&self, dir: &Path, step: Step) {
        let cache = Cache::open(dir.join(self.form).join(&self.name)).unwrap();
        (self.run)(&cache, step);
        cache.close().unwrap();
    }

    /// Runs all steps in memory, where no other process sees the rows.
    pub fn run_in_memory(&self) {
        let cache = Cache::in_memory();
        for step in [Step::First, Step::Other, Step::Again] {
            (self.run)(&cache, step);
        }
    }
}

/// The table.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::of::<Makes<Values>>("struct", "values"),
        Case::of::<Makes<Varying>>("struct", "varying"),
        Case::of::<Makes<Nested<Varying>>>("nested", "varying"),
    ];
    cases.extend(dtype::<f16, F16, InPlaceF16, VaryingF16>("f16"));
    cases.extend(dtype::<bf16, BF16, InPlaceBF16, VaryingBF16>("bf16"));
    cases.extend(dtype::<f32, F32, InPlaceF32, VaryingF32>("f32"));
    cases.extend(dtype::<f64, F64, InPlaceF64, VaryingF64>("f64"));
    cases.extend(dtype::<i8, I8, InPlaceI8, VaryingI8>("i8"));
    cases.extend(dtype::<i16, I16, InPlaceI16, VaryingI16>("i16"));
    cases.extend(dtype::<i32, I32, InPlaceI32, VaryingI32>("i32"));
    cases.extend(dtype::<i64, I64, InPlaceI64, VaryingI64>("i64"));
    cases.extend(dtype::<u8, U8, InPlaceU8, VaryingU8>("u8"));
    cases.extend(dtype::<bool, Bool, InPlaceBool, VaryingBool>("bool"));
    cases
}

fn dtype<E, F, I, V>(name: &str) -> [Case; 11]
where
    E: Element,
    F: Made,
    I: Module,
    V: Made,
{
    let rank = |rank| format!("{name} rank {rank}");
    [
        Case::of::<Makes<F>>("struct", name),
        Case::of::<Makes<V>>("struct", &format!("{name} varying")),
        Case::of::<Makes<Nested<F>>>("nested", name),
        Case::of::<Makes<Tuple<E>>>("tuple", name),
        Case::of::<I>("inline", name),
        Case::of::<Makes<Rank0<E>>>("direct", &rank(0)),
        Case::of::<Makes<Rank1<E>>>("direct", &rank(1)),
        Case::of::<Makes<Rank2<E>>>("direct", &rank(2)),
        Case::of::<Makes<Rank3<E>>>("direct", &rank(3)),
        Case::of::<Makes<Rank4<E>>>("direct", &rank(4)),
        Case::of::<Makes<Rank5<E>>>("direct", &rank(5)),
    ]
}

fn run<M: Module>(cache: &Cache, step: Step) {
    let cached = cache.module(M::default()).unwrap();
    match step {
        Step::First => {
            ask(&cached, 0..0, 0);
            ask(&cached, 0..7, 7);
            ask(&cached, 0..7, 0);
            ask(&cached, 4..12, 5);
            cache.flush().unwrap();
            // Rows that are sealed and rows that are buffered, in one batch.
            ask(&cached, 9..15, 3);
        }
        Step::Other => {
            ask(&cached, 0..15, 0);
            ask(&cached, 11..31, 16);
        }
        Step::Again => ask(&cached, 0..31, 0),
    }
}

/// Requests some samples, forwards and backwards, and counts those that were computed.
fn ask<M: Module>(cached: &Cached<M>, samples: Range<i64>, computed: u64) {
    let before = cached.stats().misses;
    let mut ids: Vec<i64> = samples.collect();
    is_exact(cached, &ids);
    assert_eq!(cached.stats().misses - before, computed, "{}: {ids:?}", M::ID);
    ids.extend(ids.clone().into_iter().rev());
    is_exact(cached, &ids);
    assert_eq!(cached.stats().misses - before, computed, "{}: {ids:?}", M::ID);
}

/// The output for these samples, from the cache and from the module, is the same.
pub fn is_exact<M: Module>(cached: &Cached<M>, ids: &[i64]) {
    let inputs = Tensor::from_slice(ids);
    let (found, expected) = (cached.forward(ids, &inputs).unwrap(), M::default().forward(&inputs).unwrap());
    assert!(found.parts() == expected.parts(), "{}: {ids:?}", M::ID);
}
