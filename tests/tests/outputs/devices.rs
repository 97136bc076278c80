//! Devices: outputs on a GPU, outputs on another device than the inputs, and devices that do not exist. Without a
//! GPU, the tests that need one are skipped.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::{Path, PathBuf};

use tch::nn::{self, Module as _, VarStore};
use tch::{Cuda, Device, Kind, Tensor, kind};
use tcx::{
    Cache, CacheableOutput, Cached, D1, ErrorKind, Extractor, Frozen, Identity, Ragged, Result, Table, Typed,
    Weights, cached_module,
};
use tcx_tests::devices::{column, frozen, gpu};

/// A tensor of each form that an output can have.
#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [3])]
    pooled: Tensor,
    #[tensor(f16, [2])]
    half: Tensor,
    #[tensor(bf16, [2])]
    brain: Tensor,
    #[tensor(f32, [2], store = f16)]
    narrow: Tensor,
    #[tensor(bool, [1])]
    is_odd: Tensor,
    #[tensor(f32, [_, 2])]
    tokens: Ragged,
    #[tensor(i64, [_, _])]
    maps: Vec<Tensor>,
    #[tensor(f64, [1])]
    thirds: Vec<Option<Tensor>>,
    ids: Vec<i64>,
}

impl Features {
    fn tensors(&self) -> Vec<&Tensor> {
        let dense = [&self.pooled, &self.half, &self.brain, &self.narrow, &self.is_odd];
        let ragged = [&self.tokens.values, &self.tokens.offsets];
        dense.into_iter().chain(ragged).chain(&self.maps).chain(self.thirds.iter().flatten()).collect()
    }

    /// Checks every value and the device of every tensor.
    fn check(&self, samples: &[i64], device: Device) {
        let expected = features(&column(samples, Device::Cpu), &column(samples, Device::Cpu));
        let (found, expected) = ((self, self.tensors()), (&expected, expected.tensors()));
        assert_eq!(found.1.len(), expected.1.len());
        for (found, expected) in found.1.iter().zip(&expected.1) {
            assert_eq!((found.device(), found.kind()), (device, expected.kind()));
            assert!(found.to_device(Device::Cpu).equal(expected), "{found:?}");
        }
        assert_eq!(found.0.ids, expected.0.ids);
        let places = |features: &Self| features.thirds.iter().map(Option::is_some).collect::<Vec<_>>();
        assert_eq!(places(found.0), places(expected.0));
    }
}

/// The features of samples, each a number, on the device of the numbers. `scaled` are the same numbers.
fn features(samples: &Tensor, scaled: &Tensor) -> Features {
    let numbers =
        Vec::<i64>::try_from(samples.squeeze_dim(1).to_kind(Kind::Int64).to_device(Device::Cpu)).unwrap();
    let (rows, device) = (numbers.len() as i64, samples.device());
    let wide = |width: i64| scaled.expand([rows, width], false);
    let lengths: Vec<i64> = numbers.iter().map(|number| number % 3).collect();
    let ends = lengths.iter().scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
    let repeated =
        samples.repeat_interleave_self_tensor(&Tensor::from_slice(&lengths).to_device(device), 0, None);
    let map = |&number: &i64| Tensor::full([number % 2, number % 4], number, (Kind::Int64, device));
    let third = |&number: &i64| {
        (number % 3 == 0).then(|| Tensor::full([1], number as f64 / 3., (Kind::Double, device)))
    };
    Features {
        // Neither it nor `narrow` is contiguous.
        pooled: (wide(3).tr().contiguous() * 2).tr(),
        half: wide(2).to_kind(Kind::Half),
        brain: wide(2).to_kind(Kind::BFloat16),
        narrow: wide(2),
        is_odd: samples.remainder(2).eq(1),
        tokens: Ragged {
            values: repeated.expand([offsets[numbers.len()], 2], false),
            offsets: Tensor::from_slice(&offsets).to_device(device),
        },
        maps: numbers.iter().map(map).collect(),
        thirds: numbers.iter().map(third).collect(),
        ids: numbers,
    }
}

/// A layer that multiplies by one.
#[cached_module(id = "on_devices_v1", key = i64)]
struct OnDevices {
    fc: Frozen<nn::Linear>,
}

impl Extractor for OnDevices {
    type Input = Tensor;
    type Output = Features;

    fn forward(&self, samples: &Tensor) -> Result<Features> {
        Ok(features(samples, &self.fc.forward(samples)))
    }
}

