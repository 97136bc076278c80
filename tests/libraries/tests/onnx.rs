//! Networks in the format ONNX: computed by ONNX Runtime, fingerprinted with all of their files, and refused where a fingerprint
//! would not cover them.

#![cfg(feature = "ort")]
#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ndarray::{Array1, Array2, arr2};
use ort::ep;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::{DynTensor, Tensor, TensorRef};
use tcx::{
    Cache, Cached, D1, Device, ErrorKind, Extractor, Frozen, Identity, OnnxOptions, OnnxSession, Result,
    TensorLike, Typed, Weights, cached_module,
};
use tcx_library_examples::onnx::Layer;

#[cached_module(id = "onnx_head_v1")]
struct Head {
    fc: Frozen<OnnxSession>,
}

impl Extractor for Head {
    type Input = Array2<f32>;
    type Output = Typed<f32, D1<2>, Array2<f32>>;

    fn forward(&self, x: &Array2<f32>) -> Result<Self::Output> {
        let mut outputs = self.fc.run(ort::inputs![TensorRef::from_array_view(x)?])?;
        Ok(outputs.take::<Array2<f32>>("pooled")?.into())
    }
}

/// A layer from four to two numbers whose weights are all `weight`.
fn layer(weight: f32) -> Layer {
    Layer { activation: "Identity", ..Layer::new(vec![weight; 8], vec![0.5, -0.5]) }
}

/// A file with the layer.
fn file(dir: &Path, weight: f32) -> PathBuf {
    let file = dir.join("fc.onnx");
    fs::write(&file, layer(weight).to_bytes()).unwrap();
    file
}

/// The network and the files that it names.
fn write(file: &Path, layer: &Layer) {
    for (name, bytes) in layer.files() {
        let path = file.with_file_name(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::write(file, layer.to_bytes()).unwrap();
}

/// The layer with its weights in another file.
fn beside(dir: &Path, weight: f32, location: &str) -> PathBuf {
    let file = dir.join("fc.onnx");
    write(&file, &Layer { weight_file: Some(location.to_owned()), ..layer(weight) });
    file
}

fn load(file: &Path) -> Result<Frozen<OnnxSession>> {
    Frozen::onnx(file, &OnnxOptions::new())
}

fn ones(samples: usize) -> Array2<f32> {
    Array2::ones((samples, 4))
}

fn refused(loaded: Result<Frozen<OnnxSession>>) -> String {
    let error = loaded.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidWeights, "{error:#}");
    format!("{error:#}")
}

#[test]
fn a_network_is_computed_once_for_each_sample() {
    let dir = tempfile::tempdir().unwrap();
    let fc = load(&file(dir.path(), 1.)).unwrap();
    assert_eq!((fc.inputs(), fc.outputs()), (&["x".to_owned()][..], &["pooled".to_owned()][..]));
    let head = Cache::open(dir.path().join("cache")).unwrap().module(Head { fc }).unwrap();
    assert_eq!(*head.forward(&["a", "b"], &ones(2)).unwrap(), arr2(&[[4.5, 3.5], [4.5, 3.5]]));
    head.flush().unwrap();
    let found = head.fetch(&["b"], |_| panic!("it is stored")).unwrap();
    assert_eq!(*found, arr2(&[[4.5, 3.5]]));
}

#[test]
fn several_sessions_compute_batches_at_once() {
    let dir = tempfile::tempdir().unwrap();
    // Its weights are in another file, which each session reads.
    let file = beside(dir.path(), 1., "fc.weights");
    let fc = Frozen::onnx(&file, &OnnxOptions::new().sessions(2).intra_threads(1)).unwrap();
    assert_eq!(fc.fingerprint(), load(&file).unwrap().fingerprint());
    let head = Cache::open(dir.path().join("cache")).unwrap().module(Head { fc }).unwrap();
    let head = head.concurrency(2).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let head = &head;
            scope.spawn(move || {
                for id in 0..20 {
                    let ids = [format!("{id}"), format!("{thread} {id}")];
                    assert_eq!(*head.forward(&ids, &ones(2)).unwrap(), arr2(&[[4.5, 3.5], [4.5, 3.5]]));
                }
            });
        }
    });
    assert_eq!(head.stats().rows_computed, 100);
    for sessions in [0, 257] {
        let error = Frozen::onnx(&file, &OnnxOptions::new().sessions(sessions)).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSettings);
        assert_eq!(error.expected(), Some("a number from 1 to 256"));
    }
}

