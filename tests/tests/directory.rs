//! A relative cache directory is the one that was opened, wherever the program goes. Alone in its file: the current directory is
//! the process's.

use tcx::Cache;
use tcx_tests::Scaled;

#[test]
fn a_relative_directory_stays_what_it_was_when_the_cache_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    std::fs::create_dir(&first).unwrap();
    std::fs::create_dir(&second).unwrap();
    std::env::set_current_dir(&first).unwrap();
    let cache = Cache::open("cache").unwrap();
    let lengths = cache.table::<Vec<i64>>("lengths_v1").unwrap();
    std::env::set_current_dir(&second).unwrap();
    let scaled = cache.module(Scaled::new(3.)).unwrap();
    lengths.put(&["a"], &vec![1]).unwrap();
    scaled.forward(&[1, 2], &Scaled::input(&[1, 2])).unwrap();
    cache.flush().unwrap();
    for module in ["lengths_v1", "scaled_v1"] {
        assert!(first.join("cache").join(module).is_dir(), "{module}");
    }
    assert!(!second.join("cache").exists());
    assert!(cache.path().ends_with("first/cache") && cache.path().is_absolute());
    assert_eq!(Cache::open("").unwrap_err().kind(), tcx::ErrorKind::InvalidPath);
}
