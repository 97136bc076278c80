//! Shows: the programs of `docs/guide.md`, in its order; a test compares them.
//! Run: `cargo run --example guide`
//! Look at: each step asserts what the guide says of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tch::nn::{self, Module};
use tch::{Device, Kind, Tensor};
use tcx::{
    Cache, CacheableOutput, ContentId, D1, ErrorKind, Extractor, FileId, Frozen, I64Ids, Identity, Keyed,
    Mode, OnMismatch, Partial, Ragged, Stop, Table, Typed, Weights, WhenFull, cached_module,
};

#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [32])]
    pooled: Tensor, // [N, 32] for N images
    brightness: Vec<f32>, // one per image
}

#[derive(CacheableOutput)]
struct Words {
    #[tensor(f32, [_, 4], store = f16)]
    vectors: Ragged, // four numbers for each word of a text, in half precision on disk
    language: Vec<Option<String>>, // not known of every text
}

/// A whole data set: one value.
#[derive(CacheableOutput)]
struct DataSet {
    #[tensor(f32, [_, 64])]
    features: Vec<Tensor>,
}

fn build_data_set() -> tcx::Result<DataSet> {
    Ok(DataSet { features: vec![Tensor::f_ones([1000, 64], tch::kind::FLOAT_CPU)?] })
}

/// A part of what the encoder computes.
#[derive(CacheableOutput)]
struct Brightness {
    brightness: Vec<f32>,
}

#[cached_module(id = "encoder_v1")]
struct Encoder {
    net: Frozen<nn::Linear>,
    size: i64,
    #[tcx(not_identity, assume_stateless)]
    computed: Arc<AtomicUsize>, // how many images, for the metrics of the program
}

impl Extractor for Encoder {
    type Input = Tensor;
    type Output = Features;

    fn forward(&self, images: &Tensor) -> tcx::Result<Features> {
        let pixels = images.f_flatten(1, -1)?.f_narrow(1, 0, self.size)?;
        let brightness: Vec<f32> = pixels.f_mean_dim([1i64].as_slice(), false, Kind::Float)?.try_into()?;
        self.computed.fetch_add(brightness.len(), Ordering::Relaxed);
        Ok(Features { pooled: self.net.forward(&pixels), brightness })
    }
}

#[cached_module(id = "prompted_v1")]
struct Prompted {}

impl Extractor for Prompted {
    type Input = (Vec<Arc<Tensor>>, Vec<String>); // images of any size, each with a prompt
    type Output = Vec<f64>;

    fn forward(&self, (images, prompts): &Self::Input) -> tcx::Result<Vec<f64>> {
        let score = |(image, prompt): (&Arc<Tensor>, &String)| -> tcx::Result<f64> {
            Ok(image.f_mean(Kind::Float)?.f_double_value(&[])? * prompt.len() as f64)
        };
        images.iter().zip(prompts).map(score).collect()
    }
}

#[cached_module(id = "scores_v1")]
struct Scores {
    head: Frozen<nn::Linear>,
}

impl Extractor for Scores {
    type Input = Tensor;
    type Output = Typed<f32, D1<10>>; // a tensor that needs no struct

    fn forward(&self, features: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.head.forward(features).into())
    }
}

#[cached_module(id = "word_counts_v1")]
struct WordCounts {}

impl Extractor for WordCounts {
    type Input = Vec<String>;
    type Output = Vec<i64>;

    fn forward(&self, texts: &Vec<String>) -> tcx::Result<Vec<i64>> {
        Ok(texts.iter().map(|text| text.split_whitespace().count() as i64).collect())
    }
}

impl Keyed for WordCounts {
    type Id = ContentId;

    fn ids(texts: &Vec<String>) -> tcx::Result<Vec<ContentId>> {
        Ok(texts.iter().map(ContentId::of_text).collect())
    }
}

fn encoder() -> tcx::Result<Encoder> {
    tch::manual_seed(7); // stands for a file of trained weights
    let net = Frozen::build(nn::VarStore::new(Device::Cpu), |p| {
        nn::linear(p, 64, 32, nn::LinearConfig::default())
    })?;
    Ok(Encoder { net, size: 64, computed: Arc::default() })
}

fn scores() -> tcx::Result<Scores> {
    tch::manual_seed(8);
    let head = Frozen::build(nn::VarStore::new(Device::Cpu), |p| {
        nn::linear(p, 32, 10, nn::LinearConfig::default())
    })?;
    Ok(Scores { head })
}

