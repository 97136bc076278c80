//! The cached module: prepared images in, features out.

use std::path::Path;

use tch::nn::{self, ModuleT};
use tch::vision::resnet::resnet50_no_final_layer;
use tch::{Device, Tensor};
use tcx::{CacheableOutput, Extractor, Frozen, cached_module};

use crate::prepare::{IMAGENET, Preparation};

/// How many numbers describe an image.
pub(crate) const SIZE: usize = 2048;
/// What random weights are made from: the same ones in every run.
const SEED: i64 = 50;

/// What the network says about some images.
#[derive(CacheableOutput)]
pub(crate) struct Features {
    #[tensor(f32, [SIZE])]
    pub(crate) pooled: Tensor,
}

/// ResNet-50 without its last layer. The weights and what is done to the images before are fields, so they are
/// part of the cache's identity: with others, this cache is refused instead of misread.
#[cached_module(id = "resnet50_v1")]
pub(crate) struct ResNet50 {
    backbone: Frozen<nn::FuncT<'static>>,
    preparation: Preparation,
}

impl ResNet50 {
    /// With the weights of a file, or else with random ones.
    pub(crate) fn load(weights: Option<&Path>) -> tcx::Result<Self> {
        let backbone = if let Some(file) = weights {
            Frozen::load(Device::Cpu, file, network)?
        } else {
            tch::manual_seed(SEED);
            Frozen::build(nn::VarStore::new(Device::Cpu), network)?
        };
        Ok(Self { backbone, preparation: IMAGENET })
    }
}

/// Where the weights are from, for the screen.
pub(crate) fn described(weights: Option<&Path>) -> String {
    match weights {
        Some(file) => file.display().to_string(),
        None => "random ones, which know nothing of images (`--weights` names trained ones)".to_owned(),
    }
}

fn network(path: &nn::Path<'_>) -> nn::FuncT<'static> {
    let network = resnet50_no_final_layer(path);
    nn::func_t(move |images, train| network.forward_t(images, train))
}

impl Extractor for ResNet50 {
    type Input = Tensor;
    type Output = Features;

    fn forward(&self, images: &Tensor) -> tcx::Result<Features> {
        Ok(Features { pooled: self.backbone.forward_t(images, false) })
    }
}
