"""A worker that embeds texts with all-MiniLM-L6-v2, together with the others that run it: the program that `ray_actors.py` starts.

Run: `python embed.py CACHE MODEL --texts 20000`, in as many processes as you like. MODEL is the folder with the network and its tokenizer.
Look at: the worker prints what each worker has done; on a node that is lost, at most one part was computed in vain.
"""

from __future__ import annotations

import argparse
import sys

import torch
import transformers

import tcx_cache as tcx


class Embedding(torch.nn.Module):
    """Texts in, vectors of length 1 out."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.network = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False)
        # Padded to one length: the padding of a batch would reach the last bits of a row.
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def forward(self, texts: list[str]) -> torch.Tensor:
        tokens = self.tokenizer(texts, padding="max_length", truncation=True, max_length=16, return_tensors="pt")
        states = self.network(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1))


def text(number: int) -> str:
    """Stands in for a data set."""
    return f"text {number}, which is about {['cats', 'rows', 'leases', 'clouds'][number % 4]} and {number % 997}"


def opened(cache: str, model: str, mode: str = "read_write") -> tcx.Cached[torch.Tensor]:
    """The cached network."""
    network = Embedding(model).eval().requires_grad_(False)
    return tcx.cached(network, cache, id="embedding_v1", outputs=tcx.f32[384], ids=int, config={"tokens": 16}, type_name="Embedding", mode=mode)


def main() -> int:
    """Embeds the texts together with the other workers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", help="a directory that all nodes see, or the URL of an object store")
    parser.add_argument("model", help="the folder of the network")
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1, help="that compute")
    parser.add_argument("--expiry", type=float, default=120, help="seconds without a sign of life")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with opened(options.cache, options.model) as cached:
        report = cached.warm_shared(range(options.texts), lambda missing: [text(own) for own in missing], batch_size=32, expiry=options.expiry)
    sys.stdout.write(f"{report}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