fn decode<'a>(ids: impl Iterator<Item = &'a str>) -> tcx::Result<Tensor> {
    let images: Vec<Tensor> =
        ids.map(|id| Tensor::full([8, 8], id.len() as f64, (Kind::Float, Device::Cpu))).collect();
    Ok(Tensor::f_stack(&images, 0)?)
}

/// Stands for a request to a server.
#[expect(clippy::unused_async, reason = "the place of a client")]
async fn download(url: &str) -> std::io::Result<String> {
    Ok(format!("text of {url}"))
}

/// Stands for a request to a language model.
fn ask(prompt: &str) -> Result<String, &'static str> {
    if prompt.ends_with('?') { Ok("Yes.".to_owned()) } else { Err("this is no question") }
}

fn word_vectors<'a>(texts: impl Iterator<Item = &'a &'a str>) -> tcx::Result<Words> {
    let (mut lengths, mut offsets, mut language) = (Vec::new(), vec![0], Vec::new());
    for text in texts {
        lengths.extend(text.split_whitespace().map(|word| word.len() as f32));
        offsets.push(lengths.len() as i64);
        language.push(text.starts_with("ein ").then(|| "de".to_owned()));
    }
    let values = Tensor::from_slice(&lengths).f_unsqueeze(1)?.f_expand([-1, 4], false)?;
    Ok(Words { vectors: Ragged { values, offsets: Tensor::from_slice(&offsets) }, language })
}

