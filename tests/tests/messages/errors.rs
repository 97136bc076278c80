//! The kinds of errors, each reached by a real fault in a public call; and their causes, which are printed once.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::error::Error as _;
use std::fs;
use std::io;
use std::path::Path;

use tch::nn;
use tch::{Device, TchError, Tensor};
use tcx::ErrorKind::{
    Closed, Corrupt, Full, InvalidBatch, InvalidId, InvalidOutput, InvalidPath, InvalidSettings,
    InvalidWeights, Io, Libtorch, Loader, Mismatch, ModuleViolation, Replaced, WrongMode,
};
use tcx::{
    Cache, Cached, ContentId, D0, Error, ErrorKind, Extractor, Frozen, Identity, Mode, Result, StampedTable,
    Table, Typed, WhenFull, cached_module,
};
use tcx_tests::Scaled;

/// One divided by each number; a negative number has one value too many.
#[cached_module(id = "inverse_v1", key = i64)]
struct Inverse;

impl Extractor for Inverse {
    type Input = Vec<f32>;
    type Output = Vec<f32>;

    fn forward(&self, inputs: &Vec<f32>) -> Result<Vec<f32>> {
        let again = inputs.iter().filter(|x| **x < 0.).count();
        Ok(inputs.iter().map(|x| 1. / x).chain(vec![0.; again]).collect())
    }
}

/// The inputs times a weight, which may track gradients.
#[cached_module(id = "times_v1", key = i64)]
struct Times {
    #[tcx(assume_stateless)]
    weight: Tensor,
}

impl Extractor for Times {
    type Input = Tensor;
    type Output = Typed<f32, D0>;

    fn forward(&self, inputs: &Tensor) -> Result<Self::Output> {
        Ok(inputs.f_mul(&self.weight)?.into())
    }
}

/// What the faults happen to.
struct Place(tempfile::TempDir);

impl Place {
    fn cache(&self) -> Cache {
        Cache::open(self.0.path().join("cache")).unwrap()
    }

    fn scaled(&self) -> Result<Cached<Scaled>> {
        self.cache().module(Scaled::new(2.))
    }

    fn inverse(&self) -> Cached<Inverse> {
        self.cache().module(Inverse).unwrap()
    }

    fn numbers(&self) -> Table<Vec<i64>> {
        self.cache().table("numbers_v1").unwrap()
    }

    /// The cache on the disk, with one row, and without a handle.
    fn filled(&self) -> &Self {
        let scaled = self.scaled().unwrap();
        compute(&scaled, 1).unwrap();
        scaled.flush().unwrap();
        self
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }
}

fn compute(scaled: &Cached<Scaled>, id: i64) -> Result<()> {
    scaled.forward(&[id], &Scaled::input(&[id])).map(drop)
}

fn load(file: &Path) -> Result<Frozen<nn::Linear>> {
    Frozen::load(Device::Cpu, file, |path| nn::linear(path / "fc", 4, 2, nn::LinearConfig::default()))
}

fn change_0(folder: &Path) -> std::path::PathBuf {
    folder.join("scaled_v1").join("change-00000000000000000000")
}

type Fault = fn(&Place) -> Result<()>;

