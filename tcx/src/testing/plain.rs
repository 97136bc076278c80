//! A tensor without a library: what others are compared with.

use tcx_store::DType;

use super::failed;
use crate::Result;
use crate::tensor::{TensorLike, TensorMemory};

/// The elements as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plain {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Plain {
    /// What a tensor is.
    pub(super) fn of<T: TensorLike>(tensor: &T) -> Result<Self> {
        let (dtype, shape) = (tensor.dtype()?, tensor.shape());
        Ok(Self { dtype, shape, bytes: tensor.with_bytes(<[u8]>::to_vec)? })
    }

    pub(super) fn check(&self, what: &str, dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<()> {
        self.check_same(what, &Self { dtype, shape: shape.to_vec(), bytes: bytes.to_vec() })
    }

    pub(super) fn check_same(&self, what: &str, expected: &Self) -> Result<()> {
        if (self.dtype, &self.shape) != (expected.dtype, &expected.shape) {
            let (own, other) = ((self.dtype, &self.shape), (expected.dtype, &expected.shape));
            return Err(failed(
                what,
                &format!("expected {} {:?}, found {} {:?}", other.0, other.1, own.0, own.1),
            ));
        }
        let differs = self.bytes.iter().zip(&expected.bytes).position(|(own, other)| own != other);
        match differs {
            None if self.bytes.len() == expected.bytes.len() => Ok(()),
            None => Err(failed(
                what,
                &format!("expected {} bytes, found {}", expected.bytes.len(), self.bytes.len()),
            )),
            Some(at) => Err(failed(what, &format!("byte {at} is not what it was"))),
        }
    }
}

impl TensorLike for Plain {
    const DTYPES: &'static [DType] = &[
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::Bool,
    ];
    const RANK: Option<usize> = None;

    fn from_memory(memory: TensorMemory, shape: &[usize]) -> Result<Self> {
        Ok(Self { dtype: memory.dtype(), shape: shape.to_vec(), bytes: memory.bytes().to_vec() })
    }

    fn shape(&self) -> Vec<usize> {
        self.shape.clone()
    }

    fn dtype(&self) -> Result<DType> {
        Ok(self.dtype)
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        Ok(use_bytes(&self.bytes))
    }
}
