//! The identity of a cache contains the module and those before it in a chain, but neither the path nor the machine.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use tch::{Device, Tensor, kind};
use tcx::{Cache, CacheableOutput, Cached, Extractor, Frozen, Identity, Result, Table, cached_module};

#[derive(CacheableOutput)]
enum Side {
    Left,
    Right,
}

/// Scales, and says on which side of the mean.
#[cached_module(
    id = "upstream_v1",
    key = i64,
    output(scaled: tensor(f32, [1]), side: Vec<Side>)
)]
struct Upstream {
    mean: Frozen<Tensor>,
    scale: f64,
}

impl Extractor for Upstream {
    type Input = Tensor;
    type Output = UpstreamOutput;

    fn forward(&self, x: &Tensor) -> Result<UpstreamOutput> {
        let scaled = (x - &*self.mean) * self.scale;
        let right: Vec<bool> = Vec::try_from(scaled.f_gt(0)?.flatten(0, -1))?;
        let side = right.into_iter().map(|right| if right { Side::Right } else { Side::Left }).collect();
        Ok(UpstreamOutput { scaled, side })
    }
}

macro_rules! sums {
    ($name:ident, $id:literal) => {
        #[cached_module(id = $id, key = i64)]
        struct $name;

        impl Extractor for $name {
            type Input = Tensor;
            type Output = Vec<f32>;

            fn forward(&self, x: &Tensor) -> Result<Vec<f32>> {
                Ok(Vec::try_from(x.f_flatten(0, -1)?)?)
            }
        }
    };
}

sums!(Middle, "middle_v1");
sums!(Last, "last_v1");
sums!(OneTwin, "twins_v1");
sums!(OtherTwin, "twins_v1");

fn upstream(mean: f32, scale: f64) -> Upstream {
    Upstream { mean: Frozen::tensor(Tensor::from_slice(&[mean])).unwrap(), scale }
}

/// A chain of three; all upstream modules have caches of their own elsewhere.
fn last(dir: &Path, first: Upstream) -> Result<Cached<Last>> {
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Cache::open(elsewhere.path())?;
    let middle = other.module_after(&other.module(first)?, Middle)?;
    Cache::open(dir)?.module_after(&middle, Last)
}

#[test]
fn another_module_anywhere_before_in_a_chain_meets_no_old_rows() {
    let dir = tempfile::tempdir().unwrap();
    let cached = last(dir.path(), upstream(1., 2.)).unwrap();
    cached.forward(&[1], &Tensor::ones([1, 1], kind::FLOAT_CPU)).unwrap();
    cached.flush().unwrap();
    drop(cached);
    let error = last(dir.path(), upstream(1., 3.)).unwrap_err().to_string();
    assert!(error.contains("`middle_v1/upstream_v1/scale`: 2f64 in the cache, 3f64 in the code"), "{error}");
    assert!(
        error.contains(
            "bump the id, as in `last_v2`, to start a new cache, or open another directory, or set"
        )
    );
    let error = last(dir.path(), upstream(0., 2.)).unwrap_err().to_string();
    assert!(error.contains("`middle_v1/upstream_v1/mean.weights`: blake3:"), "{error}");
    let error = Cache::open(dir.path()).unwrap().module(Last).unwrap_err().to_string();
    let said =
        "`middle_v1/upstream_v1/Output`: scaled: f32 [1], side: u8 [] in the cache, absent from the code";
    assert!(error.contains(said), "{error}");
    let said = "`middle_v1/upstream_v1/Output.side`: Left = 0, Right = 1 in the cache, absent from the code";
    assert!(error.contains(said), "{error}");
    let cached = last(dir.path(), upstream(1., 2.)).unwrap();
    assert_eq!(cached.fetch(&[1], |_| panic!("the same chain")).unwrap(), [1.]);
}

