//! Forms of output beside tensors: fields that are not cached, enums, structs and tuples in one another.

use std::fs;
use std::path::Path;

use tch::{Tensor, kind};
use tcx::{Cache, CacheableOutput, Cached, D1, Extractor, Result, Typed, cached_module};

/// A module that returns what `$make` makes of the numbers it is given.
macro_rules! module {
    ($name:ident, $id:literal, $output:ty, $make:expr) => {
        #[cached_module(id = $id, key = i64)]
        struct $name;

        impl Extractor for $name {
            type Input = Vec<i64>;
            type Output = $output;

            fn forward(&self, inputs: &Vec<i64>) -> Result<$output> {
                let make: fn(&[i64]) -> $output = $make;
                Ok(make(inputs))
            }
        }
    };
}

/// A type that can neither be compared nor cached.
#[derive(Default)]
struct Diary {
    computed: bool,
}

#[derive(CacheableOutput)]
struct Described {
    score: Vec<i64>,
    #[tcx(skip)]
    attention: Option<Tensor>,
    #[tcx(skip)]
    __diary: Diary,
    #[tcx(skip)]
    note: &'static str,
}

module!(Describes, "describes_v1", Described, |inputs| Described {
    score: inputs.to_vec(),
    attention: Some(Tensor::from_slice(inputs)),
    __diary: Diary { computed: true },
    note: "computed",
});

#[test]
fn a_skipped_field_is_its_default_for_misses_and_hits_alike() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Describes).unwrap();
    for _ in 0..2 {
        let found = cached.forward(&[1, 2], &vec![10, 20]).unwrap();
        assert_eq!(found.score, [10, 20]);
        assert!(found.attention.is_none() && !found.__diary.computed && found.note.is_empty());
    }
    assert_eq!(cached.stats().hits, 2);
}

/// The same enum, in two versions of a program.
mod before {
    #[derive(tcx::CacheableOutput, Debug, PartialEq)]
    pub(crate) enum Label {
        Cat,
        Dog,
    }
}

mod renamed {
    #[derive(tcx::CacheableOutput)]
    pub(crate) enum Label {
        Cat,
        Wolf,
    }
}

mod renumbered {
    #[derive(tcx::CacheableOutput)]
    pub(crate) enum Label {
        Dog,
        Cat,
    }
}

/// Returns one of two labels.
#[cached_module(id = "labels_v1", key = i64)]
struct Labels<L: 'static> {
    #[tcx(assume_stateless)]
    label: fn(bool) -> L,
}

impl<L> Extractor for Labels<L>
where
    Vec<L>: CacheableOutput,
{
    type Input = Vec<i64>;
    type Output = (Vec<i64>, (Vec<L>, Vec<bool>));

    fn forward(&self, inputs: &Vec<i64>) -> Result<Self::Output> {
        let labels = inputs.iter().map(|&input| (self.label)(input == 0)).collect();
        Ok((inputs.clone(), (labels, vec![true; inputs.len()])))
    }
}

fn labels<L>(dir: &Path, label: fn(bool) -> L) -> Result<Cached<Labels<L>>>
where
    Vec<L>: CacheableOutput,
{
    Cache::open(dir)?.module(Labels { label })
}

#[test]
fn an_enum_whose_variants_changed_never_meets_old_rows() {
    use {before::Label as Before, renamed::Label as Renamed, renumbered::Label as Renumbered};
    let dir = tempfile::tempdir().unwrap();
    let before = |zero| if zero { Before::Cat } else { Before::Dog };
    let cached = labels(dir.path(), before).unwrap();
    let found = cached.forward(&[1, 2], &vec![0, 1]).unwrap();
    assert_eq!(found.1.0, [Before::Cat, Before::Dog]);
    cached.flush().unwrap();
    drop(cached);
    let error = labels(dir.path(), |zero| if zero { Renamed::Cat } else { Renamed::Wolf }).unwrap_err();
    let said = "`Output.1.0`: Cat = 0, Dog = 1 in the cache, Cat = 0, Wolf = 1 in the code";
    assert!(error.to_string().contains(said), "{error}");
    let error = labels(dir.path(), |zero| if zero { Renumbered::Cat } else { Renumbered::Dog }).unwrap_err();
    let said = "`Output.1.0`: Cat = 0, Dog = 1 in the cache, Dog = 0, Cat = 1 in the code";
    assert!(error.to_string().contains(said), "{error}");
    let found = labels(dir.path(), before).unwrap().fetch(&[2, 1], |_| panic!("nothing is missing")).unwrap();
    assert_eq!(found.1.0, [Before::Dog, Before::Cat]);
}

