//! Weights that change after they were frozen, by ways that libtorch's version counter does not see: no row that the changed
//! weights computed is ever served.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::time::Duration;

use tch::nn::{self, Module as _, OptimizerConfig as _, VarStore};
use tch::{Device, Kind, Tensor, kind};
use tcx::{Cache, Cached, D1, Extractor, Frozen, Mode, OnMismatch, Typed, cached_module};

/// The first value of its input, times its weight.
#[cached_module(id = "watched_v1", key = i64)]
struct Watched {
    fc: Frozen<nn::Linear>,
}

impl Extractor for Watched {
    type Input = Tensor;
    type Output = Typed<f32, D1<1>>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.fc.forward(inputs).into())
    }
}

/// A layer with one weight per input.
fn linear(path: &nn::Path<'_>, inputs: i64) -> nn::Linear {
    let init = nn::LinearConfig { ws_init: nn::Init::Const(3.), bs_init: None, bias: false };
    nn::linear(path / "net", inputs, 1, init)
}

fn open(dir: &Path, fc: Frozen<nn::Linear>) -> Cached<Watched> {
    Cache::open(dir).unwrap().module(Watched { fc }).unwrap()
}

fn unchanged(inputs: i64) -> Frozen<nn::Linear> {
    Frozen::build(VarStore::new(Device::Cpu), |path| linear(path, inputs)).unwrap()
}

fn input(ids: &[i64], inputs: i64) -> Tensor {
    let first = Tensor::from_slice(ids).to_kind(Kind::Float).unsqueeze(1);
    Tensor::cat(&[first, Tensor::zeros([ids.len() as i64, inputs - 1], kind::FLOAT_CPU)], 1)
}

/// What later processes are served, whatever an earlier one has stored.
fn assert_sound(dir: &Path, ids: &[i64], inputs: i64) {
    let cached = open(dir, unchanged(inputs));
    let served = cached.forward(ids, &input(ids, inputs)).unwrap();
    assert!(served.equal(&(input(ids, 1) * 3.)), "{}", served.to_string(80).unwrap());
}

/// Changes weights after the first rows were computed. `prepare` gets the store before it is frozen.
fn assert_noticed<C: FnOnce()>(prepare: impl FnOnce(&VarStore, &nn::Linear) -> C) {
    let dir = tempfile::tempdir().unwrap();
    let store = VarStore::new(Device::Cpu);
    let net = linear(&store.root(), 1);
    net.forward(&Tensor::ones([4, 1], kind::FLOAT_CPU)).sum(Kind::Float).backward();
    let change = prepare(&store, &net);
    let cached = open(dir.path(), Frozen::build(store, |_| net).unwrap());
    cached.forward(&[1, 2], &input(&[1, 2], 1)).unwrap();
    cached.flush().unwrap();
    change();
    let error = cached.forward(&[3, 4], &input(&[3, 4], 1)).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("module `watched_v1`: weight `fc.net.weight`: "), "{message}");
    assert!(message.contains("after it was frozen"), "{message}");
    assert_eq!(error.module_id(), Some("watched_v1"));
    cached.flush().unwrap();
    drop(cached);
    assert_sound(dir.path(), &[1, 2, 3, 4], 1);
}

#[test]
fn an_optimizer_made_before_is_noticed() {
    for sgd in [nn::sgd(0., 0., 0., false), nn::sgd(0.9, 0., 0., false)] {
        assert_noticed(|store, _| {
            let mut optimizer = sgd.build(store, 1.).unwrap();
            move || optimizer.step()
        });
    }
}

#[test]
fn writes_through_data_are_noticed() {
    assert_noticed(|_, net| {
        let weight = net.ws.shallow_clone();
        move || drop(weight.data().fill_(15.))
    });
    assert_noticed(|_, net| {
        let weight = net.ws.shallow_clone();
        move || weight.data().copy_(&Tensor::full([1, 1], 15., kind::FLOAT_CPU))
    });
}

#[test]
fn replaced_data_is_noticed() {
    assert_noticed(|_, net| {
        let mut weight = net.ws.shallow_clone();
        move || weight.set_data(&Tensor::full([1, 1], 15., kind::FLOAT_CPU))
    });
}

