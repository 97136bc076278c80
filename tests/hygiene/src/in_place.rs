//! Public outputs that are declared with their module: documented, and `Debug` if their fields are.

#![deny(missing_debug_implementations)]

use ::feature_cache::{CacheableOutput, Extractor, cached_module};
use ::std::clone::Clone;
use ::std::fmt::Debug;
use ::std::string::String;
use ::std::vec::Vec;
use ::tch::Tensor;

use crate::generics::Backbone;

/// Generic, with an output that is not.
#[cached_module(id = "in_place_v2", crate = ::feature_cache, output(caption: Vec<String>, vectors: tensor(f32, [8])))]
#[derive(Debug)]
pub struct InPlace<'a, B: Backbone> {
    backbone: &'a B,
}

impl<B: Backbone> Extractor for InPlace<'_, B> {
    type Input = (Tensor, Vec<String>);
    type Output = InPlaceOutput;

    fn forward(&self, input: &Self::Input) -> ::feature_cache::Result<InPlaceOutput> {
        let vectors = self.backbone.run(&input.0);
        ::feature_cache::Result::Ok(InPlaceOutput { caption: Clone::clone(&input.1), vectors })
    }
}

/// No `Debug`, and no reason for one.
#[derive(CacheableOutput)]
#[tcx(crate = ::feature_cache)]
#[expect(missing_debug_implementations, reason = "an output that holds one is none either")]
pub struct Opaque {
    /// Anything.
    pub caption: Vec<String>,
}

#[cached_module(id = "opaque_v1", crate = ::feature_cache, output(opaque: Opaque))]
struct Holds;

impl Extractor for Holds {
    type Input = Vec<String>;
    type Output = HoldsOutput;

    fn forward(&self, input: &Vec<String>) -> ::feature_cache::Result<HoldsOutput> {
        ::feature_cache::Result::Ok(HoldsOutput { opaque: Opaque { caption: Clone::clone(input) } })
    }
}

const fn is_debug<T: Debug>() {}
const _: () = is_debug::<InPlaceOutput>();