#[test]
fn a_refusal_lists_everything_that_differs_and_the_next_id() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let cached = cache.module(upstream(1., 2.)).unwrap();
    cached.forward(&[1], &Tensor::ones([1, 1], kind::FLOAT_CPU)).unwrap();
    let table = Table::<Vec<i64>>::builder("numbers_v1").metadata("version", "1").metadata("unit", "m");
    table.open(&cache).unwrap().put(&["a"], &vec![1]).unwrap();
    cache.flush().unwrap();
    let module = cache.module(upstream(0., 3.)).unwrap_err().to_string();
    let table = Table::<Vec<f32>>::builder("numbers_v1").metadata("version", "2").metadata("scale", "1");
    let table = table.open(&cache).unwrap_err().to_string();
    for (error, lines) in [
        (
            &module,
            ["`mean.weights`: blake3:", "`scale`: 2f64 in the cache, 3f64 in the code", "`upstream_v2`"],
        ),
        (
            &table,
            [
                "i64 [] in the cache, f32 [] in the code",
                "`version`: \"1\" in the cache, \"2\"",
                "`numbers_v2`",
            ],
        ),
        (
            &table,
            ["`unit`: \"m\" in the cache, absent", "`scale`: absent from the cache", "bump the id, as in"],
        ),
    ] {
        for line in lines {
            assert!(error.contains(line), "{line}: {error}");
        }
    }
}

#[test]
fn two_modules_of_one_id_are_refused_with_both_places() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let errors = [cache.module(OneTwin).map(drop), cache.module(OtherTwin).map(drop)];
    for error in errors.map(|opened| opened.unwrap_err()) {
        assert_eq!(error.module_id(), Some("twins_v1"));
        let places = error.to_string().matches("identity/identity.rs:").count();
        assert_eq!(places, 2, "{error}");
    }
    let table = cache.table::<Vec<i64>>("twins_v1").map(drop).unwrap_err().to_string();
    assert!(table.contains("its id is used by a module"), "{table}");
}

#[test]
fn a_lazy_module_stands_in_a_chain_too() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let first = cache.module(upstream(1., 2.)).unwrap();
    let middle = cache.module_after(&first, Middle).unwrap();
    middle.forward(&[1], &Tensor::ones([1, 1], kind::FLOAT_CPU)).unwrap();
    let mut identity = Identity::of(&Middle);
    identity.after(&first);
    let lazy = cache.lazy_module(identity, Device::Cpu, || Ok(Middle)).unwrap();
    assert_eq!(lazy.fetch(&[1], |_| panic!("the same chain")).unwrap(), [1.]);
    assert_eq!(lazy.forward(&[2], &Tensor::ones([1, 1], kind::FLOAT_CPU)).unwrap(), [1.]);
}

sums!(First, "sums_v1");

/// What `First` became: it computes something else.
#[cached_module(id = "sums_v2", key = i64)]
struct Second;

impl Extractor for Second {
    type Input = Tensor;
    type Output = Vec<f32>;

    fn forward(&self, x: &Tensor) -> Result<Vec<f32>> {
        Ok(Vec::try_from((x * 2.).f_flatten(0, -1)?)?)
    }
}

#[test]
fn the_next_version_of_a_module_opens_beside_the_last_and_shares_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (ids, x) = ([1, 2, 3], Tensor::from_slice(&[1_f32, 2., 3.]));
    for round in 0..2 {
        let cache = Cache::open(dir.path()).unwrap();
        let (first, second) = (cache.module(First).unwrap(), cache.module(Second).unwrap());
        assert_eq!(first.coverage(&ids).unwrap().is_complete(), round > 0);
        assert_eq!(first.forward(&ids, &x).unwrap(), [1., 2., 3.]);
        assert_eq!(
            second.coverage(&ids).unwrap().is_complete(),
            round > 0,
            "the first's rows are not its own"
        );
        assert_eq!(second.forward(&ids, &x).unwrap(), [2., 4., 6.]);
        assert_eq!(
            (first.stats().rows_accepted, second.stats().rows_accepted),
            if round > 0 { (0, 0) } else { (3, 3) }
        );
        cache.close().unwrap();
    }
    let cache = Cache::open(dir.path()).unwrap();
    let (first, second) = (cache.module(First).unwrap(), cache.module(Second).unwrap());
    second.invalidate_all().unwrap();
    assert!(first.coverage(&ids).unwrap().is_complete());
    assert_eq!(second.coverage(&ids).unwrap().found(), 0);
    cache.close().unwrap();
    std::fs::remove_dir_all(dir.path().join("sums_v1")).unwrap();
    let second = Cache::open(dir.path()).unwrap().module(Second).unwrap();
    assert_eq!(second.forward(&ids, &x).unwrap(), [2., 4., 6.]);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            std::fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

