"""How the inputs of some samples are selected."""

from __future__ import annotations

import pytest
import torch

import tcx_cache as tcx
from tcx_cache.batch.split import plan


@pytest.mark.parametrize("positions", [[], [0, 1, 2, 3], [1, 2], [3], [2, 1], [0, 2], [0, 0]])
def test_the_inputs_of_a_batch_are_selected_into_memory_of_their_own(positions):
    images = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    (chosen,) = plan(tcx.Inputs(images), 4).select(positions).args
    assert torch.equal(chosen, images[positions]) and chosen.is_contiguous()
    assert not positions or chosen.untyped_storage().data_ptr() != images.untyped_storage().data_ptr()


class Seen(torch.nn.Module):
    """Keeps the memory of its inputs, and writes into them from some call on."""

    def __init__(self, writes_from):
        super().__init__()
        self.writes_from, self.seen = writes_from, []

    def forward(self, x):
        self.seen.append(x.data_ptr())
        return x.relu_() if len(self.seen) > self.writes_from else x.relu()


@pytest.mark.parametrize("writes_from", [0, 100])
def test_a_forward_that_writes_into_its_inputs_gets_copies_and_another_one_what_was_passed(writes_from):
    module = Seen(writes_from).eval()
    cached = tcx.cached(module, None, id="seen_v1")
    for number in range(4):
        x = torch.randn(3, 2)
        before = x.clone()
        ids = [f"{number} {row}" for row in range(3)]
        assert torch.equal(cached(x, ids=ids), before.relu()) and torch.equal(x, before)
        # The first batch is computed again in part, to be checked.
        assert (module.seen[-1] == x.data_ptr()) == (number > 0 and writes_from > 0)
        rows = cached(x, ids=ids)
        rows.zero_()
        assert torch.equal(x, before) and torch.equal(cached.fetch(ids), before.relu())


def test_a_forward_that_writes_later_gets_copies_from_then_on():
    module = Seen(4).eval()
    cached = tcx.cached(module, None, id="seen_v1")
    for number in range(6):
        x = torch.randn(3, 2)
        before = x.clone()
        assert torch.equal(cached(x, ids=[f"{number} {row}" for row in range(3)]), before.relu())
    assert torch.equal(x, before) and module.seen[-1] != x.data_ptr()


def test_parts_that_are_not_plain_are_copied():
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    passed = plan(tcx.Inputs(x, None, mask=y), 3).passed([0, 1, 2])
    assert passed is not None and passed.args[0] is x and passed.kwargs["mask"] is y
    for inputs, positions in [
        (tcx.Inputs(x), [0, 2, 1]),
        (tcx.Inputs(x), [0, 1]),
        (tcx.Inputs(torch.randn(4, 3).T), [0, 1, 2]),
        (tcx.Inputs(x.numpy()), [0, 1, 2]),
        (tcx.Inputs({"x": x}), [0, 1, 2]),
        (tcx.Inputs(x, ["a", "b", "c"]), [0, 1, 2]),
    ]:
        assert plan(inputs, 3).passed(positions) is None