fn open(dir: &Path, device: Device) -> Cached<OnDevices> {
    Cache::open(dir).unwrap().module(OnDevices { fc: frozen(device, 1) }).unwrap()
}

/// Devices that this machine does not have, and their names.
fn absent() -> Vec<(Device, String)> {
    let number = 7.max(Cuda::device_count() as usize);
    let mut absent = vec![(Device::Cuda(number), format!("`cuda:{number}`"))];
    if !tch::utils::has_mps() {
        absent.push((Device::Mps, "`mps`".to_owned()));
    }
    if !tch::utils::has_vulkan() {
        absent.push((Device::Vulkan, "`vulkan`".to_owned()));
    }
    absent
}

#[test]
fn a_device_that_does_not_exist_is_refused_by_name_when_something_is_put_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weights.safetensors");
    frozen(Device::Cpu, 1).save(&file).unwrap();
    let script = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/network.pt"));
    let cache = Cache::open(dir.path().join("cache")).unwrap();
    for (device, name) in absent() {
        let mut identity = Identity::default();
        identity.type_name("OnDevices");
        identity.field("fc", &Weights::of_file(&file).unwrap());
        let build = |_: &nn::Path<'_>| -> nn::Linear { unreachable!("libtorch cannot make variables there") };
        let errors = [
            Frozen::<nn::Linear>::load(device, &file, build).map(drop).unwrap_err(),
            Frozen::<nn::Linear>::build(VarStore::new(device), build).map(drop).unwrap_err(),
            Frozen::script(device, &script).map(drop).unwrap_err(),
            cache
                .lazy_module::<OnDevices>(identity, device, || unreachable!("it is not built"))
                .map(drop)
                .unwrap_err(),
            Table::<Features>::builder("on_devices_v2")
                .output_device(device)
                .open(&cache)
                .map(drop)
                .unwrap_err(),
        ];
        for error in errors {
            let message = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidSettings, "{message}");
            assert!(message.contains(&name) && message.contains("libtorch finds no"), "{message}");
        }
    }
    assert!(!dir.path().join("cache").exists(), "nothing is stored");
}

#[test]
fn outputs_that_cannot_be_copied_to_their_device_are_an_error_and_their_rows_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let mut samples = vec![1];
    for (device, name) in absent() {
        samples.push(samples.len() as i64 + 1);
        let cached = open(dir.path(), Device::Cpu).output_device(device);
        let fields = cached.fields::<Narrow>().unwrap();
        // Computed, and found.
        for _ in 0..2 {
            let whole = cached.forward(&samples, &column(&samples, Device::Cpu)).map(drop).unwrap_err();
            let part = fields.forward(&samples, &column(&samples, Device::Cpu)).map(drop).unwrap_err();
            for error in [whole, part] {
                let message = format!("{error:#}");
                assert_eq!(error.kind(), ErrorKind::Libtorch, "{message}");
                assert_eq!(error.module_id(), Some("on_devices_v1"));
                assert!(message.contains(&name) && message.contains("`output_device`"), "{message}");
            }
        }
        cached.flush().unwrap();
        let here = open(dir.path(), Device::Cpu);
        let misses = here.stats().misses;
        here.forward(&samples, &column(&samples, Device::Cpu)).unwrap().check(&samples, Device::Cpu);
        assert_eq!(here.stats().misses, misses);
    }
}

/// One of the fields.
#[derive(CacheableOutput)]
struct Narrow {
    #[tensor(f32, [2], store = f16)]
    narrow: Tensor,
}

#[test]
fn rows_do_not_remember_their_device() {
    let Some(gpu) = gpu() else { return };
    let samples = [3, 1, 6, 5];
    // Who computes, and who finds.
    for devices in [[gpu.device, Device::Cpu], [Device::Cpu, gpu.device]] {
        let dir = tempfile::tempdir().unwrap();
        for (device, computed) in devices.into_iter().zip([4, 0]) {
            let cached = open(dir.path(), device);
            for _ in 0..2 {
                cached.forward(&samples, &column(&samples, device)).unwrap().check(&samples, device);
            }
            assert_eq!(cached.stats().rows_accepted, computed);
            cached.flush().unwrap();
        }
    }
}

