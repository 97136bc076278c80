//! What is deprecated and cached all the same: the program that uses it is warned, and the derives are not.

use ::feature_cache::{CacheableOutput, Extractor, Stateless, cached_module};
use ::std::clone::Clone;
use ::std::primitive::bool;
use ::std::string::String;
use ::std::vec::Vec;
use ::tch::Tensor;

/// A field of an output, and a variant of a label.
#[derive(CacheableOutput)]
#[tcx(crate = ::feature_cache)]
pub struct Scores {
    /// Of the new head.
    #[tensor(f32, [2])]
    pub new: Tensor,
    /// Of the old one.
    #[deprecated]
    #[tensor(f32, [2])]
    pub old: Tensor,
    /// By either.
    pub quality: Vec<Quality>,
}

/// A variant, and its number.
#[derive(CacheableOutput)]
#[tcx(crate = ::feature_cache)]
pub enum Quality {
    /// In use.
    Good,
    /// Not any more.
    #[deprecated]
    Bad,
}

/// A whole output.
#[deprecated]
#[derive(CacheableOutput)]
#[tcx(crate = ::feature_cache)]
pub struct Caption {
    /// Anything.
    pub text: Vec<String>,
}

/// Settings of a module.
#[derive(Clone, Stateless)]
#[tcx(crate = ::feature_cache)]
pub struct Settings {
    /// In use.
    pub new: bool,
    /// Not any more.
    #[deprecated]
    pub old: bool,
}

/// One of several steps.
#[derive(Stateless)]
#[tcx(crate = ::feature_cache)]
pub enum Step {
    /// In use.
    New(bool),
    /// Not any more.
    #[deprecated]
    Old(bool),
}

/// A whole module, with a field of its own.
#[deprecated]
#[cached_module(id = "deprecated_v1", crate = ::feature_cache, output(caption: Vec<String>))]
pub struct Deprecated {
    settings: Settings,
    #[deprecated]
    step: Step,
}

#[expect(deprecated, reason = "who writes it uses it")]
impl Extractor for Deprecated {
    type Input = Vec<String>;
    type Output = DeprecatedOutput;

    fn forward(&self, input: &Self::Input) -> ::feature_cache::Result<DeprecatedOutput> {
        ::feature_cache::Result::Ok(DeprecatedOutput { caption: Clone::clone(input) })
    }
}
