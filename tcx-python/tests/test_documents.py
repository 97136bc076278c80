"""What the documents show runs: the `python` blocks of docs/python.md, README.md and tcx-python/README.md, each document as one program."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["docs/python.md", "README.md", "tcx-python/README.md"]


class Captioner(torch.nn.Module):
    def forward(self, x):
        rows = x[:, :4]
        return {
            "pooled": rows,
            "tokens": [row.reshape(2, 2)[: 1 + number % 1].half() for number, row in enumerate(rows)],
            "caption": [None] * len(x),
            "small": rows,
        }


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_blocks_of_a_document_run(document, directory):
    text = (ROOT / document).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    images = torch.randn(3, 8)
    names = {
        "torch": torch,
        "directory": str(directory),
        "model": frozen(torch.nn.Linear(8, 4)),
        "head": frozen(torch.nn.Linear(4, 2)),
        "captioner": Captioner().eval(),
        "images": images,
        "ids": ["a", "b", "c"],
        "loader": [(["a", "b", "c"], images)],
        "all_ids": [f"image {number}" for number in range(20)],
        "labels": list(range(20)),
        "load_image": lambda id: torch.full((8,), float(len(id))),
    }
    for block in blocks:
        # In README.md the cache is beside the program.
        program = block.replace('"./cache"', "directory")
        exec(compile(program, document, "exec"), names)


def modules():
    yield "tcx_cache"
    for found in pkgutil.walk_packages(tcx.__path__, "tcx_cache."):
        yield found.name


@pytest.mark.parametrize("name", list(modules()))
def test_the_examples_of_the_documentation_run(name):
    if name == "tcx_cache._native":
        return
    results = doctest.testmod(importlib.import_module(name))
    assert not results.failed


def test_every_public_name_is_documented():
    for name in tcx.__all__:
        value = getattr(tcx, name)
        if isinstance(value, type) or callable(value):
            assert value.__doc__, name
            for method, found in vars(value).items() if isinstance(value, type) else ():
                if callable(found) and not method.startswith("_"):
                    assert found.__doc__, f"{name}.{method}"
