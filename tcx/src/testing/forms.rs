//! The forms in which tensors are stored, each written as one type and read as another.

use tcx_store::{Column, DYNAMIC_DIM, Identity, KeyType, Keys, Memory, Options, Spec, Store};

use super::plain::Plain;
use super::{failed, is_rank, tensor};
use crate::Result;
use crate::output::leaf::{Dense, Ragged, TensorField, Varying};
use crate::output::typed::{D1, D2, D4, D5, Shape};
use crate::output::{ColumnReader, ColumnWriter};
use crate::tensor::{Device, Element, Row, TensorLike};

/// The samples of a batch.
const SAMPLES: usize = 7;

/// Samples of one shape.
pub(super) fn check_dense<T: TensorLike, E: Element, S: Shape>(layouts: &impl Fn(T) -> Vec<T>) -> Result<()> {
    if is_rank::<T>(S::DIMS.len() + 1) {
        for samples in [0, SAMPLES] {
            let shape = [&[samples], S::DIMS].concat();
            for own in layouts(tensor(E::DTYPE, &shape)?) {
                let plain = tensor::<Plain>(E::DTYPE, &shape)?;
                exchange::<Dense<E, S>, _, _>("one tensor for the batch", samples, &own, &plain)?;
            }
        }
    }
    if is_rank::<T>(S::DIMS.len()) {
        let shapes: Vec<_> = (0..SAMPLES).map(|sample| (sample % 3 != 1).then(|| S::DIMS.to_vec())).collect();
        let own: Vec<Option<T>> = tensors::<T, E>(&shapes, layouts)?;
        let plain: Vec<Option<Plain>> = tensors::<Plain, E>(&shapes, &|plain| vec![plain])?;
        exchange::<Dense<E, S>, _, _>("samples that need not have a value", SAMPLES, &own, &plain)?;
    }
    Ok(())
}

/// Samples that differ in size.
pub(super) fn check_varying<T: TensorLike, E: Element>(layouts: &impl Fn(T) -> Vec<T>) -> Result<()> {
    check_sizes::<T, E, D1<DYNAMIC_DIM>>(layouts)?;
    check_sizes::<T, E, D2<DYNAMIC_DIM, 3>>(layouts)?;
    check_sizes::<T, E, D2<2, DYNAMIC_DIM>>(layouts)?;
    check_sizes::<T, E, D4<2, DYNAMIC_DIM, 3, DYNAMIC_DIM>>(layouts)?;
    check_sizes::<T, E, D5<DYNAMIC_DIM, 1, 2, 1, 2>>(layouts)?;
    check_ragged::<T, E, D1<DYNAMIC_DIM>>(layouts)?;
    check_ragged::<T, E, D2<DYNAMIC_DIM, 3>>(layouts)
}

/// The shape of a sample whose first varying dimension has this size.
fn sized<S: Shape>(size: usize) -> Vec<usize> {
    let dim = |(at, &dim): (usize, &usize)| if dim == DYNAMIC_DIM { (size + at) % 4 } else { dim };
    S::DIMS.iter().enumerate().map(dim).collect()
}

fn check_sizes<T: TensorLike, E: Element, S: Shape>(layouts: &impl Fn(T) -> Vec<T>) -> Result<()> {
    if !is_rank::<T>(S::DIMS.len()) {
        return Ok(());
    }
    let shapes: Vec<_> = (0..SAMPLES).map(|sample| Some(sized::<S>(sample))).collect();
    let own: Vec<T> = tensors::<T, E>(&shapes, layouts)?.into_iter().flatten().collect();
    let plain: Vec<Plain> =
        tensors::<Plain, E>(&shapes, &|plain| vec![plain])?.into_iter().flatten().collect();
    exchange::<Varying<E, S>, _, _>("samples that differ in size", SAMPLES, &own, &plain)?;
    let shapes: Vec<_> = (0..SAMPLES).map(|sample| (sample % 2 == 1).then(|| sized::<S>(sample))).collect();
    let own: Vec<Option<T>> = tensors::<T, E>(&shapes, layouts)?;
    let plain: Vec<Option<Plain>> = tensors::<Plain, E>(&shapes, &|plain| vec![plain])?;
    exchange::<Varying<E, S>, _, _>(
        "samples that differ in size and need not have a value",
        SAMPLES,
        &own,
        &plain,
    )
}

fn check_ragged<T: TensorLike, E: Element, S: Shape>(layouts: &impl Fn(T) -> Vec<T>) -> Result<()> {
    if !is_rank::<T>(S::DIMS.len()) {
        return Ok(());
    }
    let mut ends = vec![0_i64];
    for size in [2, 0, 1, 3, 0, 4, 1] {
        ends.push(ends[ends.len() - 1] + size);
    }
    let mut shape = S::DIMS.to_vec();
    shape[0] = ends[SAMPLES] as usize;
    for values in layouts(tensor(E::DTYPE, &shape)?) {
        let own = Ragged { values, offsets: Row(ends.clone()) };
        let plain: Ragged<Plain, Row<i64>> =
            Ragged { values: tensor(E::DTYPE, &shape)?, offsets: Row(ends.clone()) };
        exchange::<Varying<E, S>, _, _>("samples that are joined", SAMPLES, &own, &plain)?;
    }
    Ok(())
}

