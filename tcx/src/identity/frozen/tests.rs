use std::path::PathBuf;

use tch::nn::{self, Module, VarStore};
use tch::{Device, Kind, Tensor};

use crate::{Frozen, Identity, Stateless};

fn linear(path: &nn::Path<'_>) -> nn::Linear {
    nn::linear(path / "fc", 4, 2, nn::LinearConfig::default())
}

/// A file in a folder of its own, which goes with it.
struct Scratch(PathBuf, #[expect(dead_code, reason = "removes the folder")] tempfile::TempDir);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self(folder.path().join(name), folder)
    }
}

fn trained() -> Frozen<nn::Linear> {
    Frozen::build(VarStore::new(Device::Cpu), linear).unwrap()
}

#[test]
fn what_was_saved_is_loaded_with_the_same_fingerprint() {
    for name in ["a.safetensors", "a.ot"] {
        let file = Scratch::new(name);
        let built = trained();
        built.save(&file.0).unwrap();
        let loaded = Frozen::load(Device::Cpu, &file.0, linear).unwrap();
        let input = Tensor::randn([3, 4], tch::kind::FLOAT_CPU);
        assert!(built.forward(&input).equal(&loaded.forward(&input)));
        assert_eq!(built.fingerprint(), loaded.fingerprint());
    }
}

#[test]
fn other_weights_have_another_fingerprint() {
    let with = |value: f64| {
        let store = VarStore::new(Device::Cpu);
        let net = Frozen::build(store, |p| p.var("w", &[2, 3], nn::Init::Const(value))).unwrap();
        net.fingerprint().to_owned()
    };
    assert_eq!(with(1.), with(1.));
    assert_ne!(with(1.), with(2.));
}

#[test]
fn names_shapes_and_dtypes_are_part_of_the_fingerprint() {
    let of = |name: &str, dims: &[i64], kind| {
        let store = VarStore::new(Device::Cpu);
        let make = |p: &nn::Path<'_>| p.add(name, Tensor::zeros(dims, (kind, Device::Cpu)), false);
        Frozen::build(store, make).unwrap().fingerprint().to_owned()
    };
    let all = [
        of("a", &[4], Kind::Float),
        of("b", &[4], Kind::Float),
        of("a", &[2, 2], Kind::Float),
        of("a", &[4], Kind::Int),
        of("a", &[2], Kind::Double),
    ];
    for (i, one) in all.iter().enumerate() {
        assert!(!all[..i].contains(one));
    }
}

#[test]
fn the_fingerprint_is_the_one_that_python_computes() {
    let store = VarStore::new(Device::Cpu);
    let make = |p: &nn::Path<'_>| {
        let b = p.add("b", Tensor::from_slice(&[5_i64, 6, 7]), false);
        (b, p.add("a", Tensor::from_slice(&[1_f32, 2., 3., 4.]).view([2, 2]), false))
    };
    // As in `tcx-python/tests/test_identity.py`.
    let canonical = "blake3:12a82e0dd0b63adc19e405cc250334a56c4cf26cbfc7bd99ea701da32d435be5";
    assert_eq!(Frozen::build(store, make).unwrap().fingerprint(), canonical);
}

#[test]
fn nothing_frozen_tracks_gradients() {
    let net = trained();
    assert!(!net.ws.requires_grad());
    assert!(!net.forward(&Tensor::ones([1, 4], tch::kind::FLOAT_CPU)).requires_grad());
}

#[test]
fn a_network_trained_before_is_handed_over() {
    let store = VarStore::new(Device::Cpu);
    let net = linear(&store.root());
    let weights = net.ws.detach().copy();
    let frozen = Frozen::build(store, |_| net).unwrap();
    assert!(frozen.ws.equal(&weights) && !frozen.ws.requires_grad());
}

#[test]
fn building_again_in_a_used_store_is_refused() {
    let store = VarStore::new(Device::Cpu);
    let _trained = linear(&store.root());
    let error = Frozen::build(store, linear).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "weight `fc.bias__2`: was created in a variable store that already had variables (2)"
        ),
        "{error}"
    );
}

struct Holder {
    net: Frozen<nn::Linear>,
}

impl Stateless for Holder {
    fn identity(&self, identity: &mut Identity) {
        identity.field("net", &self.net);
    }
}

#[test]
fn a_write_after_freezing_is_noticed_and_named() {
    let holder = Holder { net: trained() };
    let identity = Identity::of(&holder);
    assert_eq!(identity.to_string(), format!("net.weights = {}", holder.net.fingerprint()));
    assert!(identity.device().is_some_and(crate::Device::is_cpu));
    let watch = identity.into_watch();
    watch.check().unwrap();
    let _ = holder.net.bs.as_ref().unwrap().shallow_clone().fill_(1.);
    let error = watch.check().unwrap_err().to_string();
    assert!(error.starts_with("weight `net.fc.bias`: changed in place after it was frozen"), "{error}");
}

#[test]
fn a_write_between_freezing_and_use_is_noticed() {
    let net = trained();
    let _ = net.ws.shallow_clone().fill_(1.);
    assert!(Identity::of(&net).into_watch().check().is_err());
}