#[test]
fn a_network_of_other_weights_is_another_cache() {
    let dir = tempfile::tempdir().unwrap();
    let open = |file: &Path| {
        let head = Cache::open(dir.path().join("cache"))?.module(Head { fc: load(file)? })?;
        head.forward(&["a"], &ones(1))?;
        head.flush()
    };
    open(&beside(dir.path(), 1., "fc.weights")).unwrap();
    // The file of the network is the same, bit for bit.
    let error = open(&beside(dir.path(), 2., "fc.weights")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().contains("`fc.weights`: blake3:"), "{error}");
    assert!(open(&file(dir.path(), 1.)).is_err());
    open(&beside(dir.path(), 1., "fc.weights")).unwrap();
}

#[test]
fn the_fingerprint_of_one_file_is_its_hash() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path(), 1.);
    let expected = format!("blake3:{}", blake3::hash(&fs::read(&file).unwrap()));
    assert_eq!(load(&file).unwrap().fingerprint(), expected);
    assert_eq!(Weights::onnx(&file, &OnnxOptions::new()).unwrap().fingerprint(), expected);
}

#[test]
fn weights_in_other_files_are_read_with_the_network() {
    let dir = tempfile::tempdir().unwrap();
    for location in ["fc.weights", "parts/fc.weights", "./fc.weights"] {
        let file = beside(dir.path(), 3., location);
        let fc = load(&file).unwrap();
        // The network has what was hashed: nothing is read any more.
        fs::write(dir.path().join(location), [0; 32]).unwrap();
        let mut outputs = fc.run(ort::inputs!["x" => TensorRef::from_array_view(&ones(1)).unwrap()]).unwrap();
        assert_eq!(outputs.take::<Array2<f32>>("pooled").unwrap(), arr2(&[[12.5, 11.5]]), "{location}");
        assert_ne!(load(&file).unwrap().fingerprint(), fc.fingerprint());
        fs::remove_file(dir.path().join(location)).unwrap();
        let error = refused(load(&file));
        assert!(error.contains("which cannot be read; put the file beside the network"), "{error}");
    }
}

#[test]
fn several_weights_are_in_one_file_or_in_several() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fc.onnx");
    for (weight_file, bias_file) in [("one", "one"), ("one", "two"), ("two", "one")] {
        let files = (Some(weight_file.to_owned()), Some(bias_file.to_owned()));
        let layer = Layer { weight_file: files.0, bias_file: files.1, ..layer(1.) };
        write(&file, &layer);
        let fc = load(&file).unwrap();
        let mut outputs = fc.run(ort::inputs![TensorRef::from_array_view(&ones(1)).unwrap()]).unwrap();
        assert_eq!(outputs.take::<Array2<f32>>("pooled").unwrap(), arr2(&[[4.5, 3.5]]));
        // Each file is part of the fingerprint.
        write(&file, &Layer { bias: vec![0.5, 0.], ..layer });
        assert_ne!(load(&file).unwrap().fingerprint(), fc.fingerprint());
    }
}

#[test]
fn a_network_that_names_a_file_outside_its_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let error = refused(load(&beside(&inner, 1., "../fc.weights")));
    assert!(error.contains("names the file `../fc.weights`"), "{error}");
    let error = Weights::onnx(inner.join("fc.onnx"), &OnnxOptions::new()).unwrap_err().to_string();
    assert!(error.contains("expected a file in the folder of the network"), "{error}");
}

