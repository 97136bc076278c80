"""`encode` of sentence-transformers with a cache: each text is embedded once, in whatever batch it comes.

    python examples/python/sentence_embeddings.py ./cache target/models/all-MiniLM-L6-v2
"""

import hashlib
import sys

import torch
from sentence_transformers import SentenceTransformer

import tcx_cache as tcx


class Encoder(torch.nn.Module):
    """The model as a function of texts: `SentenceTransformer` itself takes batches of tokens, which depend on one another."""

    def __init__(self, model):
        super().__init__()
        self.model = model.requires_grad_(False)

    def forward(self, texts):
        return self.model.encode(texts, batch_size=32, convert_to_tensor=True, show_progress_bar=False)


class CachedSentenceTransformer:
    """Has the `encode` of the model inside."""

    def __init__(self, model, directory, id):
        # The weights are part of the identity; the tokenizer has none, so its vocabulary is configuration.
        vocabulary = sorted(model.tokenizer.get_vocab().items())
        config = {
            "vocabulary": hashlib.sha256(repr(vocabulary).encode()).hexdigest(),
            "max_seq_length": model.max_seq_length,
        }
        # The path of the class is part of it, too: one name, for the program that defines it and those that import it.
        self.cached = tcx.cached(Encoder(model).eval(), directory, id=id, config=config, type_name="Encoder")

    def encode(self, texts):
        # A text may be long; its hash is an id of 32 bytes.
        ids = [hashlib.sha256(text.encode()).digest() for text in texts]
        return self.cached(texts, ids=ids).numpy()


TEXTS = [
    "A cache keeps what was computed.",
    "Each sample is computed once.",
    "Cats sleep for most of the day, and so would you if nobody asked you to do anything else.",
    "The cat sat on the mat.",
]


def main(directory, model="target/models/all-MiniLM-L6-v2"):
    # A name in place of a path is downloaded.
    model = CachedSentenceTransformer(SentenceTransformer(model, device="cpu"), directory, id="minilm_v1")
    embeddings = model.encode(TEXTS)
    reordered = model.encode(TEXTS[::-1])
    assert (embeddings == reordered[::-1]).all()
    stats = model.cached.stats()
    print(f"computed {stats['rows_computed']} of {2 * len(TEXTS)}")
    model.cached.flush()
    return embeddings


if __name__ == "__main__":
    main(*sys.argv[1:])