#[expect(clippy::too_many_lines, reason = "the steps of the guide, in its order")]
fn main() -> tcx::Result<()> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // Empty in each run, so that each step does what the guide says of it.
    let empty = tempfile::tempdir().map_err(tcx::Error::loader)?;
    let dir = empty.path();
    let ids: Vec<String> = (0..100).map(|i| format!("image {i}")).collect();

    // An epoch.
    let cache = Cache::open(dir)?;
    let encoder_cache = cache.module(encoder()?)?;
    for batch in ids.chunks(32) {
        let features = encoder_cache.fetch(batch, |missing| decode(missing.str_ids()))?;
        assert_eq!(features.pooled.size(), [batch.len() as i64, 32]);
    }
    cache.flush()?; // durable when this returns

    // Another one, in another order, read ahead of the loop.
    let order: Vec<String> = ids.iter().rev().cloned().collect();
    let encoder_cache = Arc::new(encoder_cache);
    let epoch = encoder_cache.epoch(&order).batch_size(32).prefetch(2);
    for batch in epoch.load(|missing| decode(missing.str_ids())) {
        let (ids, features) = batch?; // in the given order
        assert_eq!(features.brightness.len(), ids.len());
    }

    // Without a directory.
    let scratch = Cache::in_memory();
    let tried = scratch.module(encoder()?)?;
    tried.fetch(&ids, |missing| decode(missing.str_ids()))?;
    drop((tried, scratch));

    // Inputs that differ in size.
    let prompted = cache.module(Prompted {})?;
    let weighted = prompted.fetch(&["small", "large"], |missing| {
        let image = |id: &str| Tensor::ones([if id == "small" { 8 } else { 64 }, 8], tch::kind::FLOAT_CPU);
        let images = missing.ids().map(|id| Arc::from(image(id))).collect();
        Ok((images, vec!["a cat".to_owned(); missing.len()]))
    })?;
    assert_eq!(weighted, [5., 5.]);

    // Loaders that fail for some samples.
    let texts = dir.join("texts");
    std::fs::create_dir_all(&texts)?;
    std::fs::write(texts.join("a.txt"), "a cat on a mat")?;
    let words_cache = cache.module(WordCounts {})?.concurrency(2)?; // two batches at once
    let failed = words_cache.fetch(&["a.txt", "gone.txt"], |missing| {
        Partial::collect(missing.str_ids().map(|name| std::fs::read_to_string(texts.join(name))))
    });
    let error = failed.expect_err("a file is missing");
    for failure in error.load_failures() {
        println!("skipped {failure}"); // skipped `gone.txt`: No such file or directory
    }
    assert_eq!(words_cache.coverage(&["a.txt", "gone.txt"])?.missing(), [1]); // `a.txt` is stored

    // K-fold.
    for fold in 0..5 {
        let train: Vec<&String> =
            ids.iter().enumerate().filter(|(i, _)| i % 5 != fold).map(|(_, id)| id).collect();
        let features = encoder_cache.fetch(&train, |missing| decode(missing.str_ids()))?;
        assert_eq!(features.brightness.len(), 80); // nothing is computed: the folds share the rows
    }
    assert_eq!((encoder_cache.stats().hits, encoder_cache.stats().misses), (100 + 5 * 80, 100));

    // Other settings.
    let sweep = Cache::builder().on_mismatch(OnMismatch::Separate).open(dir)?;
    for separator in [" ", "a"] {
        let parts = Table::<Vec<i64>>::builder("parts_v1").metadata("separator", separator).open(&sweep)?;
        parts.get_or_compute(&ids, |missing| {
            Ok(missing.ids().map(|id| id.split(separator).count() as i64).collect())
        })?;
    }

    // Some of the fields.
    let some = encoder_cache.fields::<Brightness>()?;
    let light = some.fetch(&ids, |missing| decode(missing.str_ids()))?;
    assert_eq!(light.brightness.len(), 100);

    // A second model over the features of the first.
    let scores_cache = cache.module_after(&encoder_cache, scores()?)?;
    let scores = scores_cache.fetch(&ids, |missing| {
        let ids: Vec<&String> = missing.ids().collect();
        Ok(encoder_cache.fetch(&ids, |missing| decode(missing.str_ids()))?.pooled)
    })?;
    assert_eq!(scores.size(), [100, 10]);

    // Views.
    for view in 1..3 {
        let flipped = |images: Tensor| Ok(images.f_flip([2])?);
        encoder_cache.view(view).fetch(&ids, |missing| flipped(decode(missing.str_ids())?))?;
    }

    // Ids by content.
    let counts = cache.module(WordCounts {})?;
    let texts = vec!["a cat on a mat".to_owned(), "a dog".to_owned()];
    assert_eq!(counts.forward_keyed(&texts)?, [5, 2]);

    // A network that is built at the first miss, or never.
    let file = dir.join("head.safetensors");
    scores_head(&file)?;
    let mut identity = Identity::default();
    identity.type_name("Scores");
    identity.field("head", &Weights::of_file(&file)?);
    identity.after(&encoder_cache);
    let lazy = cache.lazy_module(identity, Device::Cpu, move || {
        let head = Frozen::load(Device::Cpu, &file, |p| nn::linear(p, 32, 10, nn::LinearConfig::default()))?;
        Ok(Scores { head })
    })?;
    if !lazy.coverage(&ids)?.is_complete() {
        println!("the head is going to be built");
    }
    assert!(lazy.coverage(&ids)?.is_complete(), "`scores_cache` has computed them: the head is never built");

    // No module at all.
    let lengths = cache.table::<Vec<i64>>("id_lengths_v1")?;
    let lens =
        lengths.get_or_compute(&ids, |missing| Ok(missing.ids().map(|id| id.len() as i64).collect()))?;
    assert_eq!(lens[0], 7);
    let words = cache.table::<Words>("word_vectors_v1")?;
    let found =
        words.get_or_compute(&["a cat on a mat", "ein Hund"], |missing| word_vectors(missing.ids()))?;
    assert_eq!(found.vectors.values.size(), [7, 4]);
    assert_eq!(Vec::<i64>::try_from(&found.vectors.offsets)?, [0, 5, 7]);
    assert_eq!(found.language, [None, Some("de".to_owned())]);

    assert_eq!(lengths.put(&["image 0", "a dog"], &vec![-1, 5])?, 1); // `image 0` was stored, and stays
    assert_eq!(lengths.get(&["image 0", "a dog"])?, Some(vec![7, 5]));
    assert_eq!(lengths.get(&["image 0", "a cat"])?, None); // one is missing
    lengths.replace(&["a dog"], &vec![50])?;
    let answers = cache.table::<Vec<String>>("answers_v1")?;
    let prompts = ["Does it rain?", "It rains.", "Is it late?"];
    let asked = answers.get_or_compute_partial(&prompts, |missing| {
        Ok(Partial::split(missing.ids().map(|prompt| ask(prompt))))
    });
    for failure in asked.expect_err("one is no question").load_failures() {
        println!("not answered: {failure}"); // not answered: `It rains.`: this is no question
    }
    assert_eq!(answers.coverage(&prompts)?.missing(), [1]);
    let norms = Table::<Vec<f32>>::builder("norms_v1").validate(|norms| {
        match norms.iter().find(|norm| **norm < 0.) {
            None => Ok(()),
            Some(norm) => Err(tcx::Error::loader(format!("a norm of {norm}"))),
        }
    });
    let norms = norms.open(&cache)?;
    assert!(norms.put(&["image 0"], &vec![-1.]).is_err());
    let sets = cache.table::<DataSet>("data_sets_v1")?;
    let train = sets.get_or_compute(&["train"], |_| build_data_set())?;
    assert_eq!(train.features[0].size(), [1000, 64]); // 1000 samples of the set `train`
    let squares: Table<Vec<i64>, I64Ids> = Table::builder("squares_v1").keys().open(&cache)?;
    squares.put(&[3, 4], &vec![9, 16])?;

    // Rows that have to go.
    encoder_cache.invalidate(&ids[..3])?;
    encoder_cache.invalidate_prefix("image 9")?;
    assert_eq!(encoder_cache.coverage(&ids)?.missing().len(), 3 + 11);

    // Modes.
    let again = cache.with_mode(Mode::Recompute).module(encoder()?)?;
    again.fetch(&ids, |missing| decode(missing.str_ids()))?;
    let reader = cache.with_mode(Mode::ReadOnly).module(encoder()?)?;
    reader.fetch(&ids, |missing| decode(missing.str_ids()))?;
    assert!(encoder_cache.coverage(&ids)?.is_complete(), "what was invalidated is computed again");

    // Where rows come from.
    for row in encoder_cache.describe(&ids[..2])?.into_iter().flatten() {
        println!("{} bytes, {:?} old, by {:?}", row.bytes, row.age(), row.processes);
    }

    // Ahead of time, and looking back.
    let warmed = encoder_cache.warm(&ids, |missing| decode(missing.str_ids()))?;
    println!("{} of {} images computed", warmed.computed, warmed.asked);
    let stop = Stop::new(); // with the feature `ctrlc`: Stop::on_ctrl_c()?
    let warmed =
        encoder_cache.warming().workers(4).stop(&stop).run(&ids, |missing| decode(missing.str_ids()))?;
    assert!(!warmed.stopped);
    let verified = encoder_cache.verify(0.1, 42, |asked| decode(asked.str_ids()))?;
    assert!(verified.is_sound(), "{verified}");
    let shared = encoder_cache.warm_shared(&ids, |missing| decode(missing.str_ids()))?;
    println!("{shared}"); // what each process has done
    assert_eq!(shared.computed, 0);

    // Files whose contents change.
    let lengths = Table::<Vec<i64>>::builder("stamped_lengths_v1").stamped::<u64>().open(&cache)?;
    for (changed, text) in [(1, "a cat"), (1, "a cat"), (2, "a black cat")] {
        let found = lengths.get_or_compute(&[("cat.txt", changed)], |_| Ok(vec![text.len() as i64]))?;
        assert_eq!(found, [text.len() as i64]);
    }

    let sizes = Table::<Vec<i64>>::builder("file_sizes_v1").stamped::<[u8]>().open(&cache)?;
    let files = [FileId::of(dir.join("head.safetensors"))?]; // or `FileId::of_content`
    let found = sizes.get_or_compute(&files, |missing| {
        missing.ids().map(|file| Ok(std::fs::read(file)?.len() as i64)).collect()
    })?;
    assert!(found[0] > 0);

    // In an asynchronous program.
    let shared = std::sync::Arc::new(cache.module(WordCounts {})?);
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(tcx::Error::loader)?;
    let counts = runtime
        .block_on(shared.fetch_owned(vec!["one text"], |missing| {
            Ok(missing.ids().map(|id| (*id).to_owned()).collect())
        }))?;
    assert_eq!(counts, [2]);
    let ids = ["https://example.com/a", "https://example.com/b"];
    let counts = runtime.block_on(shared.fetch_async(&ids, async |missing| {
        let mut texts = Vec::new();
        for url in missing.str_ids() {
            texts.push(download(url).await?);
        }
        Ok(texts)
    }))?;
    assert_eq!(counts, [3, 3]);

    // Errors.
    let counts = match cache.table::<Vec<f32>>("id_lengths_v1") {
        // Rows of another type are in this folder: bump the id.
        Err(error) if error.kind() == ErrorKind::Mismatch => cache.table("id_lengths_v2"),
        opened => opened,
    }?;
    counts.put(&["a cat"], &vec![5.])?;

    // Limits.
    let small = Cache::builder().max_bytes(10 << 30, WhenFull::StopWriting).open(dir)?;
    println!("{} and {}", small.path().display(), encoder_cache.stats().rows);
    let daily = cache.with_settings(|own| own.time_to_live(Duration::from_hours(24)));
    let weather = daily.table::<Vec<f32>>("weather_v1")?;
    weather.put(&["Oslo"], &vec![-3.])?;
    cache.close()?;
    Ok(())
}

/// Saves the weights of the head, as a training run would have.
fn scores_head(file: &std::path::Path) -> tcx::Result<()> {
    scores()?.head.save(file)
}
