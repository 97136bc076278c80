//! The programs in README.md, docs/guide.md and docs/backends.md run: they are parts of examples, and the commands of the README build a separate
//! crate.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> io::Result<String> {
    fs::read_to_string(root().join(path))
}

/// The text without white space, because the formatter decides where lines break.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

/// The blocks of a document that begin so.
fn blocks<'a>(document: &'a str, fence: &'a str) -> impl Iterator<Item = &'a str> {
    document.split(fence).skip(1).filter_map(|rest| rest.split("```").next())
}

#[test]
fn every_snippet_of_the_guide_is_a_part_of_its_example() -> io::Result<()> {
    let (guide, example) = (read("docs/guide.md")?, squeezed(&read("examples/guide.rs")?));
    assert!(blocks(&guide, "```rust\n").count() > 10);
    for snippet in blocks(&guide, "```rust\n") {
        assert!(example.contains(&squeezed(snippet)), "not in examples/guide.rs:\n{snippet}");
    }
    Ok(())
}

#[test]
fn what_the_document_about_tensor_libraries_shows_is_a_part_of_an_example() -> io::Result<()> {
    let document = read("docs/backends.md")?;
    let examples =
        squeezed(&(read("examples/ndarray.rs")? + &read("examples/candle.rs")? + &read("examples/onnx.rs")?));
    assert_eq!(blocks(&document, "```rust\n").count(), 3);
    for snippet in blocks(&document, "```rust\n") {
        assert!(examples.contains(&squeezed(snippet)), "not in the examples:\n{snippet}");
    }
    Ok(())
}

#[test]
fn the_programs_of_the_readmes_are_parts_of_their_example() -> io::Result<()> {
    let example = squeezed(&read("examples/readme.rs")?);
    for document in ["README.md", "tcx/README.md"] {
        let readme = read(document)?;
        assert!(blocks(&readme, "```rust\n").count() > 0, "{document}");
        for snippet in blocks(&readme, "```rust\n") {
            assert!(
                example.contains(&squeezed(snippet)),
                "{document}: not in examples/readme.rs:\n{snippet}"
            );
        }
    }
    Ok(())
}

/// Creates a link from `from` to `to`, replacing what `from` was.
#[cfg(unix)]
fn link(from: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(from).is_ok() {
        fs::remove_file(from)?;
    }
    std::os::unix::fs::symlink(to, from)
}

#[cfg(unix)]
#[test]
fn a_crate_of_your_own_is_built_by_the_lines_of_the_readme() -> io::Result<()> {
    let root = root().canonicalize()?;
    let readme = read("README.md")?;
    let section = readme.split("\n## Install\n").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines: Vec<&str> = blocks(section, "```sh\n").flat_map(str::lines).collect();
    let line = |start: &str| *lines.iter().find(|line| line.starts_with(start)).unwrap_or(&"");
    let (add, tch) = (line("cargo add --path "), line("cargo add tch@"));
    let environment = line("eval ");
    assert_eq!(lines.last(), Some(&"cargo run"), "{lines:?}");

    // Always the same folder, so that the dependencies are built only once.
    let here = root.join("target/tests/own-crate");
    let mine = here.join("mine");
    fs::create_dir_all(mine.join("src"))?;
    link(&here.join("tcx"), &root)?;
    fs::write(mine.join("Cargo.toml"), "[workspace]\n[package]\nname = \"mine\"\nedition = \"2024\"\n")?;
    fs::copy(root.join("Cargo.lock"), mine.join("Cargo.lock"))?;
    fs::copy(root.join("examples/quickstart.rs"), mine.join("src/main.rs"))?;

    // From a folder that knows nothing of this workspace's configuration of Cargo, but with its profiles, so that what the workspace
    // is built with serves again. It is checked, not run: linking takes long.
    let elsewhere = tempfile::tempdir()?;
    let script = format!(
        "cd '{}'\n{environment}\nexport CARGO_NET_OFFLINE=true\n{add}\n{tch}\ncd '{}'\n\
         exec cargo check --offline --manifest-path '{}' --config '{}'",
        mine.display(),
        elsewhere.path().display(),
        mine.join("Cargo.toml").display(),
        root.join("Cargo.toml").display(),
    );
    let mut command = Command::new("sh");
    command.args(["-ec", &script]).env_remove("LIBTORCH").env_remove("LD_LIBRARY_PATH");
    command.env("CARGO_TARGET_DIR", root.join("target"));
    let output = command.output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
