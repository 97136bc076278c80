//! `in_memory`: fills, reads and leaves a cache in memory. Its test looks for files that it has left.

#![expect(clippy::unwrap_used, reason = "a helper of tests, which look at what it prints and leaves")]

use tcx::{Cache, WhenFull};

fn main() {
    let cache = Cache::builder().max_bytes(1 << 20, WhenFull::EvictOldest).open_in_memory().unwrap();
    let table = cache.table::<Vec<i64>>("numbers_v1").unwrap();
    for round in 0..30_i64 {
        let ids: Vec<String> = (0..3000).map(|id| format!("{round} {id}")).collect();
        table.put(&ids, &vec![round; ids.len()]).unwrap();
        table.replace(&["a"], &vec![round]).unwrap();
        cache.flush().unwrap();
    }
    assert_eq!(table.get(&["a"]).unwrap(), Some(vec![29]));
    println!("{}", cache.table::<Vec<f32>>("numbers_v1").unwrap_err());
    // Never dropped, as in a `static`.
    std::mem::forget(table);
    table_of_another(&cache);
}

fn table_of_another(cache: &Cache) {
    let table = cache.table::<Vec<f64>>("floats_v1").unwrap();
    table.put(&["a"], &vec![0.5]).unwrap();
}