#[test]
fn a_store_that_is_converted_and_back_is_noticed() {
    assert_noticed(|store, _| {
        let mut other = VarStore::new(Device::Cpu);
        other.variables_ = store.variables_.clone();
        move || {
            other.bfloat16();
            other.float();
        }
    });
}

#[test]
fn a_write_between_the_last_forward_and_the_flush_is_an_error_of_the_flush() {
    let dir = tempfile::tempdir().unwrap();
    let fc = unchanged(1);
    let weight = fc.ws.shallow_clone();
    let cached = open(dir.path(), fc);
    cached.forward(&[1, 2], &input(&[1, 2], 1)).unwrap();
    let _ = weight.data().fill_(15.);
    let error = format!("{:#}", cached.flush().unwrap_err());
    assert!(
        error.contains("2 computed rows were not kept: module `watched_v1`: weight `fc.net.weight`: "),
        "{error}"
    );
    cached.forward(&[3], &input(&[3], 1)).unwrap_err();
    drop(cached);
    assert_sound(dir.path(), &[1, 2, 3], 1);
}

#[test]
fn a_write_that_no_sample_of_the_weights_shows_is_found_before_rows_are_durable() {
    const INPUTS: i64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let fc = unchanged(INPUTS);
    let weight = fc.ws.shallow_clone();
    let cached = open(dir.path(), fc);
    // An element that each forward's sample of the memory skips, and that only the second input uses.
    let _ = weight.data().narrow(1, 700, 1).fill_(15.);
    cached.forward(&[1, 2], &input(&[1, 2], INPUTS)).unwrap();
    let error = format!("{:#}", cached.flush().unwrap_err());
    assert!(error.contains("module `watched_v1`: weight `fc.net.weight`: "), "{error}");
    // From here on every call returns an error, and no computed row is served.
    let error = cached.forward(&[1], &input(&[1], INPUTS)).unwrap_err().to_string();
    assert!(error.starts_with("module `watched_v1`: weight `fc.net.weight`: "), "{error}");
    drop(cached);
    assert_sound(dir.path(), &[1, 2], INPUTS);
}

/// Twice its input: no weight of its own.
#[cached_module(id = "twice_watched_v1", key = i64)]
struct Twice {}

impl Extractor for Twice {
    type Input = Tensor;
    type Output = Typed<f32, D1<1>>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Self::Output> {
        Ok((inputs * 2).into())
    }
}

/// Its input times a weight.
#[cached_module(id = "times_watched_v1", key = i64)]
struct Times {
    factor: Frozen<Tensor>,
}

impl Extractor for Times {
    type Input = Tensor;
    type Output = Typed<f32, D1<1>>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Self::Output> {
        Ok((inputs * &*self.factor).into())
    }
}

#[test]
fn rows_made_of_rows_of_changed_weights_do_not_become_durable_either() {
    const INPUTS: i64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let run = |fc: Frozen<nn::Linear>, check: &dyn Fn(&Cached<Twice>, &Cached<Times>)| {
        let first = open(dir.path(), fc);
        let cache = Cache::open(dir.path()).unwrap();
        let twice = cache.module_after(&first, Twice {}).unwrap();
        let factor = Frozen::tensor(Tensor::from(5_f32)).unwrap();
        let times = cache.module_after(&twice, Times { factor }).unwrap();
        let ids = [1, 2, 3];
        let found = times.fetch(&ids, |_| {
            let found = twice.fetch(&ids, |_| {
                // Moves the input to the element of the weight that is changed.
                Ok(first.forward(&ids, &input(&ids, INPUTS).roll(700, 1))?.into())
            });
            Ok(found?.into())
        });
        check(&twice, &times);
        Vec::<f32>::try_from(found.unwrap().flatten(0, -1)).unwrap()
    };
    let fc = unchanged(INPUTS);
    let weight = fc.ws.shallow_clone();
    let _ = weight.data().narrow(1, 700, 1).fill_(15.);
    run(fc, &|twice, times| {
        for flushed in [times.flush(), twice.flush()] {
            let error = flushed.map_or_else(|error| format!("{error:#}"), |()| "nothing was lost".to_owned());
            let said = "3 computed rows were not kept: module `watched_v1`: weight `fc.net.weight`: ";
            assert!(error.contains(said), "{error}");
        }
    });
    assert_eq!(run(unchanged(INPUTS), &|_, times| times.flush().unwrap()), [30., 60., 90.]);
}

