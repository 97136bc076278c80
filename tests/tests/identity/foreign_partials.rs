//! A `Partial` that code of the caller other than a loader returns: what it could load is no input of a module that asks for it.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::error::Error as StdError;
use std::sync::Arc;

use tcx::{Cache, Cached, ErrorKind, Extractor, Keyed, Missing, Partial, Result, Table, cached_module};

const IDS: [&str; 3] = ["a", "bad", "c"];

#[derive(Debug)]
struct Fault;

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("this is no text")
    }
}

impl StdError for Fault {}

fn parse(text: &str) -> Result<String, Fault> {
    if text == "bad" { Err(Fault) } else { Ok(text.to_owned()) }
}

/// Each text without its faults, in capital letters: its `forward` fails for some samples.
#[cached_module(id = "clean_texts_v1")]
struct Clean {}

impl Extractor for Clean {
    type Input = Vec<String>;
    type Output = Vec<String>;

    fn forward(&self, texts: &Vec<String>) -> Result<Vec<String>> {
        let parsed = Partial::collect(texts.iter().map(|text| parse(text)))?;
        Ok(parsed.iter().map(|text| text.to_uppercase()).collect())
    }
}

impl Keyed for Clean {
    type Id = String;

    fn ids(texts: &Vec<String>) -> Result<Vec<String>> {
        Partial::collect(texts.iter().map(|text| parse(text)))
    }
}

/// What is made of a clean text.
#[cached_module(id = "marked_texts_v1")]
struct Marked {}

impl Extractor for Marked {
    type Input = Vec<String>;
    type Output = Vec<String>;

    fn forward(&self, texts: &Vec<String>) -> Result<Vec<String>> {
        Ok(texts.iter().map(|text| format!("<{text}>")).collect())
    }
}

struct Chain {
    _dir: tempfile::TempDir,
    cache: Cache,
    clean: Cached<Clean>,
    marked: Cached<Marked>,
}

fn open() -> Chain {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let clean = cache.module(Clean {}).unwrap();
    let marked = cache.module_after(&clean, Marked {}).unwrap();
    Chain { _dir: dir, cache, clean, marked }
}

#[expect(clippy::unnecessary_wraps, reason = "a loader may fail")]
fn read<I: AsRef<str>>(missing: Missing<'_, I>) -> Result<Vec<String>> {
    Ok(missing.ids().map(|id| id.as_ref().to_owned()).collect())
}

impl Chain {
    /// What the upstream module has for the ids that are missing.
    fn cleaned(&self, missing: Missing<'_, &str>) -> Result<Vec<String>> {
        self.clean.fetch(&missing.ids().copied().collect::<Vec<_>>(), read)
    }

    fn assert_nothing_is_stored(&self) {
        assert_eq!(self.marked.coverage(&IDS).unwrap().missing(), [0, 1, 2], "wrong rows are stored");
        let cleaned = |missing: Missing<'_, &str>| self.cleaned(missing);
        assert_eq!(self.marked.fetch(&["a", "c"], cleaned).unwrap(), ["<A>", "<C>"]);
    }
}

#[test]
fn what_forward_of_a_module_could_read_is_no_input_of_the_module_after_it() {
    let chain = open();
    let error = chain.marked.fetch(&IDS, |missing| chain.cleaned(missing)).unwrap_err();
    chain.assert_nothing_is_stored();
    assert_eq!((error.module_id(), error.kind()), (Some("clean_texts_v1"), ErrorKind::Loader));
    let expected = "module `clean_texts_v1`: `forward` failed; a `Partial` is for loaders: nothing is computed from what could be \
                    loaded here: this is no text";
    assert_eq!(format!("{error:#}"), expected);
    assert!(error.load_failures().is_empty(), "its places are not those of ids");
    assert!(error.source().unwrap().is::<Fault>());
}

#[test]
fn nor_if_some_rows_of_both_are_stored() {
    let chain = open();
    chain.marked.fetch(&["a"], |missing| chain.cleaned(missing)).unwrap();
    chain.marked.fetch(&IDS, |missing| chain.cleaned(missing)).unwrap_err();
    assert_eq!(chain.marked.coverage(&IDS).unwrap().missing(), [1, 2], "wrong rows are stored");
    assert_eq!(chain.marked.fetch(&["a", "c"], |missing| chain.cleaned(missing)).unwrap(), ["<A>", "<C>"]);
}

#[test]
fn nor_of_lists_of_samples_and_of_asynchronous_loaders() {
    let chain = open();
    chain.marked.warm(&IDS, |missing| chain.cleaned(missing)).unwrap_err();
    chain.assert_nothing_is_stored();

    let chain = open();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let clean = Arc::new(chain.cache.module(Clean {}).unwrap());
        let marked = Arc::new(chain.cache.module_after(&clean, Marked {}).unwrap());
        let cleaned = async |missing: Missing<'_, &str>| {
            let ids: Vec<String> = missing.ids().map(ToString::to_string).collect();
            clean.fetch_async(&ids, async |missing| read(missing)).await
        };
        marked.fetch_async(&IDS, cleaned).await.unwrap_err();
    });
    chain.assert_nothing_is_stored();
}

#[test]
fn nor_is_what_the_closure_of_a_lazy_module_could_read() {
    let chain = open();
    let mut identity = tcx::Identity::default();
    identity.type_name("Clean");
    let lazy = chain.cache.lazy_module(identity, tcx::Device::CPU, || -> Result<Clean> {
        Partial::collect(IDS.map(parse))?;
        Ok(Clean {})
    });
    let lazy = lazy.unwrap();
    let error =
        chain.marked.fetch(&IDS, |missing| lazy.fetch(&missing.ids().copied().collect::<Vec<_>>(), read));
    chain.assert_nothing_is_stored();
    let message = format!("{:#}", error.unwrap_err());
    let expected = "module `clean_texts_v1`: building the module failed; a `Partial` is for loaders: ";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn nor_are_ids_that_the_inputs_of_a_module_have() {
    let chain = open();
    let error = chain.marked.fetch(&IDS, |missing| chain.clean.forward_keyed(&read(missing)?)).unwrap_err();
    chain.assert_nothing_is_stored();
    assert!(error.to_string().starts_with("module `clean_texts_v1`: `ids` failed; "), "{error}");
}

#[test]
fn nor_are_values_that_a_table_finds_valid() {
    let chain = open();
    let valid = |texts: &Vec<String>| Partial::collect(texts.iter().map(|text| parse(text))).map(drop);
    // Together, and none of them alone.
    let table = Table::builder("valid_texts_v1")
        .validate(move |texts: &Vec<String>| if texts.len() > 1 { valid(texts) } else { Ok(()) });
    let table = table.open(&chain.cache).unwrap();
    let error = chain.marked.fetch(&IDS, |missing| {
        let texts = read(missing)?;
        table.put(&texts, &texts)?;
        Ok(texts)
    });
    chain.assert_nothing_is_stored();
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOutput);
    assert!(error.to_string().contains("`validate` rejects the values; "), "{error}");
}
