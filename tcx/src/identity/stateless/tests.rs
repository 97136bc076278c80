use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use half::{bf16, f16};
use tch::{Device, Kind};

use crate::{Identity, Stateless};

fn lines<T: Stateless + ?Sized>(value: &T) -> String {
    Identity::of(value).to_string()
}

fn value<T: Stateless>(value: T) -> String {
    let identity = Identity::of(&value);
    assert_eq!(identity.entries().len(), 1, "{identity}");
    identity.entries()[0].1.clone()
}

#[test]
fn numbers_carry_their_type() {
    assert_eq!(value(224i64), "224i64");
    assert_ne!(value(224i64), value(224i32));
    assert_ne!(value(1i64), value(1f64));
    assert_eq!(value(u128::MAX), "340282366920938463463374607431768211455u128");
}

#[test]
fn floats_are_the_shortest_decimal_that_reads_back() {
    assert_eq!(value(0.1f32), "0.1f32");
    assert_eq!(value(1f64), "1f64");
    assert_eq!(value(1e-7f64), "0.0000001f64");
    assert_eq!(value(f16::from_f32(0.1)), "0.099975586f16");
    assert_eq!(value(bf16::from_f32(1.)), "1bf16");
    for pair in [(0.1f64, 0.1f32.into()), (0.3, 0.1 + 0.2), (0., -0.), (f64::INFINITY, f64::NEG_INFINITY)] {
        assert_ne!(value(pair.0), value(pair.1));
    }
}

#[test]
fn a_nan_is_itself_and_nothing_else() {
    assert_eq!(value(f32::NAN), value(f32::NAN));
    assert_ne!(value(f32::NAN), value(f32::from_bits(f32::NAN.to_bits() | 1)));
    assert_ne!(value(f32::NAN), value(f64::NAN));
}

#[test]
fn a_string_cannot_imitate_another_entry() {
    assert_eq!(value("a \"b\"\n\\é".to_owned()), r#""a \"b\"\n\\é""#);
    assert_ne!(value("1i64"), value(1i64));
    assert_ne!(value('a'), value("a"));
    assert_eq!(value(PathBuf::from("/w/a.bin")), "\"/w/a.bin\"");
}

#[test]
fn long_values_are_entered_by_their_hash() {
    let long = "a".repeat(100_000);
    let entered = value(long.clone());
    assert!(entered.starts_with("blake3:") && entered.ends_with(", 100002 bytes"), "{entered}");
    assert_ne!(entered, value(long + "a"));
}

#[test]
fn long_sequences_are_entered_by_their_hash() {
    let mut numbers: Vec<i64> = (0..10_000).collect();
    let entered = value(numbers.clone());
    assert!(entered.starts_with("10000 items, blake3:"), "{entered}");
    numbers.swap(0, 9_999);
    assert_ne!(entered, value(numbers));
}

#[test]
fn sequences_have_a_length_and_an_order() {
    assert_eq!(lines(&[0.5f32, 1.]), "self = 2 items\nself[0] = 0.5f32\nself[1] = 1f32");
    assert_eq!(lines(&Vec::<f32>::new()), "self = 0 items");
    assert_ne!(lines(&[1i64, 2]), lines(&[2i64, 1]));
    assert_ne!(lines(&vec![vec![1i64], vec![]]), lines(&vec![vec![], vec![1i64]]));
    assert_eq!(lines(&BTreeSet::from([2i64, 1])), lines(&[1i64, 2]));
    let map = BTreeMap::from([("a".to_owned(), 1i64)]);
    assert_eq!(lines(&map), "self = 1 item\nself[0].0 = \"a\"\nself[0].1 = 1i64");
}

#[test]
fn absence_is_part_of_the_identity() {
    assert_eq!(lines(&None::<i64>), "self = None");
    assert_eq!(lines(&Some(1i64)), "self = Some\n0 = 1i64");
    assert_ne!(lines(&Some(None::<i64>)), lines(&None::<Option<i64>>));
}

#[test]
fn a_range_is_its_ends_and_a_number_that_is_not_zero_is_a_number() {
    assert_eq!(lines(&(1i64..4)), "self = Range\nstart = 1i64\nend = 4i64");
    assert_ne!(lines(&(1i64..=4)), lines(&(1i64..4)));
    assert_eq!(lines(&std::num::NonZero::new(3usize).unwrap()), lines(&3usize));
}

#[test]
fn pointers_are_what_they_point_to() {
    assert_eq!(lines(&Box::new(&Arc::new(7i64))), lines(&7i64));
}

#[test]
fn a_device_cannot_change_an_output() {
    assert_eq!(lines(&(1i64, Device::Cpu)), lines(&(1i64, Device::Cuda(3))));
    assert_eq!(value(Kind::Half), "Kind::Half");
    assert_eq!(value(Duration::from_millis(3)), "3000000ns");
}

#[derive(Stateless)]
#[tcx(crate = crate)]
struct Config<'a> {
    size: i64,
    mean: [f32; 2],
    mode: Mode,
    name: &'a str,
    #[tcx(not_identity)]
    #[expect(dead_code, reason = "left out, as the name says")]
    verbose: bool,
    #[tcx(assume_stateless)]
    #[expect(dead_code, reason = "not entered, as the name says")]
    calls: AtomicU64,
    #[tcx(not_identity, assume_stateless)]
    #[expect(dead_code, reason = "left out, as the name says")]
    served: AtomicU64,
}

#[derive(Stateless)]
#[tcx(crate = crate)]
enum Mode {
    Plain,
    Scaled(
        f64,
        #[tcx(not_identity)]
        #[expect(dead_code, reason = "left out, as the name says")]
        bool,
        i64,
    ),
    Cropped {
        top: i64,
        r#type: Option<bool>,
    },
}