/// What a later process is served for `id` by a module after an unchanged one, whatever earlier ones have stored.
fn assert_sound_chain(dir: &Path, id: i64, inputs: i64) {
    let first = open(dir, unchanged(inputs));
    let twice = Cache::open(dir).unwrap().module_after(&first, Twice {}).unwrap();
    let served = twice.fetch(&[id], |_| Ok(first.forward(&[id], &input(&[id], inputs).roll(700, 1))?.into()));
    let expected = Tensor::from_slice(&[id * 6]).to_kind(Kind::Float).unsqueeze(1);
    assert!(served.unwrap().equal(&expected));
}

#[test]
fn weights_found_to_have_changed_stay_refused_in_a_chain_when_they_are_restored() {
    const INPUTS: i64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let fc = unchanged(INPUTS);
    let weight = fc.ws.shallow_clone();
    let cache = Cache::open(dir.path()).unwrap();
    let first = cache.module(Watched { fc }).unwrap();
    let twice = cache.module_after(&first, Twice {}).unwrap();
    let _ = weight.data().narrow(1, 700, 1).fill_(15.);
    let features: Tensor = first.forward(&[1], &input(&[1], INPUTS).roll(700, 1)).unwrap().into();
    first.flush().unwrap_err();
    let _ = weight.data().narrow(1, 700, 1).fill_(3.);
    let made = twice.forward(&[1], &features).map(drop);
    let flushed = twice.flush();
    drop((first, twice, cache));
    assert_sound_chain(dir.path(), 1, INPUTS);
    // The call itself returned the error, and nothing was left to flush.
    let error = made.unwrap_err().to_string();
    assert!(error.starts_with("module `watched_v1`: weight `fc.net.weight`: "), "{error}");
    flushed.unwrap();
}

