//! Identities name no library: weights and constants have the same entry in each.

use ndarray::{Axis, arr1};
use tch::nn::{self, VarStore};
use tch::{Device, Kind, Tensor};
use tcx::{Frozen, Identity, Result, Weights};

fn text<T: tcx::Stateless>(value: &T) -> String {
    Identity::of(value).to_string()
}

#[test]
fn constants_of_every_library_are_the_same_part_of_an_identity() -> Result<()> {
    let mean = [0.485_f32, 0.456, 0.406];
    let torch = text(&Frozen::tensor(Tensor::from_slice(&mean))?);
    // As in existing caches.
    assert_eq!(torch, "weights = blake3:cf79cc7c4a45177aa94b6e8e1bfe5abd76f3a435f2d4a282b573dd44917907bd");
    let array = arr1(&mean);
    assert_eq!(text(&array), torch);
    assert_eq!(text(&Frozen::constant(&array)?), torch);
    assert_ne!(text(&array.insert_axis(Axis(0))), torch);
    #[cfg(feature = "candle")]
    {
        use candle_core::{Device, Tensor};
        assert_eq!(text(&Frozen::constant(&Tensor::new(&mean, &Device::Cpu)?)?), torch);
    }
    Ok(())
}

#[test]
fn the_layout_of_a_constant_in_memory_is_no_part_of_its_identity() -> Result<()> {
    let cube = ndarray::Array3::<f32>::from_shape_fn((2, 3, 4), |(a, b, c)| (a * 100 + b * 10 + c) as f32);
    let turned = cube.permuted_axes([2, 0, 1]);
    let torch = Tensor::from_slice(turned.as_standard_layout().as_slice().unwrap()).view([4, 2, 3]);
    assert_eq!(text(&turned), text(&Frozen::tensor(&torch)?));
    #[cfg(feature = "candle")]
    {
        use candle_core::{Device, Tensor};
        let numbers: Vec<f32> = torch.permute([1, 2, 0]).contiguous().view(-1).try_into()?;
        let candle = Tensor::from_vec(numbers, (2, 3, 4), &Device::Cpu)?.permute((2, 0, 1))?;
        assert_eq!(text(&turned), text(&Frozen::constant(&candle)?));
    }
    Ok(())
}

#[test]
fn the_weights_of_a_file_are_those_of_its_network_in_every_library() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    for kind in [Kind::Float, Kind::Half, Kind::BFloat16, Kind::Double] {
        let file = dir.path().join(format!("{kind:?}.safetensors"));
        let mut store = VarStore::new(Device::Cpu);
        let fc = nn::linear(store.root() / "fc", 4, 2, nn::LinearConfig::default());
        store.set_kind(kind);
        let torch = Frozen::build(store, |_| fc)?;
        torch.save(&file)?;
        assert_eq!(text(&Weights::of_file(&file)?), text(&torch));
        #[cfg(feature = "candle")]
        {
            use candle_core::{DType, Device};
            let dtype = match kind {
                Kind::Half => DType::F16,
                Kind::BFloat16 => DType::BF16,
                Kind::Double => DType::F64,
                _ => DType::F32,
            };
            let build = |vb: candle_nn::VarBuilder<'_>| candle_nn::linear(4, 2, vb.pp("fc"));
            let candle = Frozen::candle(&Device::Cpu, dtype, &file, build)?;
            assert_eq!(text(&candle), text(&torch));
            let other = if dtype == DType::F32 { DType::F16 } else { DType::F32 };
            let converted = Frozen::candle(&Device::Cpu, other, &file, build)?;
            assert_ne!(text(&converted), text(&torch), "other weights than those of the file");
        }
    }
    Ok(())
}

#[test]
fn a_dtype_has_the_same_text_in_every_library() {
    assert_eq!(text(&Kind::Half), "self = Kind::Half");
    #[cfg(feature = "candle")]
    for (kind, dtype) in [
        (Kind::Half, candle_core::DType::F16),
        (Kind::BFloat16, candle_core::DType::BF16),
        (Kind::Float, candle_core::DType::F32),
        (Kind::Double, candle_core::DType::F64),
        (Kind::Int16, candle_core::DType::I16),
        (Kind::Int, candle_core::DType::I32),
        (Kind::Int64, candle_core::DType::I64),
        (Kind::Uint8, candle_core::DType::U8),
    ] {
        assert_eq!(text(&dtype), text(&kind));
    }
}

#[test]
fn a_constant_of_every_library_is_saved() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mean.safetensors");
    let mean = Frozen::constant(&arr1(&[1_i64, 2, 3]))?;
    mean.save(&file)?;
    assert_eq!(text(&Weights::of_file(&file)?), text(&mean));
    Ok(())
}