/// The name of a fault, and the kind of its error.
const FAULTS: &[(&str, ErrorKind, Fault)] = &[
    ("a folder of other weights", Mismatch, |place| place.filled().cache().module(Scaled::new(3.)).map(drop)),
    ("a table of another type", Mismatch, |place| {
        let numbers = place.numbers();
        numbers.put(&["a"], &vec![1])?;
        numbers.flush()?;
        place.cache().table::<Vec<String>>("numbers_v1").map(drop)
    }),
    ("a folder that another one has replaced", Replaced, |place| {
        let scaled = place.filled().scaled()?;
        compute(&scaled, 2)?;
        let other = Place(tempfile::tempdir().unwrap());
        let [there, here] = [other.filled(), place].map(|place| place.path("cache/scaled_v1"));
        fs::remove_dir_all(&here).unwrap();
        fs::rename(there, here).unwrap();
        scaled.flush()
    }),
    ("outputs that are not one for each sample", InvalidOutput, |place| {
        place.inverse().forward(&[1, 2], &vec![1., -1.]).map(drop)
    }),
    ("an infinity that is rejected", InvalidOutput, |place| {
        place.inverse().reject_non_finite().forward(&[0], &vec![0.]).map(drop)
    }),
    ("values that are not one for each id", InvalidOutput, |place| {
        place.numbers().put(&["a", "b"], &vec![1]).map(drop)
    }),
    ("a module in training", ModuleViolation, |place| {
        let weight = Tensor::ones([], tch::kind::FLOAT_CPU).set_requires_grad(true);
        let inputs = Tensor::ones([1], tch::kind::FLOAT_CPU);
        place.cache().module(Times { weight })?.forward(&[1], &inputs).map(drop)
    }),
    ("weights that change before rows of them are durable", ModuleViolation, |place| {
        let store = nn::VarStore::new(Device::Cpu);
        let weight = store.root().ones("weight", &[1, 1]);
        let network = nn::Linear { ws: weight.shallow_clone(), bs: None };
        let watched = place.cache().module(Watched { network: Frozen::build(store, |_| network)? })?;
        watched.forward(&[1], &Tensor::ones([1, 1], tch::kind::FLOAT_CPU))?;
        let _ = tch::no_grad(|| weight.data().fill_(7.));
        watched.flush()
    }),
    ("inputs that are not one for each id", InvalidBatch, |place| {
        place.inverse().forward(&[1, 2], &vec![1.]).map(drop)
    }),
    ("an empty id", InvalidBatch, |place| place.numbers().put(&[""], &vec![1]).map(drop)),
    ("an id with two values", InvalidBatch, |place| place.numbers().put(&["a", "a"], &vec![1, 2]).map(drop)),
    ("an id with two stamps", InvalidBatch, |place| {
        let stamped: StampedTable<Vec<i64>> = Table::builder("stamped_v1").stamped().open(&place.cache())?;
        stamped.put(&[("a", 1), ("a", 2)], &vec![1, 2]).map(drop)
    }),
    ("a loader that returns too much", InvalidBatch, |place| {
        place.inverse().fetch(&[1], |_| Ok(vec![1., 2.])).map(drop)
    }),
    ("an input tensor without dimensions", InvalidBatch, |place| {
        place.scaled()?.forward(&[1], &Tensor::from(1.)).map(drop)
    }),
    ("a file that holds no weights", InvalidWeights, |place| {
        fs::write(place.path("weights.safetensors"), "no weights").unwrap();
        load(&place.path("weights.safetensors")).map(drop)
    }),
    ("an id that cannot name a folder", InvalidId, |place| place.cache().table::<Vec<i64>>("a/b").map(drop)),
    ("a table with the id of a module", InvalidId, |place| {
        place.cache().table::<Vec<i64>>("inverse_v1").map(drop)
    }),
    ("an empty path", InvalidPath, |_| Cache::open("").map(drop)),
    ("a file where the cache should be", InvalidPath, |place| {
        fs::write(place.path("cache"), "a file").unwrap();
        Cache::open(place.path("cache")).map(drop)
    }),
    ("a setting out of range", InvalidSettings, |place| {
        Cache::builder().recheck(2.).open(place.0.path()).map(drop)
    }),
    ("a fraction out of range", InvalidSettings, |place| {
        place.inverse().verify(-1., 0, |_| unreachable!("no row is checked")).map(drop)
    }),
    ("other settings than those of an open handle", InvalidSettings, |place| {
        let _open = place.inverse();
        Cache::builder()
            .max_bytes(1, WhenFull::EvictOldest)
            .open(place.path("cache"))?
            .module(Inverse)
            .map(drop)
    }),
    ("invalidating in mode ReadOnly", WrongMode, |place| {
        place.cache().with_mode(Mode::ReadOnly).module(Inverse)?.invalidate(&[1])
    }),
    ("verifying in mode Off", WrongMode, |place| {
        let off = place.cache().with_mode(Mode::Off).module(Inverse)?;
        off.verify(1., 0, |_| unreachable!("no row is checked")).map(drop)
    }),
    ("putting into a folder that is full", Full, |place| {
        let numbers = place.numbers();
        numbers.put(&["a"], &vec![1])?;
        numbers.flush()?;
        drop(numbers);
        let full = Cache::builder().max_bytes(1, WhenFull::StopWriting).open(place.path("cache"))?;
        full.table::<Vec<i64>>("numbers_v1")?.put(&["b"], &vec![2]).map(drop)
    }),
    ("a damaged identity", Corrupt, |place| {
        fs::write(change_0(&place.filled().path("cache")), "damaged").unwrap();
        place.scaled().map(drop)
    }),
    ("a module of a closed cache", Closed, |place| {
        let cache = place.cache();
        let scaled = cache.module(Scaled::new(2.))?;
        cache.close()?;
        compute(&scaled, 1)
    }),
];

