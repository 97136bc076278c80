//! What is known of rows without reading their values: of modules, views and tables, on disk and in memory.

use tcx::{Cache, ErrorKind, Mode, StoredStamp, Table};
use tcx_tests::place::Place;
use tcx_tests::{Scaled, StampedEcho};

#[test]
fn rows_of_modules_and_views_are_described_by_their_ids() {
    for place in Place::each() {
        let cache = place.open();
        let scaled = cache.module(Scaled::new(2.)).unwrap();
        scaled.forward(&[1, 2], &Scaled::input(&[1, 2])).unwrap();
        scaled.view(7).forward(&[3], &Scaled::input(&[3])).unwrap();
        assert_eq!(scaled.describe(&[1]).unwrap()[0].as_ref().unwrap().segment, None, "it is buffered");
        scaled.flush().unwrap();
        let before = scaled.stats();
        let facts = scaled.describe(&[2, 3, 1]).unwrap();
        assert!(facts[1].is_none(), "it has a row in another view only");
        assert!(scaled.view(7).describe(&[3]).unwrap()[0].is_some());
        for row in [&facts[0], &facts[2]] {
            let row = row.as_ref().unwrap();
            assert_eq!((row.bytes, &row.stamp), (32, &None));
            let [own] = &*row.processes else { panic!("{row:?}") };
            assert_eq!(own.process, std::process::id());
            assert!(own.host.as_ref().is_some_and(|host| !host.is_empty()));
            assert!(own.program.as_ref().is_some_and(|program| program.starts_with("identity")));
            assert!(own.started <= row.computed && row.segment.is_some());
        }
        let after = scaled.stats();
        assert_eq!((before.hits, before.misses), (after.hits, after.misses));
    }
}

#[test]
fn a_stored_stamp_is_shown_for_an_id_without_one() {
    for place in Place::each() {
        let cache = place.open();
        let echo = cache.module(StampedEcho {}).unwrap();
        echo.forward(&[(7, 3)], &vec![70]).unwrap();
        let sizes = Table::<Vec<i64>>::builder("sizes_v1").stamped::<[u8]>().open(&cache).unwrap();
        sizes.put(&[("a.jpg", &b"hash"[..])], &vec![1]).unwrap();
        for _ in 0..2 {
            let stamp = |facts: Vec<Option<tcx::RowFacts>>| facts[0].clone().unwrap().stamp.unwrap();
            assert_eq!(stamp(echo.describe(&[7]).unwrap()), StoredStamp::Number(3));
            assert_eq!(stamp(sizes.describe(&["a.jpg"]).unwrap()), StoredStamp::Bytes((*b"hash").into()));
            cache.flush().unwrap();
        }
    }
}

#[test]
fn a_handle_that_is_off_describes_nothing() {
    let cache = Cache::in_memory().with_mode(Mode::Off);
    let error = cache.table::<Vec<i64>>("numbers_v1").unwrap().describe(&["a"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongMode);
}
