//! What a store asks of another machine.

/// The requests of a store whose files are in an object store, each try counted, and the files that wait to be sent.
///
/// ```
/// # use tcx_store::{ColumnType, DType, Identity, KeyType, Memory, Options, Spec, Store, Traffic};
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let store = Store::open_in_memory(&Memory::new(), spec, &Options::default())?;
/// assert_eq!(store.stats().traffic, Traffic::default());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Objects or parts of objects written, and uploads of several parts begun and completed.
    pub puts: u64,
    /// Pages of listings.
    pub lists: u64,
    /// Objects or parts of objects read.
    pub gets: u64,
    /// Objects asked for, but not read.
    pub heads: u64,
    /// Objects removed, and uploads given up.
    pub deletes: u64,
    /// Bytes sent in bodies.
    pub bytes_sent: u64,
    /// Bytes received in bodies.
    pub bytes_received: u64,
    /// Of the requests in `gets`, those that read parts of segments of which this machine has no copy, without repeated tries.
    pub ranged_gets: u64,
    /// Bytes that these had to read.
    pub ranged_bytes: u64,
    /// Files that wait on this machine to be sent now, those of other processes included.
    pub waiting_files: u64,
    /// Bytes of these.
    pub waiting_bytes: u64,
}