#[test]
fn thawing_through_the_module_is_noticed() {
    let net = trained();
    let watch = Identity::of(&net).into_watch();
    let _ = net.ws.set_requires_grad(true);
    let error = watch.check().unwrap_err().to_string();
    assert_eq!(
        error,
        "weight `fc.weight`: tracks gradients again after it was frozen; do not set its `requires_grad`"
    );
}

#[test]
fn a_tensor_is_copied() {
    let mut mine = Tensor::from_slice(&[1f32, 2.]);
    let frozen = Frozen::tensor(&mine).unwrap();
    let _ = mine.fill_(0.);
    assert_eq!(Vec::<f32>::try_from(&*frozen).unwrap(), [1., 2.]);
    Identity::of(&frozen).into_watch().check().unwrap();
    assert_eq!(frozen.fingerprint(), Frozen::tensor(Tensor::from_slice(&[1f32, 2.])).unwrap().fingerprint());
    assert_ne!(frozen.fingerprint(), Frozen::tensor(Tensor::from_slice(&[1f32, -2.])).unwrap().fingerprint());
    let zero = |value: f32| Frozen::tensor(Tensor::from_slice(&[value])).unwrap().fingerprint().to_owned();
    assert_ne!(zero(0.), zero(-0.));
    assert!(Frozen::tensor(Tensor::new()).is_err());
}

#[test]
fn a_tensor_that_tracks_gradients_loses_them() {
    let parameter = Tensor::ones([2], tch::kind::FLOAT_CPU).set_requires_grad(true);
    assert!(!Frozen::tensor(&parameter * 2.).unwrap().requires_grad());
}

fn refusal<M>(file: &Scratch, build: impl FnOnce(&nn::Path<'_>) -> M) -> String {
    let error = format!("{:#}", Frozen::load(Device::Cpu, &file.0, build).map(drop).unwrap_err());
    error.replace(&file.0.display().to_string(), "FILE")
}

#[test]
fn a_missing_file_is_named() {
    let file = Scratch::new("a.safetensors");
    assert_eq!(
        refusal(&file, linear),
        "weights file `FILE`: cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn a_file_of_something_else_is_named() {
    for name in ["a.safetensors", "a.pt", "a.ot"] {
        let file = Scratch::new(name);
        std::fs::write(&file.0, "not weights at all").unwrap();
        let error = refusal(&file, linear);
        assert!(error.starts_with("weights file `FILE`: cannot be read as a file of tensors: "), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn missing_weights_are_named() {
    let file = Scratch::new("a.safetensors");
    trained().save(&file.0).unwrap();
    let two = |p: &nn::Path<'_>| (linear(p), linear(&(p / "second")));
    assert_eq!(
        refusal(&file, two),
        "weights file `FILE`: lacks 2 of the network's 4 weights: `second.fc.bias`, `second.fc.weight`; \
         it contains `fc.bias`, `fc.weight`"
    );
}

#[test]
fn a_weight_of_another_shape_is_not_stretched() {
    let file = Scratch::new("a.safetensors");
    let store = VarStore::new(Device::Cpu);
    Frozen::build(store, |p| nn::linear(p / "fc", 1, 2, nn::LinearConfig::default()))
        .unwrap()
        .save(&file.0)
        .unwrap();
    assert_eq!(
        refusal(&file, linear),
        "weights file `FILE`: weight `fc.weight`: expected shape [2, 4], found [2, 1]"
    );
}

#[test]
fn a_network_outside_the_path_is_refused() {
    let file = Scratch::new("a.safetensors");
    trained().save(&file.0).unwrap();
    let other = VarStore::new(Device::Cpu);
    assert!(refusal(&file, |_| linear(&other.root())).contains("the network uses none of its weights"));
}

#[test]
fn weights_keep_the_dtype_of_the_file() {
    let file = Scratch::new("a.safetensors");
    let mut store = VarStore::new(Device::Cpu);
    let net = linear(&store.root());
    store.half();
    Frozen::build(store, |_| net).unwrap().save(&file.0).unwrap();
    let loaded = Frozen::load(Device::Cpu, &file.0, linear).unwrap();
    assert_eq!(loaded.ws.kind(), Kind::Half);
}

#[test]
fn a_weight_of_another_sort_is_named() {
    let file = Scratch::new("a.safetensors");
    let integers = [
        ("fc.weight", Tensor::ones([2, 4], tch::kind::INT64_CPU)),
        ("fc.bias", Tensor::ones([2], tch::kind::INT64_CPU)),
    ];
    Tensor::write_safetensors(&integers, &file.0).unwrap();
    assert_eq!(
        refusal(&file, linear),
        "weights file `FILE`: weight `fc.bias`: expected floating-point numbers, found i64"
    );
}

#[test]
fn a_frozen_network_moves_to_another_thread() {
    let net = trained();
    let shape = std::thread::spawn(move || net.forward(&Tensor::ones([1, 4], tch::kind::FLOAT_CPU)).size());
    assert_eq!(shape.join().unwrap(), [1, 2]);
}