#[test]
fn a_cache_that_was_moved_or_copied_stays_valid() {
    let dir = tempfile::tempdir().unwrap();
    let (first, moved, copied) =
        (dir.path().join("first"), dir.path().join("moved"), dir.path().join("copied"));
    let open = |dir: &Path| Cache::open(dir).unwrap().module(upstream(1., 2.)).unwrap();
    let x = |value: f32| Tensor::from_slice(&[value]).view([1, 1]);
    let cached = open(&first);
    cached.forward(&[1], &x(1.)).unwrap();
    cached.flush().unwrap();
    drop(cached);
    copy(&first, &copied);
    std::fs::rename(&first, &moved).unwrap();
    for (place, id) in [(&moved, 2), (&copied, 3)] {
        let cached = open(place);
        cached.fetch(&[1], |_| panic!("nothing is missing")).unwrap();
        cached.forward(&[id], &x(5.)).unwrap();
        cached.flush().unwrap();
        drop(cached);
        let found = open(place).fetch(&[1, id], |_| panic!("it is written there as well")).unwrap();
        assert_eq!(Vec::<f32>::try_from(found.scaled.flatten(0, -1)).unwrap(), [0., 8.]);
    }
    // The copies grow independently; rows that both contain are the same.
    assert!(!open(&copied).coverage(&[2]).unwrap().is_complete());
    assert!(!first.exists());
}

/// Modules that one line of a macro makes, with one id.
macro_rules! factors {
    ($($name:ident: $factor:literal),*) => {$(
        mod $name {
            use tcx::{Extractor, Result, cached_module};

            #[cached_module(id = "factor_v1", key = i64)]
            pub(super) struct Times {}

            impl Extractor for Times {
                type Input = Vec<i64>;
                type Output = Vec<i64>;

                fn forward(&self, x: &Vec<i64>) -> Result<Vec<i64>> {
                    Ok(x.iter().map(|x| $factor * x).collect())
                }
            }
        }
    )*};
}

factors!(two: 2, three: 3);

#[test]
fn modules_that_one_macro_makes_with_one_id_do_not_share_rows() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let doubled = cache.module(two::Times {}).and_then(|two| two.forward(&[1], &vec![1]));
    let tripled = cache.module(three::Times {}).and_then(|three| three.forward(&[1], &vec![1]));
    for refused in [doubled, tripled] {
        let error = refused.unwrap_err().to_string();
        assert!(error.starts_with("module `factor_v1`: its id is used by 2 modules: "), "{error}");
    }
}

fn millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn a_cache_tells_where_it_comes_from() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Middle).unwrap();
    let before = millis();
    cached.forward(&[1], &Tensor::ones([1, 1], kind::FLOAT_CPU)).unwrap();
    cached.flush().unwrap();
    let after = millis();
    let change = dir.path().join("middle_v1").join(format!("change-{:020}", 0));
    let bytes = std::fs::read(change).unwrap();
    let times = bytes.windows(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    assert!(times.into_iter().any(|time| (before..=after).contains(&time)), "when it was made");
    let bytes = String::from_utf8_lossy(&bytes).into_owned();
    for entry in ["tcx", "tch", "(libtorch 2.13)", "platform", "device", "cpu", "host", "program"] {
        assert!(bytes.contains(entry), "{entry}");
    }
    assert!(bytes.contains(&versions()), "{}", versions());
}

/// The versions of tch and libtorch, from the manifest and from what `cargo xtask` provides, as caches record them.
fn versions() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let minor = |file: &str, start: &str| {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let version = text.split_once(start).unwrap().1.split('"').next().unwrap();
        version.rsplit_once('.').unwrap().0.to_owned()
    };
    let tch = minor("Cargo.toml", "\ntch = \"");
    let libtorch = minor("xtask/src/provision/libtorch.rs", "const VERSION: &str = \"");
    format!("{tch} (libtorch {libtorch})")
}
