"""Rows are shared with programs in Rust: the cache of the example `minilm`, with the same weights and configuration."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import struct
from pathlib import Path

import numpy
import pytest
import torch

import tcx_cache as tcx

pa = pytest.importorskip("pyarrow")

ROOT = Path(__file__).parents[2]
MODEL = Path(os.environ.get("TCX_MODEL") or ROOT / "target/models/all-MiniLM-L6-v2") / "model.safetensors"
ROWS = ROOT / "target/xtask/minilm-cache/rows"
MODULE = "all_minilm_l6_v2_v1"

pytestmark = pytest.mark.skipif(not MODEL.is_file(), reason="the model is not here: run `cargo xtask setup --model`")


@dataclasses.dataclass
class Config:
    hidden_size: int = 384
    num_hidden_layers: int = 6
    num_attention_heads: int = 12
    intermediate_size: int = 1536
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    vocab_size: int = 30522
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    position_embedding_type: str = "absolute"


@dataclasses.dataclass
class Pieces:
    tokenizer: object
    fingerprint: str
    max_tokens: int


def weights():
    """The weights that the network in Rust uses, under their names in the file."""
    data = MODEL.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    found = {}
    for name, own in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__" and "pooler" not in name and "position_ids" not in name:
            start, end = own["data_offsets"]
            values = numpy.frombuffer(data, numpy.float32, (end - start) // 4, 8 + length + start)
            found[name] = torch.from_numpy(values.copy()).reshape(own["shape"])
    return found


class Network(torch.nn.Module):
    """A network with these weights; these tests compute no rows of the cache in Rust."""

    def __init__(self):
        super().__init__()
        for name, value in weights().items():
            *path, last = name.split(".")
            part = self
            for own in path:
                if own not in part._modules:
                    part.add_module(own, torch.nn.Module())
                part = part._modules[own]
            part.register_parameter(last, torch.nn.Parameter(value, requires_grad=False))

    def forward(self, tokens):
        return {"embedding": self.embeddings.word_embeddings.weight[tokens]}


def test_the_weights_have_the_fingerprint_that_rust_prints():
    expected = "blake3:1ddc013f95facc3deb0cd6c4bf0023f115b2a1f7e07f5cf01cb075cb8cbf0bd0"
    assert tcx.fingerprint(weights()) == tcx.fingerprint(Network().state_dict()) == expected


@pytest.mark.skipif(not (ROWS / MODULE).is_dir(), reason="the tests in Rust have left no cache")
def test_rows_that_rust_has_computed_are_found_bit_for_bit(directory):
    from tcx_cache import _native

    shutil.copytree(ROWS, directory)
    stored = dict(_native.Spec.read(str(directory / MODULE)).identity)
    pieces = Pieces(tcx.ASSUMED_STATELESS, stored["pieces.fingerprint"].strip('"'), 256)
    fields = {"bert": tcx.WEIGHTS, "config": Config(), "pieces": pieces}
    outputs = {"embedding": tcx.f32[384]}
    with tcx.cached(Network().eval(), directory, MODULE, outputs=outputs, ids=str, type_name="MiniLm", fields=fields) as cached:
        ids = cached.stored_ids()
        rows = dict(zip(ids, cached.fetch(ids)["embedding"].numpy()))
        assert rows and cached.stats()["misses"] == 0
        found = cached(torch.tensor([5]), ids=["of Python"])["embedding"]
        assert torch.equal(found, Network()(torch.tensor([5]))["embedding"])
    seen = 0
    for segment in (directory / MODULE).glob("seg-*.arrow"):
        table = pa.ipc.open_file(pa.memory_map(str(segment))).read_all()
        key = next(name for name in table.column_names if pa.types.is_string(table.column(name).type) or pa.types.is_large_string(table.column(name).type))
        values = table.column("embedding").combine_chunks().to_numpy_ndarray()
        for own, value in zip(table.column(key).to_pylist(), values):
            if own in rows:
                assert rows[own].tobytes() == value.tobytes()
                seen += 1
    assert seen >= len(rows)
