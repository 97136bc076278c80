//! The macros behind `macro_rules!`, which wraps what it is given into invisible groups.

use ::feature_cache::{CacheableOutput, Extractor, cached_module};
use ::std::vec::Vec;
use ::tch::Tensor;

macro_rules! module {
    ($output:ident { $field:ident: $ty:ty, $dtype:ident, $dim:expr, $other:ty }, $module:ident, $id:literal, $state:ty) => {
        /// Declared by a macro.
        #[derive(CacheableOutput)]
        #[tcx(crate = ::feature_cache)]
        pub(crate) struct $output {
            #[tensor($dtype, [$dim])]
            $field: $ty,
            other: $other,
        }

        /// Declared by a macro.
        #[cached_module(id = $id, crate = ::feature_cache)]
        pub(crate) struct $module {
            state: $state,
        }

        impl Extractor for $module {
            type Input = Tensor;
            type Output = $output;

            fn forward(&self, input: &Tensor) -> ::feature_cache::Result<$output> {
                ::feature_cache::Result::Ok($output { $field: input.shallow_clone(), other: Vec::new() })
            }
        }
    };
}

module!(Small { vector: Tensor, f32, 8, Vec<i64> }, First, "first_v1", i64);
module!(Large { matrix: ::tch::Tensor, f16, 8 * 4, Vec<f32> }, Second, "second_v1", (f64, bool));

macro_rules! in_place {
    ($module:ident, $output:ident, $id:literal, $field:ident, $dtype:ident, $dim:expr, $other:ty) => {
        /// Declared by a macro.
        #[cached_module(id = $id, crate = ::feature_cache, output($field: tensor($dtype, [$dim]), other: $other))]
        pub(crate) struct $module;

        impl Extractor for $module {
            type Input = Tensor;
            type Output = $output;

            fn forward(&self, input: &Tensor) -> ::feature_cache::Result<$output> {
                ::feature_cache::Result::Ok($output { $field: input.shallow_clone(), other: Vec::new() })
            }
        }
    };
}

in_place!(Third, ThirdOutput, "third_v1", vector, f32, 8, Vec<i64>);
