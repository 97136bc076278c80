//! Programs that a user of tcx would write.
//!
//! - `quickstart`: the smallest cached module, and a cache that a second run finds filled.
//! - `minilm`: a real text encoder with its real weights on real text; cold and warm epochs, another process,
//!   edited texts, and a search over the cached embeddings. `cargo xtask demo` runs it.
//! - `resnet50`: features of the images in a folder, which are decoded for misses only, and a search for similar ones.