/// Built when a sample is missing.
fn lazy(cache: &Path, file: &Path) -> Result<Cached<Head>> {
    let mut identity = Identity::default();
    identity.type_name("Head");
    identity.field("fc", &Weights::onnx(file, &OnnxOptions::new())?);
    let file = file.to_owned();
    Cache::open(cache)?.lazy_module(identity, Device::CPU, move || Ok(Head { fc: load(&file)? }))
}

#[test]
fn weights_that_change_between_their_fingerprint_and_the_network_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let head = lazy(&cache, &beside(dir.path(), 1., "fc.weights")).unwrap();
    beside(dir.path(), 2., "fc.weights");
    let error = head.forward(&["a"], &ones(1)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ModuleViolation);
    assert!(error.to_string().contains("the built module has another identity"), "{error}");
    assert!(!head.coverage(&["a"]).unwrap().is_complete());
    drop(head);
    let head = lazy(&cache, &beside(dir.path(), 1., "fc.weights")).unwrap();
    assert_eq!(*head.forward(&["a"], &ones(1)).unwrap(), arr2(&[[4.5, 3.5]]));
}

#[test]
fn files_that_are_no_networks_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path(), 1.);
    assert!(refused(load(&dir.path().join("none.onnx"))).contains("cannot be read"));
    let bytes = fs::read(&file).unwrap();
    for damaged in [&b"no network"[..], &bytes[..bytes.len() / 2]] {
        fs::write(&file, damaged).unwrap();
        let error = refused(load(&file));
        assert!(error.contains("cannot be read as a network in the format ONNX"), "{error}");
    }
    fs::write(&file, Layer { activation: "NoSuchOperator", ..layer(1.) }.to_bytes()).unwrap();
    let error = refused(load(&file));
    assert!(
        error.contains("is not a network that ONNX Runtime can compute") && error.contains("NoSuchOperator"),
        "{error}"
    );
}

#[test]
fn a_random_network_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fc.onnx");
    fs::write(&file, Layer { activation: "RandomNormalLike", ..layer(1.) }.to_bytes()).unwrap();
    let head =
        Cache::open(dir.path().join("cache")).unwrap().module(Head { fc: load(&file).unwrap() }).unwrap();
    let error = head.forward(&["a"], &ones(1)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ModuleViolation, "{error}");
}

#[test]
fn the_level_of_optimization_is_part_of_the_identity_and_threads_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path(), 1.);
    let fingerprint = |options: &OnnxOptions| {
        let built = Frozen::onnx(&file, options).unwrap();
        assert_eq!(Weights::onnx(&file, options).unwrap().fingerprint(), built.fingerprint());
        built.fingerprint().to_owned()
    };
    let default = fingerprint(&OnnxOptions::new());
    assert_eq!(fingerprint(&OnnxOptions::new().intra_threads(2)), default);
    assert_eq!(fingerprint(&OnnxOptions::new().optimization(GraphOptimizationLevel::All)), default);
    let basic = fingerprint(&OnnxOptions::new().optimization(GraphOptimizationLevel::Level1));
    assert_eq!(basic, format!("{default}, optimized to level 1"));
}

#[test]
fn a_provider_that_compiles_the_network_is_part_of_the_identity_and_a_missing_one_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path(), 1.);
    let plain = Weights::onnx(&file, &OnnxOptions::new()).unwrap();
    let on = |provider| OnnxOptions::new().execution_providers([provider]);
    let (cuda, xnnpack) = (on(ep::CUDA::default().build()), on(ep::XNNPACK::default().build()));
    assert_eq!(Weights::onnx(&file, &cuda).unwrap(), plain);
    assert_eq!(load(&file).unwrap().fingerprint(), plain.fingerprint());
    let other = Weights::onnx(&file, &xnnpack).unwrap();
    assert_eq!(other.fingerprint(), format!("{}, XnnpackExecutionProvider", plain.fingerprint()));
    // The library for the CPU has neither. ONNX Runtime alone would compute on the CPU.
    for options in [cuda, xnnpack] {
        let error = Frozen::onnx(&file, &options).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TensorLibrary, "{error:#}");
    }
}

