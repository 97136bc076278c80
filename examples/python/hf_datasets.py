"""Hugging Face datasets: `map` fills the cache, `with_transform` reads it.

    python examples/python/hf_datasets.py ./cache
"""

import sys

import torch
from datasets import Dataset
from torch.utils.data import DataLoader

import tcx_cache as tcx


def extractor():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 4).eval().requires_grad_(False)


def main(directory):
    samples = torch.randn(40, 8, generator=torch.Generator().manual_seed(1)).tolist()
    dataset = Dataset.from_dict({"id": [f"sample {row}" for row in range(40)], "x": samples, "label": [row % 2 for row in range(40)]})
    cached = tcx.cached(extractor(), directory, id="extractor_v1")

    def fill(batch):
        cached(torch.tensor(batch["x"]), ids=batch["id"])

    # It returns nothing, so `map` writes no file of its own: the rows are in the cache, and another program finds them too.
    dataset.map(fill, batched=True, batch_size=16)
    cached.flush()
    print(f"computed {cached.stats()['rows_computed']} of {len(dataset)}")

    def with_features(batch):
        return {"features": cached.fetch(batch["id"]), "label": torch.tensor(batch["label"])}

    # The columns of the inputs are not read, unless a row is missing.
    read = dataset.remove_columns("x").with_transform(with_features)
    rows = [batch["features"] for batch in DataLoader(read, batch_size=16, num_workers=2, multiprocessing_context="fork")]
    return dataset, torch.cat(rows)


if __name__ == "__main__":
    main(sys.argv[1])
