//! Destinations that do not fit.

use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::LookupOptions;
use crate::{ColumnType, DType, Destination, Field, Identity, KeyType, Keys, Options, Spec, Store};

const NUMBERS: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[3] };
const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "numbers", column: NUMBERS },
    Field { name: "text", column: ColumnType::Text },
    Field { name: "others", column: NUMBERS },
]);

#[test]
fn a_destination_that_does_not_fit_is_an_error_that_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let spec = Spec::new("m_v1", KeyType::Int, &OUTPUT, Identity::default(), Vec::new()).unwrap();
    let store = Store::open(dir.path(), spec, &Options::default()).unwrap();
    let refused = |leaf: usize, len: usize, wanted: Option<&Arc<[usize]>>| {
        let mut bytes = vec![MaybeUninit::uninit(); len];
        let mut destinations = [Destination { leaf, bytes: &mut bytes }];
        store
            .lookup_with(
                Keys::ints([1, 2], 0),
                LookupOptions { leaves: wanted, destinations: &mut destinations, ..LookupOptions::default() },
            )
            .unwrap_err()
            .to_string()
    };
    assert_eq!(refused(3, 6, None), "there is no leaf 3: the store has 3 leaves");
    assert_eq!(refused(0, 5, None), "the destination of leaf 0 has 5 bytes, expected 6 for 2 rows");
    assert_eq!(refused(1, 6, None), "leaf 1 cannot have a destination: its rows differ in length");
    assert_eq!(refused(0, 6, Some(&[2].into())), "leaf 0 has a destination but is not part of the lookup");
}
