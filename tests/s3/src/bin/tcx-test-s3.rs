//! A server of its own, for tests that kill it: `tcx-test-s3 ADDRESS DIRECTORY [PERMILLE]`. With PERMILLE, so many of a thousand requests
//! fail in each way.

use std::path::PathBuf;
use std::time::Duration;

use tcx_test_s3::{Fault, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(dir)) = (arguments.next(), arguments.next()) else {
        return Err("expected ADDRESS DIRECTORY [PERMILLE]".into());
    };
    let permille: u64 = arguments.next().map_or(Ok(0), |permille| permille.parse())?;
    let server = Server::with_directory(&address, &PathBuf::from(dir))?;
    server.fail(|faults| {
        let late = Fault::Late(Duration::from_millis(300));
        let all =
            [Fault::Before, Fault::After, Fault::Throttled, Fault::Conflict, Fault::Cut, Fault::Stale, late];
        faults.permille = all.map(|fault| (fault, permille)).to_vec();
    });
    println!("{}", server.url(""));
    server.wait();
    Ok(())
}
