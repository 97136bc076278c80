//! `putter DIR ID=VALUE…`: a process that puts these values into the table `numbers_v1`, without checking them.

#![expect(clippy::unwrap_used, reason = "a helper of tests")]

use tcx::Cache;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, values @ ..] = &args[..] else { panic!("usage: putter DIR ID=VALUE…") };
    let (ids, values): (Vec<&str>, Vec<&str>) =
        values.iter().map(|pair| pair.split_once('=').unwrap()).unzip();
    let values: Vec<f32> = values.iter().map(|value| value.parse().unwrap()).collect();
    let cache = Cache::open(dir).unwrap();
    assert_eq!(cache.table::<Vec<f32>>("numbers_v1").unwrap().put(&ids, &values).unwrap(), ids.len());
    cache.close().unwrap();
}