/// A tensor for each sample that has a shape, in a layout of its own.
fn tensors<T: TensorLike, E: Element>(
    shapes: &[Option<Vec<usize>>],
    layouts: &impl Fn(T) -> Vec<T>,
) -> Result<Vec<Option<T>>> {
    let make = |(sample, shape): (usize, &Option<Vec<usize>>)| {
        let Some(shape) = shape else { return Ok(None) };
        let mut all = layouts(tensor::<T>(E::DTYPE, shape)?);
        if all.is_empty() {
            return Err(failed("the layouts", "are none"));
        }
        Ok(Some(all.swap_remove(sample % all.len())))
    };
    shapes.iter().enumerate().map(make).collect()
}

/// What an output consists of.
trait Parts {
    fn parts(&self) -> Result<Vec<Option<Plain>>>;
}

impl<T: TensorLike> Parts for T {
    fn parts(&self) -> Result<Vec<Option<Plain>>> {
        Ok(vec![Some(Plain::of(self)?)])
    }
}

impl<T: TensorLike> Parts for Vec<T> {
    fn parts(&self) -> Result<Vec<Option<Plain>>> {
        self.iter().map(|tensor| Plain::of(tensor).map(Some)).collect()
    }
}

impl<T: TensorLike> Parts for Vec<Option<T>> {
    fn parts(&self) -> Result<Vec<Option<Plain>>> {
        self.iter().map(|tensor| tensor.as_ref().map(Plain::of).transpose()).collect()
    }
}

impl<T: TensorLike> Parts for Ragged<T, Row<i64>> {
    fn parts(&self) -> Result<Vec<Option<Plain>>> {
        Ok(vec![Some(Plain::of(&self.values)?), Some(Plain::of(&self.offsets)?)])
    }
}

/// Both are stored, and each is read as both.
fn exchange<C, A, B>(what: &str, samples: usize, own: &A, plain: &B) -> Result<()>
where
    A: TensorField<C> + Parts,
    B: TensorField<C> + Parts,
{
    let expected = plain.parts()?;
    let check = |how: &str, found: Result<Vec<Option<Plain>>>| {
        let what = format!("{what}, {how}");
        let found = found.map_err(|error| failed(&what, &format!("{error:#}")))?;
        check_parts(&what, &found, &expected)
    };
    check("not stored", own.parts())?;
    for is_durable in [false, true] {
        let columns = |field: &dyn Fn(&mut ColumnWriter) -> Result<()>| {
            let mut writer = ColumnWriter::new(samples);
            field(&mut writer).map(|()| writer.finish())
        };
        let store = stored::<C, A>(samples, columns(&|writer| own.write(writer))?, is_durable)?;
        check("written and read", read::<C, A>(&store, samples))?;
        check("read without a library", read::<C, B>(&store, samples))?;
        let store = stored::<C, A>(samples, columns(&|writer| plain.write(writer))?, is_durable)?;
        check("written without a library", read::<C, A>(&store, samples))?;
    }
    Ok(())
}

fn check_parts(what: &str, found: &[Option<Plain>], expected: &[Option<Plain>]) -> Result<()> {
    if found.len() != expected.len() {
        return Err(failed(what, &format!("expected {} tensors, found {}", expected.len(), found.len())));
    }
    for (sample, pair) in found.iter().zip(expected).enumerate() {
        let what = format!("{what}, tensor {sample}");
        match pair {
            (None, None) => {}
            (Some(found), Some(expected)) => found.check_same(&what, expected)?,
            (Some(_), None) => return Err(failed(&what, "expected none")),
            (None, Some(_)) => return Err(failed(&what, "is absent")),
        }
    }
    Ok(())
}

/// A store in memory with these rows.
fn stored<C, F: TensorField<C>>(
    samples: usize,
    columns: Vec<Column>,
    is_durable: bool,
) -> Result<std::sync::Arc<Store>> {
    let spec = Spec::new("tensors_v1", KeyType::Int, &F::COLUMN, Identity::default(), Vec::new())?;
    let store = Store::open_in_memory(&Memory::default(), spec, &Options::default())?;
    let mut rows = store.lookup(Keys::ints(0..samples as i64, 0))?;
    store.insert(&mut rows, &(0..samples).collect::<Vec<_>>(), columns)?;
    if is_durable {
        store.flush()?;
    }
    Ok(store)
}

fn read<C, F: TensorField<C> + Parts>(store: &Store, samples: usize) -> Result<Vec<Option<Plain>>> {
    let rows = store.lookup(Keys::ints(0..samples as i64, 0))?;
    F::read(&mut ColumnReader::of(&rows, const { &F::COLUMN }, &Device::CPU))?.parts()
}
