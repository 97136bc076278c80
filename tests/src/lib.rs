//! Whole-system tests of tcx: what a user's program sees. This crate contains the modules that several processes of a test
//! share.

#![expect(missing_docs, clippy::missing_panics_doc, clippy::unwrap_used, reason = "what only tests use")]

pub mod bits;
pub mod devices;
pub mod place;
pub mod table;
pub mod threads;

use std::time::{Duration, Instant};

use tch::nn::{self, Module};
use tch::{Device, Tensor};
use tcx::{D1, Extractor, Frozen, Typed, cached_module};

/// Its id times its weight, eight times.
#[cached_module(id = "scaled_v1", key = i64)]
pub struct Scaled {
    fc: Frozen<nn::Linear>,
}

impl Extractor for Scaled {
    type Input = Tensor;
    type Output = Typed<f32, D1<8>>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.fc.forward(inputs).into())
    }
}

impl Scaled {
    pub fn new(weight: f64) -> Self {
        let init = nn::LinearConfig { ws_init: nn::Init::Const(weight), bs_init: None, bias: false };
        let fc = Frozen::build(nn::VarStore::new(Device::Cpu), |path| nn::linear(path, 1, 8, init));
        Self { fc: fc.unwrap() }
    }

    /// The inputs of these ids.
    pub fn input(ids: &[i64]) -> Tensor {
        let values: Vec<f32> = ids.iter().map(|&id| id as f32).collect();
        Tensor::from_slice(&values).unsqueeze(1)
    }

    /// Every row is its id times the weight.
    pub fn check(output: &Tensor, ids: &[i64], weight: f64) {
        let expected = (Self::input(ids) * weight).expand([ids.len() as i64, 8], false);
        assert!(output.equal(&expected));
    }
}

/// Returns its inputs unchanged, so the values show which call computed them.
#[cached_module(id = "stamped_echo_v1", key = i64, stamp = u64)]
pub struct StampedEcho {}

impl Extractor for StampedEcho {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        Ok(inputs.clone())
    }
}

/// Waits until the condition holds. The limit is far beyond what it takes, and below the defaults of a minute that some settings
/// have: a setting that does nothing fails the test.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(50);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
