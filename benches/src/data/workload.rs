//! The workloads: rows of one f32 vector under string ids, read in shuffled batches.

use tch::{Kind, Tensor, kind};
use tcx::{CachedModule, D1, Extractor, Typed, cached_module};

use crate::Settings;

/// Rows in a batch.
pub(crate) const BATCH: usize = 256;

/// A workload.
pub(crate) trait Workload:
    CachedModule<Input = Tensor, Key = <W1 as CachedModule>::Key, Output: Send> + Send + Sync + 'static
{
    const NAME: &'static str;
    const ROWS: usize;
    const WIDTH: usize;
    fn new() -> Self;
    fn tensor(output: Self::Output) -> Tensor;

    fn rows(settings: &Settings) -> usize {
        settings.rows(Self::ROWS)
    }

    /// Bytes of a row.
    fn bytes() -> usize {
        Self::WIDTH * 4
    }
}

/// 100,000 rows of 2048 f32: the features of a ResNet-50.
#[cached_module(id = "w1_v1")]
pub(crate) struct W1 {}

/// 1,000,000 rows of 64 f32: many small rows.
#[cached_module(id = "w2_v1")]
pub(crate) struct W2 {}

/// 1,000 rows of 76,800 f32: the patches of large images.
#[cached_module(id = "w4_v1")]
pub(crate) struct W4 {}

/// Rows of 8 f32, for a growing cache.
#[cached_module(id = "tiny_v1")]
pub(crate) struct Tiny {}

macro_rules! workload {
    ($module:ident, $name:literal, $rows:literal, $width:literal) => {
        impl Extractor for $module {
            type Input = Tensor;
            type Output = Typed<f32, D1<$width>>;

            /// Returns its inputs, so that only the cache is measured.
            fn forward(&self, rows: &Tensor) -> tcx::Result<Self::Output> {
                Ok(rows.shallow_clone().into())
            }
        }

        impl Workload for $module {
            const NAME: &'static str = $name;
            const ROWS: usize = $rows;
            const WIDTH: usize = $width;

            fn new() -> Self {
                Self {}
            }

            fn tensor(output: Self::Output) -> Tensor {
                output.into()
            }
        }
    };
}

workload!(W1, "w1", 100_000, 2048);
workload!(W2, "w2", 1_000_000, 64);
workload!(W4, "w4", 1_000, 76_800);
workload!(Tiny, "tiny", 10_000_000, 8);

/// The inputs of rows `start..start + rows`: each element is its row's number.
pub(crate) fn rows<W: Workload>(start: usize, rows: usize) -> Tensor {
    let numbers =
        Tensor::arange_start(start as i64, (start + rows) as i64, kind::INT64_CPU).to_kind(Kind::Float);
    numbers.unsqueeze(1).expand([rows as i64, W::WIDTH as i64], false).contiguous()
}

/// All row numbers, shuffled the same way each time.
pub(crate) fn shuffled(rows: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..rows).rev() {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
        order.swap(last, (random % (last as u64 + 1)) as usize);
    }
    order
}

/// The ids of these rows.
pub(crate) fn ids(rows: impl IntoIterator<Item = usize>) -> Vec<String> {
    rows.into_iter().map(|row| format!("sample_{row}")).collect()
}
