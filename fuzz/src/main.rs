//! `TCX_DECODER=segment decode CORPUS…`: libFuzzer on one of tcx-store's decoders.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tcx_store::testing::fuzzing::DECODERS;

static DECODE: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let wanted = std::env::var("TCX_DECODER").unwrap_or_default();
    let found = DECODERS.iter().find(|(name, _)| *name == wanted);
    let names = DECODERS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.unwrap_or_else(|| panic!("TCX_DECODER is {wanted:?}, expected one of {names}")).1
});

fuzz_target!(|bytes: &[u8]| DECODE(bytes));
