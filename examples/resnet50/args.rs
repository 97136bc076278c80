//! The command line.

use std::path::PathBuf;

use clap::Parser;
use tcx_examples::positive;

/// Computes ResNet-50's features of the images in a folder, in two epochs: the second finds them in the cache.
#[derive(Clone, Debug, Parser)]
#[command(name = "resnet50")]
pub(crate) struct Args {
    /// The folder whose JPEG and PNG files are read, and those of the folders in it; names that start with a dot are
    /// skipped. By default, patterns that the program draws into the cache's folder.
    pub(crate) folder: Option<PathBuf>,
    /// Search instead: print the images of the folder that are most like FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) like: Option<PathBuf>,
    /// Trained weights, .safetensors or .ot, with the names of torchvision; by default, random weights, the same in
    /// every run.
    #[arg(long, value_name = "FILE")]
    pub(crate) weights: Option<PathBuf>,
    /// Read only the first N images, in the order of their names.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) limit: Option<usize>,
    /// Images in a batch.
    #[arg(long, value_name = "N", value_parser = positive, default_value = "32")]
    pub(crate) batch: usize,
    /// Keep the cache in this folder.
    #[arg(long, value_name = "DIR", default_value = "target/resnet50-cache")]
    pub(crate) cache: PathBuf,
    /// Remove this program's cache first.
    #[arg(long)]
    pub(crate) fresh: bool,
}
