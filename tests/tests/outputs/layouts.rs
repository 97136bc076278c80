//! Tensors as modules return them: without rows, without a memory layout of their own, tracking gradients.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::sync::atomic::{AtomicBool, Ordering};

use tch::{Kind, Tensor, kind};
use tcx::{Cache, Cached, D0, D2, Extractor, Typed, cached_module};

/// The seeds of the samples as a matrix `[N, 2, 3]`, in the given memory layout.
#[cached_module(id = "layouts_v1", key = i64)]
struct Layouts {
    #[tcx(not_identity)]
    layout: &'static str,
}

impl Extractor for Layouts {
    type Input = Tensor;
    type Output = Typed<f32, D2<2, 3>>;

    fn forward(&self, seeds: &Tensor) -> tcx::Result<Self::Output> {
        let rows = seeds.size()[0];
        let plain = matrix(seeds);
        let output = match self.layout {
            "transposed" => plain.transpose(1, 2).contiguous().transpose(1, 2),
            "batch last" => plain.permute([1, 2, 0]).contiguous().permute([2, 0, 1]),
            "every second" => Tensor::stack(&[&plain, &(&plain * -1)], 1).select(1, 0),
            "cut out" => {
                plain.constant_pad_nd([1, 2, 3, 1, 1, 1]).narrow(0, 1, rows).narrow(1, 3, 2).narrow(2, 1, 3)
            }
            "stored backwards" => plain.neg().internal_neg_view(),
            _ => plain,
        };
        assert!(self.layout == "plain" || rows < 2 || !output.is_contiguous() || output.is_neg());
        Ok(output.into())
    }
}

fn matrix(seeds: &Tensor) -> Tensor {
    let steps = Tensor::arange(6, kind::FLOAT_CPU).view([1, 2, 3]) / 8;
    seeds.to_kind(Kind::Float).view([-1, 1, 1]) + steps
}

fn seeds(ids: &[i64]) -> Tensor {
    Tensor::from_slice(ids)
}

/// Computed, partly found, and found.
fn is_exact(cached: &Cached<Layouts>) {
    for ids in [&[1, 2, 3, 4][..], &[3, 9, 3, 8, 1], &[9, 4, 2], &[]] {
        let output = cached.forward(ids, &seeds(ids)).unwrap();
        assert!(output.equal(&matrix(&seeds(ids))), "{ids:?}");
        assert!(output.is_contiguous() && !output.is_neg());
    }
}

#[test]
fn a_view_is_stored_as_what_it_shows() {
    for layout in ["plain", "transposed", "batch last", "every second", "cut out", "stored backwards"] {
        let dir = tempfile::tempdir().unwrap();
        is_exact(&Cache::open(dir.path()).unwrap().module(Layouts { layout }).unwrap());
    }
}

/// One value for all samples, one for all elements, or one for everything: no memory behind most of it.
#[cached_module(id = "expanded_v1", key = i64, output(rows: tensor(f32, [4]), columns: tensor(f32, [4]), all: tensor(bool, [2, 2])))]
struct Expanded;

impl Extractor for Expanded {
    type Input = Tensor;
    type Output = ExpandedOutput;

    fn forward(&self, seeds: &Tensor) -> tcx::Result<ExpandedOutput> {
        let rows = seeds.size()[0];
        let steps = Tensor::arange(4, kind::FLOAT_CPU);
        Ok(ExpandedOutput {
            rows: seeds.to_kind(Kind::Float).unsqueeze(1).expand([rows, 4], false),
            columns: steps.unsqueeze(0).expand([rows, 4], false),
            all: Tensor::from(true).expand([rows, 2, 2], false),
        })
    }
}

#[test]
fn expanded_tensors_are_stored_element_by_element() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Expanded).unwrap();
    for ids in [&[1, 2, 3][..], &[7, 2, 7, 8], &[8, 1]] {
        let output = cached.forward(ids, &seeds(ids)).unwrap();
        let direct = Expanded.forward(&seeds(ids)).unwrap();
        assert_eq!((direct.rows.stride(), direct.columns.stride()), (vec![1, 0], vec![0, 1]));
        assert!(output.rows.equal(&direct.rows) && output.columns.equal(&direct.columns));
        assert!(output.all.equal(&direct.all));
        // A tensor of its own: writing one element writes one.
        let _ = output.rows.get(0).get(0).fill_(-1.);
        assert!(output.rows.get(0).get(1).equal(&Tensor::from(ids[0] as f32)));
    }
}

#[test]
fn a_batch_may_be_empty_from_the_first_to_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Expanded).unwrap();
    let empty = || {
        let fetched = cached.fetch(&[0_i64; 0], |_| panic!("nothing is missing")).unwrap();
        let output = cached.forward(&[0_i64; 0], &seeds(&[])).unwrap();
        for output in [fetched, output] {
            let sizes = [output.rows.size(), output.columns.size(), output.all.size()];
            assert_eq!(sizes, [vec![0, 4], vec![0, 4], vec![0, 2, 2]]);
            assert_eq!((output.rows.kind(), output.all.kind()), (Kind::Float, Kind::Bool));
        }
    };
    empty();
    cached.forward(&[1], &seeds(&[1])).unwrap();
    empty();
    cached.flush().unwrap();
    empty();
    assert_eq!(cached.stats().rows_accepted, 1);
}

/// After a first batch that behaves, switches the gradients of its output on.
#[cached_module(id = "gradients_v1", key = i64)]
struct Gradients {
    #[tcx(assume_stateless)]
    on: &'static AtomicBool,
}

impl Extractor for Gradients {
    type Input = Tensor;
    type Output = (Typed<f32, D0>, Typed<f32, D2<2, 3>>);

    fn forward(&self, seeds: &Tensor) -> tcx::Result<Self::Output> {
        let on = self.on.load(Ordering::SeqCst);
        let one = seeds.to_kind(Kind::Float).set_requires_grad(on);
        let matrix = tch::with_grad(|| matrix(&one.shallow_clone()));
        assert_eq!(matrix.requires_grad(), on);
        Ok((one.into(), matrix.into()))
    }
}

#[test]
fn what_comes_out_tracks_no_gradients_whatever_went_in() {
    static ON: AtomicBool = AtomicBool::new(false);
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Gradients { on: &ON }).unwrap();
    cached.forward(&[0], &seeds(&[0])).unwrap();
    ON.store(true, Ordering::SeqCst);
    for ids in [&[1, 2][..], &[2, 3, 0], &[1, 2, 3]] {
        let (one, output) = cached.forward(ids, &seeds(ids)).unwrap();
        assert!(!one.requires_grad() && !output.requires_grad());
        assert!(output.equal(&matrix(&seeds(ids))));
    }
}

#[test]
fn the_bytes_of_a_tensor_that_a_closure_gets_stay_as_they_are_while_it_writes_to_the_tensor() {
    use tcx::TensorLike as _;

    let tensor = Tensor::from_slice(&[1_u8, 2]);
    let seen = tensor.with_bytes(|bytes| {
        let _ = tensor.shallow_clone().fill_(7);
        bytes.to_vec()
    });
    assert_eq!(seen.unwrap(), [1, 2]);
    assert_eq!(tensor.with_bytes(<[u8]>::to_vec).unwrap(), [7, 7]);
}
