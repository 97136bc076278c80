//! Weights on a GPU: they have the fingerprint that they have on the CPU, and are watched. Without a GPU, the tests are skipped.

use tch::nn::{self, Module as _, VarStore};
use tch::{Device, Kind, Tensor, kind};
use tcx::{Cache, ContentId, D1, Extractor, Frozen, Result, Typed, cached_module};
use tcx_tests::devices::{column, frozen, gpu, linear};

#[test]
fn weights_have_the_same_fingerprint_on_every_device() {
    let Some(gpu) = gpu() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weights.safetensors");
    for kind in [Kind::Float, Kind::Half, Kind::BFloat16, Kind::Double] {
        let build = |device| {
            let mut store = VarStore::new(device);
            let net = linear(&store.root(), 3);
            store.set_kind(kind);
            Frozen::build(store, |_| net).unwrap()
        };
        let (here, there) = (build(Device::Cpu), build(gpu.device));
        assert_eq!(there.device(), gpu.device);
        assert_eq!(here.fingerprint(), there.fingerprint());
        there.save(&file).unwrap();
        let loaded = Frozen::load(gpu.device, &file, |path| linear(path, 3)).unwrap();
        assert_eq!(loaded.ws.device(), gpu.device);
        assert_eq!(loaded.fingerprint(), here.fingerprint());
    }
    let matrix = Tensor::arange(6, kind::FLOAT_CPU).view([2, 3]);
    for tensor in [matrix.shallow_clone(), matrix.tr()] {
        let there = Frozen::tensor(tensor.to_device(gpu.device)).unwrap();
        assert_eq!(there.fingerprint(), Frozen::tensor(&tensor).unwrap().fingerprint());
        let ids = |tensor: &Tensor| ContentId::of_samples(tensor).unwrap();
        assert_eq!(ids(&tensor.to_device(gpu.device)), ids(&tensor));
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/network.pt");
    let network = Frozen::script(gpu.device, script).unwrap();
    assert_eq!(network.fingerprint(), Frozen::script(Device::Cpu, script).unwrap().fingerprint());
    assert_eq!(network.forward(&Tensor::ones([1, 2], (Kind::Float, gpu.device))).device(), gpu.device);
}

/// The sum of the outputs of a layer.
#[cached_module(id = "watched_on_devices_v1", key = i64)]
struct Watched {
    fc: Frozen<nn::Linear>,
}

impl Extractor for Watched {
    type Input = Tensor;
    type Output = Typed<f32, D1<1>>;

    fn forward(&self, samples: &Tensor) -> Result<Self::Output> {
        let summed = self.fc.forward(samples).sum_dim_intlist([1].as_slice(), true, Kind::Float);
        Ok(summed.into())
    }
}

#[test]
fn weights_that_change_on_a_gpu_are_noticed() {
    let Some(gpu) = gpu() else { return };
    // In a network of one weight each forward pass reads it in full; of many elements it reads the first and the last.
    for (outputs, changed, is_sampled) in [(1, 0, true), (100_000, 99_999, true), (100_000, 1, false)] {
        let dir = tempfile::tempdir().unwrap();
        let fc = frozen(gpu.device, outputs);
        let weight = fc.ws.shallow_clone();
        let cached = Cache::open(dir.path()).unwrap().module(Watched { fc }).unwrap();
        cached.forward(&[1], &column(&[1], gpu.device)).unwrap();
        cached.flush().unwrap();
        // Through `data`, which libtorch's version counter does not see.
        let _ = weight.data().narrow(0, changed, 1).fill_(15.);
        let computed = cached.forward(&[2], &column(&[2], gpu.device)).map(drop);
        assert_eq!(computed.is_err(), is_sampled);
        let flushed = cached.flush();
        let error = computed.and(flushed).unwrap_err();
        let message = format!("{error:#}");
        assert!(message.contains("weight `fc.net.weight`: changed in place"), "{message}");
        drop(cached);
        let fc = frozen(Device::Cpu, outputs);
        let after = Cache::open(dir.path()).unwrap().module(Watched { fc }).unwrap();
        let served = after.forward(&[1, 2], &column(&[1, 2], Device::Cpu)).unwrap();
        assert_eq!(
            Vec::<f32>::try_from(served.flatten(0, -1)).unwrap(),
            [1., 2.].map(|x| x * outputs as f32)
        );
    }
}

#[test]
fn weights_are_compared_on_a_gpu_without_free_memory() {
    let Some(gpu) = gpu() else { return };
    let dir = tempfile::tempdir().unwrap();
    let outputs = 10_000_000;
    let open =
        |device| Cache::open(dir.path()).unwrap().module(Watched { fc: frozen(device, outputs) }).unwrap();
    let cached = open(gpu.device);
    cached.forward(&[1, 2], &column(&[1, 2], gpu.device)).unwrap();
    let hoard = gpu.hoard();
    cached.flush().unwrap();
    drop(hoard);
    cached.forward(&[3], &column(&[3], gpu.device)).unwrap();
    drop(cached);
    assert!(open(Device::Cpu).coverage(&[1, 2, 3]).unwrap().is_complete());
}