#[derive(CacheableOutput)]
struct Inner<T: CacheableOutput, const N: usize> {
    #[tensor(i64, [N, 1])]
    tensor: Tensor,
    other: T,
    array: Vec<[i64; N]>,
}

fn inner<T: CacheableOutput, const N: usize>(other: T, inputs: &[i64]) -> Inner<T, N> {
    let tensor = Tensor::from_slice(inputs).view([-1, 1, 1]).expand([-1, N as i64, 1], false);
    Inner { tensor, other, array: inputs.iter().map(|&input| [input; N]).collect() }
}

type Deep = ((((Vec<i64>,),), Vec<[i64; 2]>), (Inner<(Inner<Vec<String>, 1>, Typed<i64, D1<1>>), 2>,));

module!(Nests, "nests_v1", Deep, |inputs| {
    let texts = inputs.iter().map(ToString::to_string).collect();
    let typed = Tensor::from_slice(inputs).unsqueeze(1).into();
    let pairs = inputs.iter().map(|&input| [input, -input]).collect();
    ((((inputs.to_vec(),),), pairs), (inner((inner(texts, inputs), typed), inputs),))
});

#[test]
fn structs_and_tuples_nest_to_any_depth() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Nests).unwrap();
    for _ in 0..2 {
        let ((((plain,),), pairs), (outer,)) = cached.forward(&[1, 2], &vec![7, -8]).unwrap();
        let (innermost, typed) = outer.other;
        assert_eq!((plain, pairs), (vec![7, -8], vec![[7, -7], [-8, 8]]));
        assert_eq!((outer.tensor.size(), outer.array), (vec![2, 2, 1], vec![[7; 2], [-8; 2]]));
        assert_eq!((innermost.tensor.size(), innermost.array), (vec![2, 1, 1], vec![[7], [-8]]));
        assert_eq!(innermost.other, ["7", "-8"]);
        assert_eq!(Vec::<i64>::try_from(typed.squeeze_dim(1)).unwrap(), [7, -8]);
    }
}

/// More variants than an entry of the identity has room for.
#[derive(CacheableOutput, Clone, Debug, PartialEq)]
enum Breed {
    BerneseMountainDog,
    CavalierKingCharlesSpaniel,
    GreaterSwissMountainDog,
    GermanShorthairedPointer,
    SoftCoatedWheatenTerrier,
    StaffordshireBullTerrier,
    WestHighlandWhiteTerrier,
    WirehairedPointingGriffon = 300,
}

#[test]
fn the_names_of_many_variants_are_kept_for_other_programs() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    cache
        .table::<Vec<Breed>>("breeds_v1")
        .unwrap()
        .put(&["a"], &vec![Breed::WirehairedPointingGriffon])
        .unwrap();
    cache.flush().unwrap();
    let file = |start: &str| {
        let mut files = fs::read_dir(dir.path().join("breeds_v1")).unwrap().map(Result::unwrap);
        let own = |file: &fs::DirEntry| file.file_name().to_string_lossy().starts_with(start);
        String::from_utf8_lossy(&fs::read(files.find(own).unwrap().path()).unwrap()).into_owned()
    };
    let identity = file("change-");
    assert!(
        identity.contains("blake3:") && identity.contains("WirehairedPointingGriffon = 300"),
        "{identity}"
    );
    assert!(file("seg-").contains(r#""WirehairedPointingGriffon":300}"#));
    let table = Cache::open(dir.path()).unwrap().table::<Vec<Breed>>("breeds_v1").unwrap();
    assert_eq!(table.get(&["a"]).unwrap(), Some(vec![Breed::WirehairedPointingGriffon]));
}

/// Its fields name its constants.
#[derive(CacheableOutput)]
struct OfConstants {
    #[tensor(f32, [Self::WIDTH])]
    pooled: Tensor,
    points: Vec<[f32; Self::POINTS]>,
}

impl OfConstants {
    const WIDTH: usize = 3;
    const POINTS: usize = 2;
}

#[test]
fn an_output_may_name_its_own_constants() {
    let dir = tempfile::tempdir().unwrap();
    let table = Cache::open(dir.path()).unwrap().table::<OfConstants>("of_constants_v1").unwrap();
    let values = OfConstants { pooled: Tensor::ones([1, 3], kind::FLOAT_CPU), points: vec![[1., 2.]] };
    table.put(&["a"], &values).unwrap();
    let found = table.get(&["a"]).unwrap().unwrap();
    assert_eq!((found.pooled, found.points), (values.pooled, values.points));
}
