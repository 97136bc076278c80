//! What `Frozen` and `ContentId` refuse, since its identity would not say everything that decides its outputs.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use tch::nn::{self, VarStore};
use tch::{CModule, Device, Kind, Tensor, TrainableCModule, kind};
use tcx::{ContentId, Frozen};

fn linear(path: &nn::Path<'_>) -> nn::Linear {
    nn::linear(path / "fc", 1, 1, nn::LinearConfig::default())
}

fn refusal<M>(build: impl FnOnce(&nn::Path<'_>) -> M) -> String {
    Frozen::build(VarStore::new(Device::Cpu), build).map(drop).unwrap_err().to_string()
}

#[test]
fn a_network_without_a_weight_in_the_store_is_refused() {
    let other = VarStore::new(Device::Cpu);
    let error = refusal(|_| linear(&other.root()));
    assert!(error.contains("has no weight in the variable store"), "{error}");
    assert!(error.contains("make its variables in the path that the closure gets"), "{error}");
}

#[test]
fn a_script_whose_code_is_in_no_fingerprint_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("net.pt");
    let ones = [Tensor::ones([1, 1], kind::FLOAT_CPU)];
    let traced = CModule::create_by_tracing("Net", "forward", &ones, &mut |x| vec![&x[0] * 2]);
    traced.unwrap().save(&file).unwrap();
    let trainable = refusal(|path| {
        let _ = path.var("extra", &[1], nn::Init::Const(1.));
        TrainableCModule::load(&file, path.clone()).unwrap()
    });
    assert!(trainable.contains("TrainableCModule") && trainable.contains("Frozen::script"), "{trainable}");
    let bare = refusal(|path| {
        let _ = path.var("extra", &[1], nn::Init::Const(1.));
        (CModule::load(&file).unwrap(), 1)
    });
    assert!(bare.contains("CModule") && bare.contains("Frozen::script"), "{bare}");
}

#[test]
fn networks_whose_tensors_can_be_swapped_are_refused() {
    let errors = [
        refusal(|path| RefCell::new(linear(path))),
        refusal(|path| Mutex::new(linear(path))),
        refusal(|path| std::sync::RwLock::new(linear(path))),
        refusal(|path| std::sync::OnceLock::from(linear(path))),
        refusal(|path| (linear(path), Box::new(Cell::new(1)))),
        refusal(|path| (linear(path), vec![Arc::new(std::sync::atomic::AtomicU64::new(1))])),
    ];
    for error in errors {
        assert!(error.contains("can be changed through a shared reference"), "{error}");
    }
    Frozen::build(VarStore::new(Device::Cpu), |path| Rc::new((linear(path), [1]))).unwrap();
}

fn quantized() -> [Tensor; 2] {
    let numbers = Tensor::from_slice(&[1f32, 2.]).unsqueeze(0);
    [0.5, 2.].map(|scale| numbers.quantize_per_tensor(scale, 0, Kind::QInt8))
}

#[test]
fn quantized_tensors_have_no_id_by_content_and_cannot_be_frozen() {
    for tensor in quantized() {
        let error = ContentId::of_tensor(&tensor).unwrap_err().to_string();
        assert!(error.contains("a quantized tensor: call `dequantize`"), "{error}");
        let error = ContentId::of_samples(&tensor).unwrap_err().to_string();
        assert!(error.contains("a quantized tensor: call `dequantize`"), "{error}");
        let error = Frozen::tensor(&tensor).unwrap_err().to_string();
        assert!(error.contains("a quantized tensor: call `dequantize`"), "{error}");
        let error = refusal(|path| path.add("q", tensor.shallow_clone(), false));
        assert!(error.contains("a quantized tensor: call `dequantize`"), "{error}");
    }
}