#[test]
fn found_and_computed_rows_of_a_gpu_are_joined_in_the_order_of_the_batch() {
    let Some(gpu) = gpu() else { return };
    let dir = tempfile::tempdir().unwrap();
    open(dir.path(), gpu.device).forward(&[1, 2], &column(&[1, 2], gpu.device)).unwrap();
    // On disk, in memory, missing, repeated.
    let cached = open(dir.path(), gpu.device);
    cached.forward(&[4], &column(&[4], gpu.device)).unwrap();
    let samples = [5, 2, 4, 5, 1, 3];
    cached.forward(&samples, &column(&samples, gpu.device)).unwrap().check(&samples, gpu.device);
    let loaded = cached.fetch(&[6, 1, 9], |missing| {
        let missing: Vec<i64> = missing.ids().copied().collect();
        assert_eq!(missing, [6, 9]);
        Ok(column(&missing, gpu.device))
    });
    loaded.unwrap().check(&[6, 1, 9], gpu.device);
}

#[test]
fn outputs_are_put_on_another_device_than_the_inputs() {
    let Some(gpu) = gpu() else { return };
    let dir = tempfile::tempdir().unwrap();
    let others = (0..Cuda::device_count() as usize).map(Device::Cuda).chain([Device::Cpu]);
    for (to, sample) in others.flat_map(|to| [(to, gpu.device), (to, Device::Cpu)]).zip(1..) {
        let ((to, from), samples) = (to, [sample, 1]);
        let cached = open(dir.path(), from).output_device(to);
        for _ in 0..2 {
            cached.forward(&samples, &column(&samples, from)).unwrap().check(&samples, to);
        }
        let part = cached.fields::<Narrow>().unwrap().forward(&samples, &column(&samples, from)).unwrap();
        assert_eq!(part.narrow.device(), to);
        assert_eq!(
            Vec::<f32>::try_from(part.narrow.select(1, 0)).unwrap(),
            samples.map(|sample| sample as f32)
        );
    }
}

#[test]
fn a_table_puts_values_on_its_device() {
    let Some(gpu) = gpu() else { return };
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let ids = ["a", "b", "c"];
    let on_cpu = features(&column(&[1, 2, 3], Device::Cpu), &column(&[1, 2, 3], Device::Cpu));
    cache.table("values_v1").unwrap().put(&ids, &on_cpu).unwrap();
    let device = gpu.device;
    let check =
        move |values: &Features| match values.tensors().iter().find(|tensor| tensor.device() != device) {
            Some(other) => Err(tcx::Error::loader(format!("{other:?}"))),
            None => Ok(()),
        };
    let table =
        Table::<Features>::builder("values_v1").output_device(device).validate(check).open(&cache).unwrap();
    table.get(&ids).unwrap().unwrap().check(&[1, 2, 3], device);
    let computed = table.get_or_compute(&["d", "a"], |missing| {
        assert_eq!(missing.positions(), [0]);
        Ok(features(&column(&[4], device), &column(&[4], device)))
    });
    computed.unwrap().check(&[4, 1], device);
    cache.table::<Features>("values_v1").unwrap().get(&["d"]).unwrap().unwrap().check(&[4], Device::Cpu);
}

/// 16 MiB.
type Large = Typed<f32, D1<{ 4 << 20 }>>;

#[test]
fn a_gpu_without_free_memory_is_an_error_and_the_values_are_stored() {
    let Some(gpu) = gpu() else { return };
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let table: Table<Large> = Table::builder("large_v1").output_device(gpu.device).open(&cache).unwrap();
    let value = |number: f64| Large::from(Tensor::full([1, 4 << 20], number, kind::FLOAT_CPU));
    table.put(&["a"], &value(1.)).unwrap();
    let hoard = gpu.hoard();
    let compute = |missing: tcx::Missing<'_, &str>| Ok(value(missing.len() as f64 + 1.));
    for error in [
        table.get(&["a"]).map(drop).unwrap_err(),
        table.get_or_compute(&["b"], compute).map(drop).unwrap_err(),
    ] {
        let message = format!("{error:#}");
        assert_eq!(error.kind(), ErrorKind::Libtorch, "{message}");
        assert!(message.contains("`cuda:0`") && message.contains("out of memory"), "{message}");
    }
    drop(hoard);
    for (id, number) in [("a", 1.), ("b", 2.)] {
        let found = table.get(&[id]).unwrap().unwrap();
        assert!(found.to_device(Device::Cpu).equal(&value(number)), "{id}");
    }
}