#[test]
fn an_output_is_a_tensor_of_any_library() {
    let dir = tempfile::tempdir().unwrap();
    let fc = load(&file(dir.path(), 1.)).unwrap();
    let run = || fc.run(ort::inputs!["x" => TensorRef::from_array_view(&ones(1)).unwrap()]).unwrap();
    let bytes = run().take::<Array2<f32>>("pooled").unwrap().with_bytes(<[u8]>::to_vec).unwrap();
    assert_eq!(run().take::<DynTensor>("pooled").unwrap().with_bytes(<[u8]>::to_vec).unwrap(), bytes);
    assert_eq!(run().take::<tch::Tensor>("pooled").unwrap().with_bytes(<[u8]>::to_vec).unwrap(), bytes);
    let message = |taken: tcx::Error| format!("{taken:#}");
    let error = message(run().take::<Array2<f32>>("logits").unwrap_err());
    assert!(
        error.contains("output `logits` of the network: expected one of") && error.contains("`pooled`"),
        "{error}"
    );
    let mut outputs = run();
    outputs.take::<DynTensor>("pooled").unwrap();
    assert!(message(outputs.take::<DynTensor>("pooled").unwrap_err()).contains("not taken (none)"));
    let error = message(run().take::<Array2<i64>>("pooled").unwrap_err());
    assert!(error.contains("expected elements of i64, found f32 [1, 2]"), "{error}");
    let error = message(run().take::<Array1<f32>>("pooled").unwrap_err());
    assert!(error.contains("cannot be made of f32 [1, 2]"), "{error}");
}

#[test]
fn inputs_that_do_not_fit_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let fc = load(&file(dir.path(), 1.)).unwrap();
    for shape in [[1_usize, 3], [4, 1]] {
        let x = Tensor::from_array((shape, vec![0_f32; shape[0] * shape[1]])).unwrap();
        assert_eq!(fc.run(ort::inputs!["x" => x]).unwrap_err().kind(), ErrorKind::TensorLibrary);
    }
}

#[test]
fn a_network_in_the_format_is_copied_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let fc = load(&file(dir.path(), 1.)).unwrap();
    let error = fc.save(dir.path().join("saved.safetensors")).unwrap_err().to_string();
    assert!(error.contains("copy the file that it was loaded from"), "{error}");
}

/// The variable is that of the whole process, so that this test runs itself again.
#[test]
fn a_library_that_cannot_be_loaded_is_an_error_that_says_where_to_get_it() {
    const NAME: &str = "a_library_that_cannot_be_loaded_is_an_error_that_says_where_to_get_it";
    const MISSING: &str = "/no/such/libonnxruntime.so";
    if std::env::var("ORT_DYLIB_PATH").is_ok_and(|path| path == MISSING) {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path(), 1.);
        let error = load(&file).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TensorLibrary);
        let error = format!("{error:#}");
        assert!(
            error.contains("set ORT_DYLIB_PATH to the absolute path") && error.contains(MISSING),
            "{error}"
        );
        let memory = tcx::TensorMemory::from(vec![1_f32]);
        assert_eq!(DynTensor::from_memory(memory, &[1]).unwrap_err().kind(), ErrorKind::TensorLibrary);
        // The fingerprint needs no library.
        Weights::onnx(&file, &OnnxOptions::new()).unwrap();
        return;
    }
    let own = std::env::current_exe().unwrap();
    let ran =
        Command::new(own).args([NAME, "--exact", "--nocapture"]).env("ORT_DYLIB_PATH", MISSING).output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(String::from_utf8_lossy(&ran.stdout).contains("1 passed"));
}
