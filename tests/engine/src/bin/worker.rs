//! A process that the tests start several of, and kill: see [`tcx_engine_tests::worker`].

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    tcx_engine_tests::worker::run(&arguments);
}