#[test]
fn weights_seen_to_have_changed_stay_refused_when_they_are_restored_before_the_next_flush() {
    const INPUTS: i64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let fc = unchanged(INPUTS);
    let weight = fc.ws.shallow_clone();
    let first = open(dir.path(), fc);
    // No sample reads this element. Of all elements each sample reads some.
    let _ = weight.data().narrow(1, 700, 1).fill_(15.);
    first.forward(&[1], &input(&[1], INPUTS).roll(700, 1)).unwrap();
    let _ = weight.data().fill_(15.);
    first.forward(&[2], &input(&[2], INPUTS)).unwrap_err();
    let _ = weight.data().fill_(3.);
    let (again, flushed) = (first.forward(&[2], &input(&[2], INPUTS)).map(drop), first.flush());
    drop(first);
    let served = open(dir.path(), unchanged(INPUTS)).forward(&[1], &input(&[1], INPUTS).roll(700, 1));
    assert!(served.unwrap().equal(&Tensor::from(3_f32).reshape([1, 1])));
    let said = "weight `fc.net.weight`: changed in place after it was frozen";
    for error in [format!("{:#}", flushed.unwrap_err()), format!("{:#}", again.unwrap_err())] {
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_chain_watches_every_handle_of_the_module_before_it() {
    const INPUTS: i64 = 1 << 20;
    for mode in [Mode::ReadWrite, Mode::ReadOnly, Mode::Off] {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let temporary = cache.module(Watched { fc: unchanged(INPUTS) }).unwrap();
        let twice = cache.module_after(&temporary, Twice {}).unwrap();
        drop(temporary);
        let fc = unchanged(INPUTS);
        let weight = fc.ws.shallow_clone();
        let first = cache.with_mode(mode).module(Watched { fc }).unwrap();
        let _ = weight.data().narrow(1, 700, 1).fill_(15.);
        let load =
            |_: tcx::Missing<'_, i64>| Ok(first.forward(&[1], &input(&[1], INPUTS).roll(700, 1))?.into());
        twice.fetch(&[1], load).unwrap();
        let flushed = twice.flush();
        drop((first, twice, cache));
        assert_sound_chain(dir.path(), 1, INPUTS);
        let error = format!("{:#}", flushed.unwrap_err());
        let said = "1 computed row was not kept: module `watched_v1`: weight `fc.net.weight`: ";
        assert!(error.contains(said), "{mode:?}: {error}");
    }
}

#[test]
fn a_chain_watches_a_handle_of_the_module_before_it_that_may_have_a_folder_of_its_own() {
    const INPUTS: i64 = 1 << 20;
    let flushed = [false, true].map(|opens_separate| {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let separate = cache.with_settings(|own| own.on_mismatch(OnMismatch::Separate));
        let (opens, follows) = if opens_separate { (&separate, &cache) } else { (&cache, &separate) };
        let temporary = follows.module(Watched { fc: unchanged(INPUTS) }).unwrap();
        let twice = cache.module_after(&temporary, Twice {}).unwrap();
        let fc = unchanged(INPUTS);
        let weight = fc.ws.shallow_clone();
        let first = opens.module(Watched { fc }).unwrap();
        let _ = weight.data().narrow(1, 700, 1).fill_(15.);
        let load =
            |_: tcx::Missing<'_, i64>| Ok(first.forward(&[1], &input(&[1], INPUTS).roll(700, 1))?.into());
        twice.fetch(&[1], load).unwrap();
        twice.flush().map_or_else(|error| format!("{error:#}"), |()| "nothing was lost".to_owned())
    });
    let said = "1 computed row was not kept: module `watched_v1`: weight `fc.net.weight`: ";
    assert!(flushed.iter().all(|error| error.contains(said)), "{flushed:?}");
}

/// A tensor that another thread writes to.
struct Shared(Tensor);

#[test]
fn weights_written_while_they_are_frozen_never_compute_under_the_fingerprint_of_others() {
    const INPUTS: i64 = 4 << 20;
    let right = unchanged(INPUTS).fingerprint().to_owned();
    for pause in (0..20).map(|step| Duration::from_millis(4 * step)) {
        let dir = tempfile::tempdir().unwrap();
        let store = VarStore::new(Device::Cpu);
        let net = linear(&store.root(), INPUTS);
        let weight = Shared(net.ws.data());
        let writer = std::thread::spawn(move || {
            let weight = weight;
            std::thread::sleep(pause);
            let _ = weight.0.narrow(1, 0, 1).fill_(15.);
        });
        let frozen = Frozen::build(store, |_| net);
        writer.join().unwrap();
        let Ok(fc) = frozen else { continue };
        if fc.fingerprint() != right {
            continue;
        }
        let cached = open(dir.path(), fc);
        if cached.forward(&[1], &input(&[1], INPUTS)).is_ok() {
            let _ = cached.flush();
        }
        drop(cached);
        assert_sound(dir.path(), &[1], INPUTS);
    }
}

/// The handle whose changed weights have computed the inputs is gone when the module after it computes.
#[test]
fn a_chain_keeps_no_row_of_a_closed_handle_whose_weights_had_changed() {
    const INPUTS: i64 = 1 << 20;
    let mut wrong = Vec::new();
    for mode in [Mode::ReadWrite, Mode::ReadOnly, Mode::Off] {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let temporary = cache.module(Watched { fc: unchanged(INPUTS) }).unwrap();
        let twice = cache.module_after(&temporary, Twice {}).unwrap();
        drop(temporary);
        let fc = unchanged(INPUTS);
        let weight = fc.ws.shallow_clone();
        let first = cache.with_mode(mode).module(Watched { fc }).unwrap();
        let _ = weight.data().narrow(1, 700, 1).fill_(15.);
        let features: Tensor = first.forward(&[1], &input(&[1], INPUTS).roll(700, 1)).unwrap().into();
        let told = first.flush();
        drop(first);
        let made = twice.forward(&[1], &features).map(drop);
        let flushed = twice.flush();
        drop((twice, cache));
        let again = open(dir.path(), unchanged(INPUTS));
        let twice = Cache::open(dir.path()).unwrap().module_after(&again, Twice {}).unwrap();
        let served =
            twice.fetch(&[1], |_| Ok(again.forward(&[1], &input(&[1], INPUTS).roll(700, 1))?.into()));
        let served: Tensor = served.unwrap().into();
        let expected = Tensor::from_slice(&[6_i64]).to_kind(Kind::Float).unsqueeze(1);
        if !served.equal(&expected) {
            let served = Vec::<f32>::try_from(served.flatten(0, -1)).unwrap();
            wrong.push(format!(
                "{mode:?}: served {served:?}, told {told:?}, made {made:?}, flush {flushed:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
