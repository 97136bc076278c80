//! TorchScript networks: frozen as a whole, in evaluation mode, and distinguished by their files.
//!
//! `fixtures/network.pt` computes `x * weight + shift`, and in training mode applies dropout; its parameter wants
//! gradients. `fixtures/network.py` writes it.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::{Path, PathBuf};

use tch::nn::Module;
use tch::{CModule, Device, Tensor, kind};
use tcx::{Cache, D1, Extractor, Frozen, Script, Typed, cached_module};

#[cached_module(id = "script_v1")]
struct Network {
    network: Frozen<Script>,
}

impl Extractor for Network {
    type Input = Tensor;
    type Output = Typed<f32, D1<2>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.network.forward_ts(&[x])?.into())
    }
}

fn network() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/network.pt")
}

fn open(dir: &Path, file: &Path) -> tcx::Result<tcx::Cached<Network>> {
    Cache::open(dir)?.module(Network { network: Frozen::script(Device::Cpu, file)? })
}

fn values(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.flatten(0, -1)).unwrap()
}

/// A network that multiplies by a constant, traced.
fn traced(dir: &Path, factor: f64) -> PathBuf {
    let x = [Tensor::ones([3, 2], kind::FLOAT_CPU)];
    let file = dir.join(format!("{factor}.pt"));
    let module = CModule::create_by_tracing("Net", "forward", &x, &mut |x: &[Tensor]| vec![&x[0] * factor]);
    module.unwrap().save(&file).unwrap();
    file
}

#[test]
fn parameters_stop_wanting_gradients_and_dropout_is_off() {
    let was = CModule::load(network()).unwrap();
    assert!(was.named_parameters().unwrap()[0].1.requires_grad(), "the test is about something");
    let frozen = Frozen::script(Device::Cpu, network()).unwrap();
    let parameters = frozen.named_parameters().unwrap();
    assert_eq!(parameters.len(), 1);
    assert!(!parameters[0].1.requires_grad());
    let output = frozen.forward(&Tensor::ones([50, 2], kind::FLOAT_CPU));
    assert_eq!(values(&output), [2.5, 3.25].repeat(50), "every value, none dropped");
}

#[test]
fn the_fingerprint_is_that_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let fingerprint = |file: &Path| Frozen::script(Device::Cpu, file).unwrap().fingerprint().to_owned();
    let copy = dir.path().join("copy.pt");
    std::fs::copy(network(), &copy).unwrap();
    assert_eq!(fingerprint(&network()), fingerprint(&copy));
    // A constant of the code, no parameter.
    assert_ne!(fingerprint(&traced(dir.path(), 2.)), fingerprint(&traced(dir.path(), 3.)));
}

#[test]
fn a_network_is_cached_and_another_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let x = Tensor::from_slice(&[1_f32, 1., 0., 2.]).view([2, 2]);
    let cached = open(&cache, &network()).unwrap();
    for _ in 0..3 {
        assert_eq!(values(&cached.forward(&["a", "b"], &x).unwrap()), [2.5, 3.25, 0.5, 6.25]);
    }
    cached.flush().unwrap();
    drop(cached);
    let cached = open(&cache, &network()).unwrap();
    assert_eq!(values(&cached.forward(&["b", "a"], &x).unwrap()), [0.5, 6.25, 2.5, 3.25]);
    assert_eq!(cached.stats().misses, 0);
    drop(cached);
    let error = open(&cache, &traced(dir.path(), 2.)).unwrap_err().to_string();
    assert!(error.contains("`network.weights`: blake3:") && error.contains("bump the id"), "{error}");
}

#[test]
fn a_parameter_that_is_written_to_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let network = Frozen::script(Device::Cpu, network()).unwrap();
    let mut leaked = network.named_parameters().unwrap().remove(0).1;
    let cached = Cache::open(dir.path()).unwrap().module(Network { network }).unwrap();
    let x = Tensor::ones([1, 2], kind::FLOAT_CPU);
    cached.forward(&["a"], &x).unwrap();
    let _ = tch::no_grad(|| leaked.fill_(7.));
    let error = cached.forward(&["b"], &x).unwrap_err().to_string();
    assert!(error.contains("weight `network.weight`") && error.contains("changed in place"), "{error}");
}

#[test]
fn a_traced_network_is_one_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let cached = open(&dir.path().join("cache"), &traced(dir.path(), 3.)).unwrap();
    let x = Tensor::ones([5, 2], kind::FLOAT_CPU);
    let ids = ["a", "b", "c", "d", "e"];
    for _ in 0..2 {
        assert_eq!(values(&cached.forward(&ids, &x).unwrap()), [3.; 10]);
    }
}

#[test]
fn a_network_traced_in_training_mode_gives_itself_away() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("training.pt");
    let x = Tensor::ones([3, 2], kind::FLOAT_CPU);
    // Hundreds of different numbers are kept or dropped, so two equal sums are practically impossible.
    let mut drops = |x: &[Tensor]| {
        let numbers = Tensor::linspace(1, 2, 500, kind::FLOAT_CPU);
        vec![&x[0] * numbers.dropout(0.5, true).sum(tch::Kind::Float)]
    };
    let module = CModule::create_by_tracing("Net", "forward", &[x.shallow_clone()], &mut drops);
    module.unwrap().save(&file).unwrap();
    tch::manual_seed(1);
    let cached = open(&dir.path().join("cache"), &file).unwrap();
    let ids = ["a", "b", "c"];
    let error = cached.forward(&ids, &x).unwrap_err().to_string();
    assert!(error.contains("module `script_v1`: the same sample gave two different outputs"), "{error}");
}

#[test]
fn what_is_no_network_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = format!("{:#}", Frozen::script(Device::Cpu, dir.path().join("none.pt")).unwrap_err());
    assert!(error.contains("none.pt`: ") && error.contains("No such file"), "{error}");
    let file = dir.path().join("text.pt");
    std::fs::write(&file, "no archive").unwrap();
    let error = format!("{:#}", Frozen::script(Device::Cpu, &file).unwrap_err());
    assert!(error.contains("text.pt`: cannot be read as TorchScript: "), "{error}");
}

#[test]
fn a_network_is_not_saved_as_weights() {
    let dir = tempfile::tempdir().unwrap();
    let network = Frozen::script(Device::Cpu, network()).unwrap();
    let error = network.save(dir.path().join("weights.safetensors")).unwrap_err().to_string();
    assert!(error.contains("copy the file that it was loaded from"), "{error}");
}
