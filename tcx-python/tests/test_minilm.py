"""all-MiniLM-L6-v2 in Rust and in Python, with the same weights: each reads the rows that the other has computed, bit for bit.

`cargo xtask python` builds the example `minilm` and names it in `TCX_MINILM`.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from test_rust import MODEL, MODULE, ROOT, Config, Pieces

import tcx_cache as tcx
from tcx_cache import _native

PROGRAM = os.environ.get("TCX_MINILM")
if not PROGRAM:
    pytest.skip("`TCX_MINILM` does not name the example in Rust", allow_module_level=True)

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

TEXTS = [
    "The cache returns for each id, bit for bit, what the network returned for it.",
    "Rows are stored in immutable files, which any number of processes may share.",
    "A sentence of exactly nine words that says little.",
    "Cats sleep for most of the day, and they hunt in the hours around dawn and dusk.",
    "This longer paragraph has several clauses; it was written so that the batch has texts of different lengths, and so "
    "that the padding of the shorter ones would be seen if one of the two programs let it reach the result.",
]


#: Numbers from 0 and zeros, which the program in Rust makes as it needs them.
CONSTANTS = ["embeddings.position_ids", "embeddings.token_type_ids"]


class MiniLm(transformers.BertModel):
    """The network with the names of variables that the file has: texts in, vectors of length 1 out."""

    def forward(self, texts):
        batch = self.tokenizer.encode_batch(texts)
        longest = max(len(text.ids) for text in batch)
        tokens = torch.zeros(len(batch), longest, dtype=torch.int64)
        mask = torch.zeros(len(batch), longest)
        for row, text in enumerate(batch):
            tokens[row, : len(text.ids)] = torch.tensor(text.ids)
            mask[row, : len(text.ids)] = 1
        states = super().forward(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        mean = (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return {"embedding": torch.nn.functional.normalize(mean)}


def network():
    config = transformers.BertConfig(**dataclasses.asdict(Config()))
    model = MiniLm(config, add_pooling_layer=False)
    given = transformers.BertModel.from_pretrained(MODEL.parent, add_pooling_layer=False)
    model.load_state_dict(given.state_dict())
    model.tokenizer = tokenizers.Tokenizer.from_file(str(MODEL.parent / "tokenizer.json"))
    model.tokenizer.enable_truncation(256)
    model.tokenizer.no_padding()
    return model.eval().requires_grad_(False)


def opened(folder, model, fingerprint):
    """The rows of a folder of the program in Rust, under the identity that they have there."""
    fields = {"bert": tcx.WEIGHTS, "config": Config(), "pieces": Pieces(tcx.ASSUMED_STATELESS, fingerprint, 256)}
    outputs = {"embedding": tcx.f32[384]}
    return tcx.cached(model, folder / "rows", MODULE, outputs=outputs, ids=str, type_name="MiniLm", fields=fields, assume_stateless=CONSTANTS)


def fingerprint_of_tokenizer(folder):
    return dict(_native.Spec.read(str(folder / "rows" / MODULE)).identity)["pieces.fingerprint"].strip('"')


@pytest.fixture
def documents(tmp_path):
    """A folder with the texts, as the program in Rust reads them."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "notes.md").write_text("\n\n".join(TEXTS) + "\n")
    return folder


def epoch(folder, documents):
    """An epoch of the program in Rust: the rows, hits and misses."""
    command = [ROOT / ".cargo/with-libtorch.sh", PROGRAM, "--epoch", "--limit", "100", "--cache", folder, "--model", MODEL.parent, documents]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split()[:3]))


def exported(folder, to):
    """The rows by id, as the command in Rust reads them."""
    program = "from tcx_cache._command import main; main()"
    command = [sys.executable, "-c", program, "export", str(folder / "rows"), MODULE, "--to", str(to), "--format", "npy"]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    return dict(zip((to / "ids.txt").read_text().split(), numpy.load(to / "embedding.npy")))


def same(rows, others):
    assert sorted(rows) == sorted(others) and len(rows) == len(TEXTS)
    return all(numpy.asarray(row).tobytes() == numpy.asarray(others[own]).tobytes() for own, row in rows.items())


def test_each_reads_the_rows_of_the_other_bit_for_bit(tmp_path, documents):
    model, by_rust, by_python = network(), tmp_path / "rust", tmp_path / "python"
    assert epoch(by_rust, documents) == [len(TEXTS), 0, len(TEXTS)]
    fingerprint = fingerprint_of_tokenizer(by_rust)
    with opened(by_rust, model, fingerprint) as cached:
        ids = cached.stored_ids()
        read = dict(zip(ids, cached.fetch(ids)["embedding"].numpy()))
        assert cached.stats()["misses"] == 0 and cached.stats()["rows_computed"] == 0
    assert same(read, exported(by_rust, tmp_path / "rust-npy"))
    # Which id is of which text: the two networks compute the same numbers, but for the last bits.
    computed = model(TEXTS)["embedding"].numpy()
    text_of = {own: min(range(len(TEXTS)), key=lambda text: abs(computed[text] - row).max()) for own, row in read.items()}
    assert sorted(text_of.values()) == list(range(len(TEXTS)))
    assert all(numpy.allclose(computed[text], read[own], atol=1e-5) for own, text in text_of.items())

    by_python.mkdir()
    for mark in by_rust.iterdir():
        if mark.is_file():
            shutil.copy(mark, by_python)
    with opened(by_python, model, fingerprint) as cached:
        ids = list(text_of)
        filled = dict(zip(ids, cached([TEXTS[text_of[own]] for own in ids], ids=ids)["embedding"].numpy()))
        cached.flush()
        assert cached.stats()["rows_computed"] == len(TEXTS)
    assert epoch(by_python, documents) == [len(TEXTS), len(TEXTS), 0]
    assert same(filled, exported(by_python, tmp_path / "python-npy"))
