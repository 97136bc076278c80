"""What a new user does wrong is said at once, with what to do."""

from __future__ import annotations

import sys

import pytest
import torch

import tcx_cache as tcx

IMAGES = torch.ones(3, 4)


@pytest.mark.parametrize(
    ("kind", "message", "call"),
    [
        (tcx.InvalidIdError, 'module id "a/b" cannot name a folder', lambda own, to: tcx.cached(own, to, id="a/b")),
        (tcx.InvalidIdError, "the id of a module is 3: expected a string", lambda own, to: tcx.Cache(to).table(3)),
        (tcx.InvalidPathError, "expected the path of a directory or a URL, found Linear", lambda own, to: tcx.cached(str(to), own, id="m_v1")),
        (tcx.InvalidSettingsError, "there is no setting `output`: did you mean `outputs`?", lambda own, to: tcx.cached(own, to, id="m_v1", output=tcx.f32[2])),
        (tcx.InvalidSettingsError, "there is no setting `max_byte`: did you mean `max_bytes`?", lambda own, to: tcx.Cache(to, max_byte=1)),
        (tcx.InvalidSettingsError, "there is no setting `colour`: expected one of", lambda own, to: tcx.Cache(to, colour="red")),
        (tcx.InvalidSettingsError, "setting `max_bytes`: found '10GB', expected a number of bytes", lambda own, to: tcx.Cache(to, max_bytes="10GB")),
        (tcx.InvalidBatchError, r"as in `image\[None\]`", lambda own, to: tcx.cached(own, to, id="m_v1")(torch.ones(4), ids=["a"])),
        (
            tcx.InvalidBatchError,
            "module `m_v1`: what `load` returned for 2 samples: argument 0: expected one row for each of 2 ids, found 3",
            lambda own, to: tcx.cached(own, to, id="m_v1").fetch(["a", "b"], lambda missing: IMAGES),
        ),
        (
            tcx.InvalidBatchError,
            "what `load` returned for 1 samples: there is no input that has samples",
            lambda own, to: tcx.cached(own, to, id="m_v1").fetch(["a"], lambda missing: None),
        ),
    ],
)
def test_a_mistake_is_named(directory, linear, kind, message, call):
    with pytest.raises(kind, match=message):
        call(linear, directory)
    assert not directory.exists()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes since Python 3.11")
def test_a_loader_that_returns_a_list_of_tensors_is_pointed_to_stack(directory, linear):
    with pytest.raises(TypeError) as error:
        tcx.cached(linear, directory, id="m_v1").fetch(["a", "b"], lambda missing: [IMAGES[0] for _ in missing])
    assert any("return `torch.stack(…)`" in note for note in error.value.__notes__)


def test_advice_is_given_in_python(directory, linear):
    tcx.cached(linear, directory, id="m_v1")(IMAGES, ids=[1, 2, 3])
    with tcx.cached(linear, directory, id="n_v1", ids=int) as cached:
        cached(IMAGES, ids=[1, 2, 3])
    with pytest.raises(tcx.MismatchError, match='or pass `on_mismatch="separate"` to keep a cache for each identity'):
        tcx.cached(linear, directory, id="n_v1", config={"size": 1})
