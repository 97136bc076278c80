//! The commands that `docs/operations.md` advises are there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::process::Command;

/// The command lines of a text: those of its `sh` blocks, and those between backticks.
fn commands(text: &str) -> Vec<Vec<String>> {
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).map(|line| line.split('#').next().unwrap());
    let spans = text.split('`').skip(1).step_by(2);
    let whole = lines.flat_map(|line| line.split("&&")).chain(spans);
    let words = whole.map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words.filter(|words| words.len() > 1 && words[0] == "tcx").collect()
}

#[test]
fn every_command_that_is_advised_exists_with_its_options() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md")).unwrap();
    let commands = commands(&text);
    assert!(commands.len() > 10, "{commands:?}");
    for words in commands {
        let output = Command::new(env!("CARGO_BIN_EXE_tcx")).args([&words[1], "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{words:?}");
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option.as_str()), "{words:?}: no {option} in {help}");
        }
    }
}