/// Faults with a cause that is an error of the operating system.
const IO_FAULTS: &[(&str, ErrorKind, Fault)] = &[
    ("a file in the place of the folder", Io, |place| {
        let scaled = place.scaled()?;
        compute(&scaled, 1)?;
        fs::write(place.path("cache"), "no directory").unwrap();
        scaled.flush()
    }),
    ("the id of a file that is missing", Io, |place| ContentId::of_file(place.path("none.jpg")).map(drop)),
    ("weights that are missing", InvalidWeights, |place| load(&place.path("none.safetensors")).map(drop)),
    ("a script that is missing", InvalidWeights, |place| {
        Frozen::script(Device::Cpu, place.path("none.pt")).map(drop)
    }),
    ("an empty path", InvalidPath, |_| Cache::open("").map(drop)),
    ("a loader whose file is missing", Loader, |place| {
        place.inverse().fetch(&[1], |_| Ok(vec![fs::read(place.path("none.txt"))?.len() as f32])).map(drop)
    }),
];

/// The frozen weights of which the test keeps a tensor.
#[cached_module(id = "watched_in_errors_v1", key = i64)]
struct Watched {
    network: Frozen<nn::Linear>,
}

impl Extractor for Watched {
    type Input = Tensor;
    type Output = Typed<f32, tcx::D1<1>>;

    fn forward(&self, inputs: &Tensor) -> Result<Self::Output> {
        Ok(nn::Module::forward(&*self.network, inputs).into())
    }
}

/// The error of a fault in a place of its own.
fn error_of(name: &str, fault: Fault) -> Error {
    let place = Place(tempfile::tempdir().unwrap());
    fault(&place).err().unwrap_or_else(|| panic!("{name} is accepted"))
}

/// No message holds that of its cause, so that it is printed once wherever the causes are printed too.
fn assert_printed_once(name: &str, error: Error) {
    let message = error.to_string();
    let mut chain = vec![message];
    let mut cause = error.source();
    while let Some(error) = cause {
        chain.push(error.to_string());
        cause = error.source();
    }
    for pair in chain.windows(2) {
        assert!(!pair[0].contains(&pair[1]), "{name}: {chain:?}");
    }
    assert_eq!(format!("{error:#}"), chain.join(": "), "{name}");
    assert_eq!(format!("{error:?}"), chain.join(": "), "{name}");
    assert_eq!(format!("{:#}", anyhow::Error::from(error)), chain.join(": "), "{name}");
}

#[test]
fn every_fault_has_an_error_of_its_kind_which_is_printed_once() {
    for &(name, kind, fault) in FAULTS {
        let error = error_of(name, fault);
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert_printed_once(name, error);
    }
}

