//! Types of tensors that fix their dtype or their rank, compared with declarations while the user's program is compiled.

use tcx_store::DType;

use super::TensorLike;

/// What the type of a tensor fixes.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    dtypes: &'static [DType],
    rank: Option<usize>,
}

impl Fixed {
    /// By the type of a tensor.
    pub(crate) const fn by<T: TensorLike>() -> Self {
        Self { dtypes: T::DTYPES, rank: T::RANK }
    }
}

/// Compiles only if a tensor of the type can hold elements of `dtype` in `rank` dimensions.
pub(crate) const fn assert_fits(fixed: Fixed, dtype: DType, rank: usize) {
    let mut i = 0;
    while i < fixed.dtypes.len() && fixed.dtypes[i] as u8 != dtype as u8 {
        i += 1;
    }
    assert!(i < fixed.dtypes.len(), "{}", cannot_hold(dtype));
    if let Some(found) = fixed.rank {
        assert!(found == rank, "{}", needs_rank(rank));
    }
}

/// No text can be put together before the program runs, other than by `concat!`.
macro_rules! texts {
    ($of:expr, $before:literal, $after:literal, $($pattern:pat => $text:literal),* $(,)?) => {
        match $of {
            $($pattern => concat!($before, $text, $after),)*
            _ => concat!($before, "other", $after),
        }
    };
}

const fn cannot_hold(dtype: DType) -> &'static str {
    texts!(
        dtype,
        "the declared dtype is `",
        "`, which tensors of this type cannot hold: declare the dtype that they hold, or use a type that holds this one",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U8 => "u8",
        DType::Bool => "bool",
    )
}

const fn needs_rank(rank: usize) -> &'static str {
    texts!(
        rank,
        "the declared shape needs tensors of ",
        ", and tensors of this type have another number: the tensor of a batch has one dimension more than a sample, and of \
         samples that differ in size, each has a tensor of its own",
        0 => "no dimensions",
        1 => "1 dimension",
        2 => "2 dimensions",
        3 => "3 dimensions",
        4 => "4 dimensions",
        5 => "5 dimensions",
        6 => "6 dimensions",
    )
}
