//! Counts the allocations of a warm batch, which must not grow with the number of rows.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::data::workload::{Workload, ids};
use crate::report::Figures;
use crate::rivals::{Ours, Reader};
use crate::{Result, Settings};

/// The system's allocator with a counter. libtorch has its own.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[expect(unsafe_code, reason = "an allocator is")]
// SAFETY: every call is passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(address, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Batches of 64, 256 and 1024 rows.
pub(crate) fn measure<W: Workload>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let mut ours = Ours::<W>::new(&settings.dir.join(W::NAME))?;
    let mut counts = Vec::new();
    for size in [64, 256, 1024] {
        let rows: Vec<usize> = (0..size).map(|i| i * 7).collect();
        let ids = ids(rows.iter().copied());
        ours.read(&rows, &ids)?;
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        ours.read(&rows, &ids)?;
        let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
        figures.add(format!("{}.allocations_per_batch.{size}_rows", W::NAME), count as f64);
        counts.push(count as f64);
    }
    figures.add(format!("{}.allocations_per_batch.1024_vs_64_rows", W::NAME), counts[2] / counts[0]);
    Ok(())
}
