//! Messages for types that people try first and that cannot work: each says what to write in its place.
//!
//! A trait has one message for all types. A type gets its own by an impl under a condition that never holds: the
//! compiler then reports the condition. For that, the condition is a trait of another type (`OutputField`,
//! `ModuleField`), has a lifetime that is bound (or the impl itself would be refused), and is true of at least one type
//! (or the compiler would call the impl below a way out). The headers of the impls are written out one by one: the
//! compiler quotes them, and the tests of the messages record it. Their bodies never run, and are those of one macro.

/// The body of an impl whose condition never holds.
macro_rules! never_compiled {
    (CacheableOutput) => {
        const COLUMN: tcx_store::ColumnType = tcx_store::ColumnType::Struct(&[]);

        fn write(&self, _: &mut crate::output::ColumnWriter) -> crate::Result<()> {
            crate::output::part::never_compiled()
        }

        fn read(_: &mut crate::output::ColumnReader<'_>) -> crate::Result<Self> {
            crate::output::part::never_compiled()
        }
    };
    (Stateless) => {
        fn identity(&self, _: &mut crate::Identity) {
            crate::output::part::never_compiled()
        }
    };
}

#[cfg(feature = "ndarray")]
mod array;
#[cfg(feature = "candle")]
mod candle;
mod modules;
mod outputs;
#[cfg(feature = "tch")]
mod torch;
#[cfg(not(feature = "tch"))]
mod unnamed;

pub use modules::Concurrent;
pub use outputs::{OnePerSample, OutputField};
