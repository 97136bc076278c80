//! Types of one name in different modules, behind trait objects and beside them.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::borrow::Cow;
use std::marker::PhantomData;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use tcx::{Cache, ErrorKind, Extractor, Identity, Stateless, cached_module};

trait Step: Stateless + Send {
    fn of(&self, x: i64) -> i64;
}

impl ToOwned for dyn Step {
    type Owned = Box<Self>;

    fn to_owned(&self) -> Box<Self> {
        Box::new(first::Own)
    }
}

macro_rules! steps {
    ($module:ident, $factor:literal) => {
        mod $module {
            #[derive(tcx::Stateless)]
            pub(crate) struct Scale {
                pub(crate) by: i64,
            }

            impl super::Step for Scale {
                fn of(&self, x: i64) -> i64 {
                    x * self.by * $factor
                }
            }

            #[derive(tcx::Stateless)]
            pub(crate) enum Kind {
                Scale,
            }

            impl super::Step for Kind {
                fn of(&self, x: i64) -> i64 {
                    match self {
                        Self::Scale => x * $factor,
                    }
                }
            }

            /// One that enters itself.
            pub(crate) struct Own;

            impl tcx::Stateless for Own {
                fn identity(&self, identity: &mut tcx::Identity) {
                    identity.type_name("Own");
                }
            }

            impl super::Step for Own {
                fn of(&self, x: i64) -> i64 {
                    x * $factor
                }
            }
        }
    };
}

steps!(first, 2);
steps!(second, 6);

#[cached_module(id = "stepped_v1", key = i64)]
struct Stepped {
    step: Box<dyn Step>,
}

impl Extractor for Stepped {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        Ok(x.iter().map(|&x| self.step.of(x)).collect())
    }
}

fn assert_apart(first: Box<dyn Step>, second: Box<dyn Step>) {
    let dir = tempfile::tempdir().unwrap();
    let open = |dir: &Path, step| Cache::open(dir).unwrap().module(Stepped { step });
    let cached = open(dir.path(), first).unwrap();
    assert_eq!(cached.forward(&[3], &vec![3]).unwrap(), [6]);
    cached.flush().unwrap();
    drop(cached);
    let refused = match open(dir.path(), second) {
        Ok(cached) => panic!("served {:?}, expected 18", cached.forward(&[3], &vec![3])),
        Err(refused) => refused.to_string(),
    };
    assert!(refused.contains("`step<dyn>`: identity::objects::first::"), "{refused}");
    assert!(refused.contains("identity::objects::second::"), "{refused}");
}

#[test]
fn types_of_one_name_behind_a_trait_object_do_not_share_a_cache() {
    assert_apart(Box::new(first::Scale { by: 1 }), Box::new(second::Scale { by: 1 }));
    assert_apart(Box::new(first::Kind::Scale), Box::new(second::Kind::Scale));
    assert_apart(Box::new(first::Own), Box::new(second::Own));
}

/// A step as users of a macro write it: each has a type of its own, and all have the name of this one.
macro_rules! step {
    ($x:ident => $result:expr) => {{
        #[derive(tcx::Stateless)]
        struct Written;

        impl Step for Written {
            fn of(&self, $x: i64) -> i64 {
                $result
            }
        }

        Box::new(Written)
    }};
}

#[test]
fn types_of_one_path_behind_a_trait_object_are_refused_in_one_program() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let (double, triple) = (step!(x => x * 2), step!(x => x * 3));
    assert_eq!((double.of(7), triple.of(7)), (14, 21));
    let doubled = cache.module(Stepped { step: double }).unwrap();
    assert_eq!(doubled.forward(&[1], &vec![7]).unwrap(), [14]);
    let refused = cache.module(Stepped { step: triple }).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ModuleViolation);
    let name =
        "`identity::objects::types_of_one_path_behind_a_trait_object_are_refused_in_one_program::Written`";
    assert!(
        refused.to_string().contains(&format!("two types of this program have the name {name}")),
        "{refused}"
    );
    assert_eq!(doubled.forward(&[1], &vec![7]).unwrap(), [14]);
}

#[test]
fn a_lazy_module_is_refused_if_it_has_another_type_of_one_path_than_was_announced() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let (double, sextuple) = (step!(x => x * 2), step!(x => x * 6));
    let announced = Identity::of(&Stepped { step: double });
    let mut other = Some(Stepped { step: sextuple });
    let build = move || Ok(other.take().unwrap());
    let lazy = cache.lazy_module(announced, tcx::Device::CPU, build).unwrap();
    let refused = lazy.forward(&[3], &vec![3]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ModuleViolation, "{refused}");
    assert!(refused.to_string().contains("two types of this program have the name"), "{refused}");
    assert!(!lazy.coverage(&[3]).unwrap().is_complete());
}

#[cached_module(id = "multiplied_v1", key = i64)]
struct Multiplied<F> {
    by: PhantomData<F>,
}

impl<F: Factor> Extractor for Multiplied<F> {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        Ok(x.iter().map(|x| x * F::FACTOR).collect())
    }
}

trait Factor {
    const FACTOR: i64;
}

fn multiplied<F: Factor>(cache: &Cache, _: &F) -> tcx::Result<Vec<i64>> {
    cache.module(Multiplied::<F> { by: PhantomData })?.forward(&[1], &vec![7])
}

#[test]
fn types_of_one_path_that_are_parameters_are_refused_in_one_program() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    {
        struct Local;
        impl Factor for Local {
            const FACTOR: i64 = 2;
        }
        assert_eq!(multiplied(&cache, &Local).unwrap(), [14]);
        assert_eq!(multiplied(&cache, &Local).unwrap(), [14]);
    }
    {
        struct Local;
        impl Factor for Local {
            const FACTOR: i64 = 3;
        }
        let refused = multiplied(&cache, &Local).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ModuleViolation, "{refused}");
    }
}

#[test]
fn every_pointer_to_a_trait_object_enters_the_type() {
    let own = "identity::objects::first::Own";
    let boxed: Box<dyn Step> = Box::new(first::Own);
    let expected = format!("self<dyn> = {own}\nself = Own");
    assert_eq!(Identity::of(&boxed).to_string(), expected);
    assert_eq!(Identity::of(&*boxed).to_string(), expected);
    assert_eq!(Identity::of(&&*boxed).to_string(), expected);
    assert_eq!(Identity::of(&(Rc::new(first::Own) as Rc<dyn Step>)).to_string(), expected);
    assert_eq!(Identity::of(&(Arc::new(first::Own) as Arc<dyn Step>)).to_string(), expected);
    assert_eq!(Identity::of(&Cow::Borrowed(&*boxed)).to_string(), expected);
    let steps: Vec<Box<dyn Step>> = vec![boxed];
    assert_eq!(
        Identity::of(&steps).to_string(),
        format!("self = 1 item\nself[0]<dyn> = {own}\nself[0] = Own")
    );
    let mut identity = Identity::default();
    identity.field("step", &*steps[0]);
    assert_eq!(identity.to_string(), format!("step<dyn> = {own}\nstep = Own"));
}

#[test]
fn what_is_no_trait_object_keeps_the_identity_it_has_had() {
    assert_eq!(Identity::of(&Box::new(first::Scale { by: 1 })).to_string(), "self = Scale\nby = 1i64");
    assert_eq!(
        Identity::of(&(first::Kind::Scale, "a", &[1u8][..])).to_string(),
        "0 = Kind::Scale\n1 = \"a\"\n2 = 1 item\n2[0] = 1u8"
    );
}