#[test]
fn a_struct_is_its_name_and_its_fields() {
    let mode = Mode::Cropped { top: 3, r#type: Some(true) };
    let (calls, served) = (AtomicU64::new(5), AtomicU64::new(6));
    let config = Config { size: 224, mean: [0.5, 0.25], mode, name: "a", verbose: true, calls, served };
    assert_eq!(
        lines(&config),
        "self = Config\nsize = 224i64\nmean = 2 items\nmean[0] = 0.5f32\nmean[1] = 0.25f32\n\
         mode = Mode::Cropped\nmode.top = 3i64\nmode.type = Some\nmode.type.0 = true\nname = \"a\"\n\
         calls = assumed stateless"
    );
}

#[test]
fn an_enum_is_its_variant_and_its_fields() {
    assert_eq!(lines(&Mode::Plain), "self = Mode::Plain");
    assert_eq!(lines(&Mode::Scaled(0.5, true, 2)), "self = Mode::Scaled\n0 = 0.5f64\n2 = 2i64");
    assert_eq!(lines(&Mode::Scaled(0.5, true, 2)), lines(&Mode::Scaled(0.5, false, 2)));
}

#[derive(Stateless)]
#[tcx(crate = crate)]
struct Generic<P, const N: usize> {
    pooling: PhantomData<P>,
    values: Vec<P>,
}

mod mean {
    pub(super) struct Pool;
}

#[derive(Stateless)]
#[tcx(crate = crate)]
struct Pool;

#[test]
fn parameters_are_part_of_a_type() {
    fn generic<P: Stateless, const N: usize>() -> String {
        lines(&Generic::<P, N> { pooling: PhantomData, values: Vec::new() })
    }
    assert!(generic::<i64, 4>().starts_with("self = Generic\nself<P> = i64\nself<N> = 4usize\n"));
    assert_ne!(generic::<i64, 4>(), generic::<i64, 5>());
    assert_ne!(generic::<i64, 4>(), generic::<Pool, 4>());
    assert_ne!(lines(&PhantomData::<Pool>), lines(&PhantomData::<mean::Pool>));
}

trait Net: Stateless {}

#[derive(Stateless)]
#[tcx(crate = crate)]
struct Small {
    depth: i64,
}

#[derive(Stateless)]
#[tcx(crate = crate)]
struct Large {
    depth: i64,
}

impl Net for Small {}
impl Net for Large {}

#[derive(Stateless)]
#[tcx(crate = crate)]
struct Holder {
    nets: Vec<Arc<dyn Net>>,
}

#[test]
fn an_object_is_the_type_behind_it() {
    let one: Arc<dyn Net> = Arc::new(Small { depth: 2 });
    let other: Arc<dyn Net> = Arc::new(Large { depth: 2 });
    assert_eq!(
        lines(&Holder { nets: vec![one.clone()] }),
        "self = Holder\nnets = 1 item\nnets[0]<dyn> = tcx::stateless::tests::Small\nnets[0] = Small\nnets[0].depth = 2i64"
    );
    assert_ne!(lines(&Holder { nets: vec![one] }), lines(&Holder { nets: vec![other] }));
}

#[crate::cached_module(id = "borrowed_fields_with_cfg_v1", key = i64)]
struct Borrowed<'a> {
    size: i64,
    #[cfg(test)]
    name: &'a str,
    #[cfg(not(test))]
    gone: Absent,
    #[cfg(not(test))]
    #[tcx(assume_stateless)]
    gone_too: Absent,
}

#[crate::cached_module(id = "fields_with_cfg_v1", key = i64)]
struct Owned {
    #[cfg(not(test))]
    gone: Absent,
    size: i64,
}

#[crate::cached_module(id = "generic_fields_with_cfg_v1", key = i64)]
struct OfSteps<T> {
    #[cfg(not(test))]
    gone: Absent<T>,
    #[cfg(test)]
    #[cfg(not(doc))]
    step: Vec<T>,
    size: i64,
}

impl crate::Extractor for OfSteps<String> {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> crate::Result<Vec<i64>> {
        Ok(inputs.clone())
    }
}

impl crate::Extractor for Borrowed<'_> {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> crate::Result<Vec<i64>> {
        Ok(inputs.clone())
    }
}

impl crate::Extractor for Owned {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> crate::Result<Vec<i64>> {
        Ok(inputs.clone())
    }
}

#[test]
fn fields_that_the_compiler_leaves_out_are_no_part_of_a_module() {
    let borrowed = Borrowed { size: 224, name: "b" };
    assert_eq!(lines(&borrowed), "self = Borrowed\nsize = 224i64\nname = \"b\"");
    assert_eq!(lines(&Owned { size: 224 }), "self = Owned\nsize = 224i64");
    let generic = OfSteps { step: vec!["a".to_owned()], size: 224 };
    assert!(
        lines(&generic).ends_with("\nstep = 1 item\nstep[0] = \"a\"\nsize = 224i64"),
        "{}",
        lines(&generic)
    );
}

/// Its fields mention itself: whether they are Stateless follows from its parameters.
#[derive(Stateless)]
#[tcx(crate = crate)]
enum Tree<T, const N: usize> {
    Leaf([T; N]),
    Both(Box<Self>, Vec<Tree<T, N>>),
}

#[test]
fn a_generic_type_may_contain_itself() {
    let leaf = |value: i64| Tree::Leaf([value]);
    let (one, other) =
        (Tree::Both(Box::new(leaf(1)), vec![leaf(2)]), Tree::Both(Box::new(leaf(1)), vec![leaf(3)]));
    assert_ne!(lines(&one), lines(&other));
    assert!(lines(&one).contains("1[0].0[0] = 2i64"), "{}", lines(&one));
}
