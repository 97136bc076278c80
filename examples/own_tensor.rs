//! Shows: a tensor library of your own: one trait of its tensor type, and outputs and inputs can be of it.
//! Run: `cargo run -p tcx-library-examples --example own_tensor`, which builds no libtorch
//! Look at: the second batch is read from the cache, and the conformance test passes.

use std::sync::Arc;

use tcx::{Cache, CacheableOutput, DType, Error, Extractor, Result, TensorLike, TensorMemory, cached_module};

/// The tensors of a small library: numbers that several tensors share, and a view of them.
#[derive(Clone, Debug)]
struct Grid {
    numbers: Numbers,
    shape: Vec<usize>,
    /// The distance between neighbours along each dimension.
    strides: Vec<usize>,
}

#[derive(Clone, Debug)]
enum Numbers {
    F32(Arc<Vec<f32>>),
    I64(Arc<Vec<i64>>),
}

impl Grid {
    fn new(numbers: Numbers, shape: &[usize]) -> Self {
        let mut strides = vec![1; shape.len()];
        for dim in (1..shape.len()).rev() {
            strides[dim - 1] = strides[dim] * shape[dim];
        }
        Self { numbers, shape: shape.to_vec(), strides }
    }

    /// The dimensions in the opposite order, without a copy.
    fn transposed(&self) -> Self {
        let mut turned = self.clone();
        turned.shape.reverse();
        turned.strides.reverse();
        turned
    }

    /// A grid of the same numbers, of which those of a column are neighbours in memory.
    fn in_columns(&self) -> Self {
        let turned = self.transposed();
        let numbers = match &self.numbers {
            Numbers::F32(numbers) => Numbers::F32(Arc::new(turned.in_order(numbers))),
            Numbers::I64(numbers) => Numbers::I64(Arc::new(turned.in_order(numbers))),
        };
        Self::new(numbers, &turned.shape).transposed()
    }

    /// The numbers in row-major order.
    fn in_order<E: Copy>(&self, numbers: &[E]) -> Vec<E> {
        let mut places = vec![0];
        for (len, stride) in self.shape.iter().zip(&self.strides) {
            places = places.iter().flat_map(|place| (0..*len).map(move |at| place + at * stride)).collect();
        }
        places.into_iter().map(|place| numbers[place]).collect()
    }
}

impl TensorLike for Grid {
    // A declaration of any other dtype does not compile.
    const DTYPES: &'static [DType] = &[DType::F32, DType::I64];
    // A `Grid` has any number of dimensions.
    const RANK: Option<usize> = None;

    fn from_memory(memory: TensorMemory, shape: &[usize]) -> Result<Self> {
        // Without a copy: tcx has copied the rows into this memory.
        let numbers = match memory.dtype() {
            DType::F32 => Numbers::F32(Arc::new(memory.into_vec()?)),
            DType::I64 => Numbers::I64(Arc::new(memory.into_vec()?)),
            other => return Err(Error::loader(format!("a grid cannot hold {other}"))),
        };
        Ok(Self::new(numbers, shape))
    }

    fn shape(&self) -> Vec<usize> {
        self.shape.clone()
    }

    fn dtype(&self) -> Result<DType> {
        Ok(match self.numbers {
            Numbers::F32(_) => DType::F32,
            Numbers::I64(_) => DType::I64,
        })
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let bytes: Vec<u8> = match &self.numbers {
            Numbers::F32(numbers) => self.in_order(numbers).into_iter().flat_map(f32::to_le_bytes).collect(),
            Numbers::I64(numbers) => self.in_order(numbers).into_iter().flat_map(i64::to_le_bytes).collect(),
        };
        Ok(use_bytes(&bytes))
    }
}

#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [2])]
    sums: Grid,
    #[tensor(i64, [_])]
    places: Vec<Grid>, // of numbers that are not zero
}

#[cached_module(id = "own_tensor_sums_v1")]
struct Sums {
    scale: f32,
}

impl Extractor for Sums {
    type Input = Grid;
    type Output = Features;

    fn forward(&self, images: &Grid) -> Result<Features> {
        let Numbers::F32(numbers) = &images.numbers else {
            return Err(Error::loader("expected images of f32"));
        };
        let (samples, width) = (images.shape[0], images.shape[1]);
        let numbers = images.in_order(numbers);
        let (mut sums, mut places) = (Vec::new(), Vec::new());
        for image in numbers.chunks(width).take(samples) {
            sums.extend([image.iter().sum::<f32>() * self.scale, image.iter().product()]);
            let found: Vec<i64> =
                (0..).zip(image).filter(|(_, number)| **number != 0.).map(|(at, _)| at).collect();
            let shape = [found.len()];
            places.push(Grid::new(Numbers::I64(Arc::new(found)), &shape));
        }
        Ok(Features { sums: Grid::new(Numbers::F32(Arc::new(sums)), &[samples, 2]), places })
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // In a test of your own.
    tcx::testing::check_layouts::<Grid>(|grid| vec![grid.in_columns(), grid])?;

    let dir = tempfile::tempdir()?;
    let sums = Cache::open(dir.path())?.module(Sums { scale: 2. })?;
    let images = Grid::new(Numbers::F32(Arc::new(vec![1., 2., 0., 4., 5., 6.])), &[2, 3]);
    let computed = sums.forward(&["a", "b"], &images)?;
    let found = sums.fetch(&["b", "a"], |_| Err(Error::loader("nothing is missing")))?;
    println!("computed {:?}, found {:?}", computed.sums, found.sums);
    assert_eq!(found.places[1].shape, [2]);
    sums.flush()?;
    Ok(())
}
