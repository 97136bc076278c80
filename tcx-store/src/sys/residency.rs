//! What of a mapped file is in memory, and whether a thread had to wait for what was not.
//!
//! Both questions have an answer on Linux. Elsewhere nothing is known to be missing, and reads wait for the disk one after the
//! other.

use std::mem::MaybeUninit;

/// How often this thread had to wait for a page that was on the disk.
pub(crate) fn major_faults() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        #[expect(unsafe_code, reason = "the C library has the only way to ask")]
        // SAFETY: `usage` is room for one `rusage`, which the call fills. All its bytes were zero before, which is a valid `rusage`
        // too, so it may be read even if the call has failed.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        u64::try_from(usage.ru_majflt).unwrap_or(0)
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// Makes the pages of memory that is going to be written, in one step: otherwise the first write to each of them stops the thread.
pub(crate) fn make_pages(memory: &mut [MaybeUninit<u8>]) {
    #[cfg(target_os = "linux")]
    {
        let page = rustix::param::page_size();
        let start = memory.as_ptr().addr().next_multiple_of(page) - memory.as_ptr().addr();
        // Only pages of which all is in the memory.
        let len = memory.len().saturating_sub(start) / page * page;
        if let Some(whole) = memory.get_mut(start..start + len).filter(|whole| !whole.is_empty()) {
            #[expect(unsafe_code, reason = "the C library has the only way to ask")]
            // SAFETY: the range is whole pages of memory that is borrowed to be written. The advice makes its pages as a write would
            // that changes no byte. A system that does not know it, or has no memory, changes nothing.
            unsafe {
                libc::madvise(whole.as_mut_ptr().cast(), len, libc::MADV_POPULATE_WRITE);
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// Pages that are asked for with one call.
#[cfg(target_os = "linux")]
const PAGES: usize = 64;

/// Whether every page under these bytes of a mapped file is in memory. `true` where that cannot be found out.
pub(crate) fn is_resident(bytes: &[u8]) -> bool {
    #[cfg(target_os = "linux")]
    {
        let page = rustix::param::page_size();
        let before = bytes.as_ptr().addr() % page;
        let pages = (before + bytes.len()).div_ceil(page);
        (0..pages).step_by(PAGES).all(|first| {
            let count = PAGES.min(pages - first);
            let mut states = [0_u8; PAGES];
            // Wrapping: the first page begins before the bytes, the others in them.
            let start = bytes.as_ptr().wrapping_sub(before).wrapping_add(first * page);
            #[expect(unsafe_code, reason = "the C library has the only way to ask")]
            // SAFETY: the call reads nothing at `start`, which it only looks up among the mappings of the process, and writes one byte
            // for each of `count` pages into `states`, which has room for them. `start` is a multiple of the page size.
            let answer = unsafe { libc::mincore(start.cast_mut().cast(), count * page, states.as_mut_ptr()) };
            answer != 0 || states[..count].iter().all(|state| state & 1 == 1)
        })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = bytes;
        true
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::sys::mmap::Mapped;

    #[test]
    fn pages_are_missing_once_the_system_has_dropped_them_and_resident_once_they_were_read() {
        // On a disk: a temporary folder may be in memory, where nothing can be dropped.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let map = Mapped::new(&file).unwrap();
        assert!(is_resident(&map[5..70_000]) && is_resident(&map[..0]));
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if is_resident(&map[500_000..500_001]) {
            // Not every file system drops pages when it is asked to.
            return;
        }
        assert!(!is_resident(&map));
        let before = major_faults();
        assert_eq!(map[500_000], 7);
        assert!(is_resident(&map[500_000..500_001]));
        assert!(major_faults() > before);
    }
}
