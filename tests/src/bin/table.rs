//! `table DIR FORM`: the other process of the table's test.

use std::path::Path;

use tcx_tests::table::{Step, cases};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, form] = &args[..] else { panic!("usage: table DIR FORM") };
    for case in cases().iter().filter(|case| case.form == form) {
        case.run(Path::new(dir), Step::Other);
    }
}