#[test]
fn an_error_leads_to_the_error_of_the_operating_system_behind_it() {
    for &(name, kind, fault) in IO_FAULTS {
        let error = error_of(name, fault);
        assert_eq!(error.kind(), kind, "{name}: {error}");
        let first = std::iter::successors(error.source(), |&error| error.source()).last();
        assert!(first.is_some_and(<dyn std::error::Error>::is::<io::Error>), "{name}: {error:#}");
        assert_printed_once(name, error);
    }
}

#[test]
fn an_error_of_libtorch_is_the_cause_of_the_error_of_the_module() {
    let error = error_of("three inputs for two weights", |place| {
        let numbers = |len: i64| Tensor::ones([len], tch::kind::FLOAT_CPU);
        place.cache().module(Times { weight: numbers(2) })?.forward(&[1, 2, 3], &numbers(3)).map(drop)
    });
    assert_eq!((error.kind(), error.module_id()), (Libtorch, Some("times_v1")));
    assert!(error.source().is_some_and(<dyn std::error::Error>::is::<TchError>), "{error:?}");
    assert_printed_once("libtorch", error);
}

#[test]
fn the_error_of_a_loader_is_found_as_it_was() {
    #[derive(Debug, PartialEq)]
    struct NotOnThisHost(u32);

    impl std::fmt::Display for NotOnThisHost {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "shard {} is not on this host", self.0)
        }
    }

    impl std::error::Error for NotOnThisHost {}

    let place = Place(tempfile::tempdir().unwrap());
    let error = place.inverse().fetch(&[1], |_| Err(Error::loader(NotOnThisHost(7)))).unwrap_err();
    assert_eq!((error.kind(), error.module_id()), (Loader, Some("inverse_v1")));
    assert_eq!(error.source().and_then(|cause| cause.downcast_ref()), Some(&NotOnThisHost(7)));
    let said = "module `inverse_v1`: loading the input of `1` failed: shard 7 is not on this host";
    assert_eq!(format!("{error:#}"), said);

    let boxed = || Box::<dyn std::error::Error + Send + Sync>::from("a word");
    let error = place.inverse().fetch(&[1], |_| Err(boxed())?).unwrap_err();
    assert_eq!(format!("{error:#}"), "module `inverse_v1`: loading the input of `1` failed: a word");
}

/// Fails in `forward`.
#[cached_module(id = "unreachable_v1", key = i64)]
struct Unreachable;

impl Extractor for Unreachable {
    type Input = Vec<f32>;
    type Output = Vec<f32>;

    fn forward(&self, _: &Vec<f32>) -> Result<Vec<f32>> {
        Err(Error::loader("the server is busy"))
    }
}

#[test]
fn an_error_of_forward_or_of_a_builder_is_not_taken_for_one_of_a_loader() {
    let place = Place(tempfile::tempdir().unwrap());
    let error = place.cache().module(Unreachable).unwrap().forward(&[1], &vec![1.]).unwrap_err();
    assert_eq!(format!("{error:#}"), "module `unreachable_v1`: `forward` failed: the server is busy");
    assert_eq!(error.kind(), Loader);
    let build = || Err::<Inverse, _>(Error::loader("no such file"));
    let lazy = place.cache().lazy_module(Identity::of(&Inverse), Device::Cpu, build).unwrap();
    let error = lazy.forward(&[1], &vec![1.]).unwrap_err();
    assert_eq!(format!("{error:#}"), "module `inverse_v1`: building the module failed: no such file");
    let error = place.inverse().fetch(&[3, 4], |_| Err(Error::loader("a word"))).unwrap_err();
    let said = "module `inverse_v1`: loading the inputs of 2 samples failed, the first of which is `3`";
    assert_eq!(error.to_string(), said);
}

#[test]
fn a_mismatch_names_the_module_whose_id_has_to_be_bumped() {
    let place = Place(tempfile::tempdir().unwrap());
    let error = place.filled().cache().module(Scaled::new(3.)).unwrap_err();
    assert_eq!(error.module_id(), Some("scaled_v1"));
    assert!(error.to_string().contains("bump the id, as in `scaled_v2`"), "{error}");
}
