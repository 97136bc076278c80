//! `Frozen` and `ContentId` refuse values whose identity would not cover everything that decides the outputs.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use tch::nn::{self, Module as _, VarStore};
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
    assert!(error.contains("create its variables in the path that the closure gets"), "{error}");
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

#[test]
fn sparse_tensors_of_every_layout_are_refused_in_one_line() {
    let plain = Tensor::ones([2, 2], kind::FLOAT_CPU);
    let layouts = [
        plain.to_sparse(None::<tch::Layout>, None::<&[i64]>, 0),
        plain.to_sparse_csr(None::<i64>),
        plain.to_sparse_csc(None::<i64>),
        plain.to_sparse_bsr([1, 1], None::<i64>),
        plain.to_sparse_bsc([1, 1], None::<i64>),
    ];
    for tensor in layouts {
        let error = Frozen::tensor(&tensor).unwrap_err().to_string();
        assert_eq!(
            error,
            "tensor: expected a dense tensor, found a sparse or MKL-DNN layout: call `to_dense` in `forward`"
        );
    }
}

/// A network that keeps a view of its weight, made while it was built; the weight has another dtype by then, if one is given.
fn viewed(path: &nn::Path<'_>, dtype: Option<Kind>) -> nn::Func<'static> {
    let weight = path.var("w", &[2, 4], nn::Init::Randn { mean: 0., stdev: 1. });
    if let Some(dtype) = dtype {
        path.clone().set_kind(dtype);
    }
    let view = tch::no_grad(|| weight.tr());
    nn::func(move |x| x.matmul(&view.to_kind(Kind::Float)))
}

#[test]
fn a_view_of_a_weight_that_takes_another_dtype_from_a_file_shows_as_nan() {
    let input = Tensor::ones([1, 4], kind::FLOAT_CPU);
    for dtype in [Kind::Float, Kind::Double, Kind::BFloat16, Kind::Half] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("w.safetensors");
        let weight = Tensor::ones([2, 4], (dtype, Device::Cpu));
        Tensor::write_safetensors(&[("w", weight)], &file).unwrap();
        let output = Frozen::load(Device::Cpu, &file, |path| viewed(path, None)).unwrap().forward(&input);
        let output = Vec::<f32>::try_from(output.flatten(0, -1)).unwrap();
        match dtype {
            Kind::Float => assert_eq!(output, [4., 4.]),
            _ => assert!(output.iter().all(|x| x.is_nan()), "{dtype:?}: {output:?}"),
        }
        // As the documentation says: the variable has the dtype of the file before there is a view of it.
        let same = Frozen::load(Device::Cpu, &file, |path| viewed(path, Some(dtype)));
        let output = same.unwrap().forward(&input);
        assert_eq!(Vec::<f32>::try_from(output.flatten(0, -1)).unwrap(), [4., 4.]);
    }
}

#[test]
fn a_view_of_whole_numbers_that_take_another_dtype_from_a_file_shows_as_the_lowest_number() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("w.safetensors");
    Tensor::write_safetensors(&[("w", Tensor::from_slice(&[7_i32, 8]))], &file).unwrap();
    let build = |path: &nn::Path<'_>, kind| {
        let weight = path.add("w", Tensor::zeros([2], (kind, Device::Cpu)), false);
        (weight.narrow(0, 0, 1), weight)
    };
    let numbers = |tensor: &Tensor| Vec::<i64>::try_from(tensor.to_kind(Kind::Int64)).unwrap();
    let network = Frozen::load(Device::Cpu, &file, |path| build(path, Kind::Int64)).unwrap();
    assert_eq!((numbers(&network.0), numbers(&network.1)), (vec![i64::MIN], vec![7, 8]));
    let network = Frozen::load(Device::Cpu, &file, |path| build(path, Kind::Int)).unwrap();
    assert_eq!((numbers(&network.0), numbers(&network.1)), (vec![7], vec![7, 8]));
    // No truth value would reveal the stale view.
    let refused = Frozen::load(Device::Cpu, &file, |path| build(path, Kind::Bool)).map(drop);
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("weight `w`: expected bool, found i32 in the file"), "{error}");
}
