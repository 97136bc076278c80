use tch::{Device, Kind, Tensor};

use super::ColumnWriter;
use crate::CacheableOutput;
use crate::output::typed::{D0, D2, Typed};

#[derive(CacheableOutput)]
#[tcx(crate = crate)]
struct Features {
    #[tensor(f32, [4])]
    pooled: Tensor,
    caption: Vec<String>,
    inner: Inner,
    pair: (Typed<i64, D0>, Vec<bool>),
}

#[derive(CacheableOutput)]
#[tcx(crate = crate)]
struct Inner(#[tensor(f16, [2, 3])] Tensor);

fn features(rows: i64) -> Features {
    Features {
        pooled: Tensor::ones([rows, 4], tch::kind::FLOAT_CPU),
        caption: vec!["a cat".to_owned(); rows as usize],
        inner: Inner(Tensor::ones([rows, 2, 3], (Kind::Half, Device::Cpu))),
        pair: (Tensor::ones([rows], tch::kind::INT64_CPU).into(), vec![true; rows as usize]),
    }
}

fn refusal<O: CacheableOutput>(output: &O, rows: usize) -> String {
    let error = output.write(&mut ColumnWriter::new(rows)).unwrap_err();
    let said = error.to_string();
    let (mistake, remedy) = said.rsplit_once("; ").unwrap();
    assert_eq!(remedy, "return from `forward` what is declared, or declare what it returns");
    let parts = format!("expected {}, found {}", error.expected().unwrap(), error.found().unwrap());
    let field = error.field().map_or("output: ".to_owned(), |field| format!("output field `{field}`: "));
    assert_eq!(mistake, field + &parts);
    mistake.to_owned()
}

fn width<O: CacheableOutput>(output: &O, rows: usize) -> Vec<usize> {
    let mut writer = ColumnWriter::new(rows);
    output.write(&mut writer).unwrap();
    writer.finish().iter().map(tcx_store::Column::bytes).collect()
}

#[test]
fn the_columns_are_the_leaves_in_order() {
    let leaves: Vec<_> =
        Features::COLUMN.leaves().iter().map(|leaf| format!("{}: {}", leaf.name, leaf.kind)).collect();
    assert_eq!(
        leaves,
        ["pooled: f32 [4]", "caption: String", "inner.0: f16 [2, 3]", "pair.0: i64 []", "pair.1: bool []"]
    );
    assert_eq!(width(&features(3), 3), [48, 15, 36, 24, 3]);
    assert_eq!(width(&features(0), 0), [0; 5]);
}

#[test]
fn an_output_that_is_a_leaf_has_one_column() {
    let one: Typed<bool, D2<2, 1>> = Tensor::ones([3, 2, 1], (Kind::Bool, Device::Cpu)).into();
    assert_eq!(width(&one, 3), [6]);
    assert_eq!(refusal(&one, 2), "output: expected bool [2, 2, 1], found bool [3, 2, 1]");
}

#[test]
fn another_dtype_or_shape_is_refused_by_name() {
    let mut wrong = features(2);
    wrong.pooled = wrong.pooled.to_kind(Kind::Double);
    assert_eq!(refusal(&wrong, 2), "output field `pooled`: expected f32 [2, 4], found f64 [2, 4]");
    wrong = features(2);
    wrong.inner.0 = wrong.inner.0.squeeze_dim(0).flatten(1, 2);
    assert_eq!(refusal(&wrong, 2), "output field `inner.0`: expected f16 [2, 2, 3], found f16 [2, 6]");
    wrong = features(2);
    wrong.pair.0 = Tensor::from(1i64).into();
    assert_eq!(refusal(&wrong, 2), "output field `pair.0`: expected i64 [2], found i64 []");
    wrong = features(2);
    wrong.pooled = Tensor::zeros([2, 4], (Kind::ComplexFloat, Device::Cpu));
    assert_eq!(refusal(&wrong, 2), "output field `pooled`: expected f32 [2, 4], found ComplexFloat [2, 4]");
}

#[test]
fn another_number_of_rows_is_refused_by_name() {
    assert_eq!(refusal(&features(3), 2), "output field `pooled`: expected f32 [2, 4], found f32 [3, 4]");
    let mut wrong = features(2);
    wrong.caption.pop();
    assert_eq!(
        refusal(&wrong, 2),
        "output field `caption`: expected one value per sample, 2 in all, found 1"
    );
}

#[test]
fn tensors_without_plain_memory_are_refused_by_name() {
    let plain = features(2).pooled;
    let sparse = [
        plain.to_sparse(None::<tch::Layout>, None::<&[i64]>, None::<i64>),
        plain.to_sparse_csr(None::<i64>),
        plain.to_mkldnn(),
    ];
    for tensor in sparse {
        let error = refusal(&Features { pooled: tensor, ..features(2) }, 2);
        assert!(error.starts_with("output field `pooled`: expected a dense tensor, found "), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let error = refusal(&Features { pooled: Tensor::new(), ..features(2) }, 2);
    assert_eq!(error, "output field `pooled`: expected f32 [2, 4], found an undefined tensor");
}

/// The bytes that would be written.
fn bytes(tensor: &Tensor) -> Vec<u8> {
    crate::TensorLike::with_bytes(tensor, <[u8]>::to_vec).unwrap()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn views_are_written_as_what_they_show() {
    let matrix = Tensor::from_slice(&[1f32, 2., 3., 4., 5., 6.]).view([2, 3]);
    assert_eq!(bytes(&matrix.tr()), floats(&[1., 4., 2., 5., 3., 6.]));
    assert_eq!(bytes(&matrix.slice(1, 1, 3, 1)), floats(&[2., 3., 5., 6.]));
    assert_eq!(bytes(&Tensor::from_slice(&[7f32]).expand([3], false)), floats(&[7., 7., 7.]));
    assert_eq!(bytes(&matrix.get(0).internal_neg_view()), floats(&[-1., -2., -3.]));
    assert_eq!(bytes(&matrix.set_requires_grad(true)), floats(&[1., 2., 3., 4., 5., 6.]));
}

#[test]
fn bits_are_kept() {
    let nans = [0x7e01u16, 0xfe02, 0x8000].map(half::f16::from_bits);
    assert_eq!(bytes(&Tensor::from_slice(&nans)), [0x01, 0x7e, 0x02, 0xfe, 0x00, 0x80]);
    let nans = [0x7fc1u16, 0xffc2].map(half::bf16::from_bits);
    assert_eq!(bytes(&Tensor::from_slice(&nans)), [0xc1, 0x7f, 0xc2, 0xff]);
}

#[test]
fn a_stored_bool_is_0_or_1() {
    let odd = Tensor::from_slice(&[0u8, 1, 2, 255]).view_dtype(Kind::Bool);
    assert_eq!(bytes(&odd), [0, 1, 1, 1]);
}

#[test]
fn writing_leaves_the_tensor_as_it_is() {
    let output = features(2);
    let before = output.pooled.data_ptr();
    width(&output, 2);
    assert_eq!(output.pooled.data_ptr(), before);
}

#[derive(CacheableOutput)]
#[tcx(crate = crate)]
struct Generic<T: CacheableOutput, const N: usize> {
    #[tensor(u8, [N, 2])]
    pixels: Tensor,
    other: T,
}

#[test]
fn parameters_of_a_struct_reach_its_columns() {
    let leaves = Generic::<(Vec<f64>, Inner), 3>::COLUMN.leaves();
    let leaves: Vec<_> = leaves.iter().map(|leaf| format!("{}: {}", leaf.name, leaf.kind)).collect();
    assert_eq!(leaves, ["pixels: u8 [3, 2]", "other.0: f64 []", "other.1.0: f16 [2, 3]"]);
    let output = Generic::<Vec<f64>, 3> {
        pixels: Tensor::zeros([2, 3, 2], (Kind::Uint8, Device::Cpu)),
        other: vec![0.; 2],
    };
    assert_eq!(width(&output, 2), [12, 16]);
}

#[derive(CacheableOutput, Debug, PartialEq)]
#[tcx(crate = crate)]
enum Label {
    Cat = -3,
    Dog = 200,
}

#[test]
fn a_number_that_is_no_variant_is_an_error() {
    use tcx_store::{Column, Identity, KeyType, Keys, Options, Spec, Store};
    type Output = (Vec<bool>, Vec<Label>);
    let dir = tempfile::tempdir().unwrap();
    let spec = Spec::new("labels_v1", KeyType::Int, &Output::COLUMN, Identity::default(), Vec::new());
    let store = Store::open(dir.path(), spec.unwrap(), &Options::default()).unwrap();
    let mut rows = store.lookup(Keys::ints([1, 2, 3], 0)).unwrap();
    let numbers: Vec<u8> = [-3i16, 200, 199].into_iter().flat_map(i16::to_le_bytes).collect();
    store.insert(&mut rows, &[0, 1, 2], vec![Column::dense(&[0, 1, 0]), Column::dense(&numbers)]).unwrap();
    let read = |ids: &[i64]| {
        let rows = store.lookup(Keys::ints(ids.iter().copied(), 0)).unwrap();
        Output::read(&mut super::ColumnReader::new::<Output>(&rows, &crate::Device::CPU))
    };
    assert_eq!(read(&[2, 1]).unwrap().1, [Label::Dog, Label::Cat]);
    let error = read(&[1, 3]).unwrap_err().to_string();
    let expected = "expected the number of a variant (Cat = -3, Dog = 200), found 199 on disk";
    assert!(error.starts_with(&format!("output field `1`: {expected}; ")), "{error}");
}
