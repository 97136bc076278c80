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

    def __init__(self, writes_from, write=None):
        super().__init__()
        self.writes_from, self.write, self.seen = writes_from, write or (lambda x: x.mul_(2)), []

    def forward(self, x):
        self.seen.append(x.data_ptr())
        found = x * 2
        if len(self.seen) > self.writes_from:
            self.write(x)
        return found


def batch(number):
    return torch.randn(3, 2), [f"{number} {row}" for row in range(3)]


#: Those whose inputs are copied and compared; batch 0 is computed again in part, to be checked.
COPIED = {0, 1, 3, 7}


@pytest.mark.parametrize("writes_from", [0, 100])
def test_a_forward_that_writes_into_its_inputs_gets_copies_and_another_one_what_was_passed(writes_from):
    module = Seen(writes_from).eval()
    cached = tcx.cached(module, None, id="seen_v1")
    for number in range(9):
        x, ids = batch(number)
        before = x.clone()
        assert torch.equal(cached(x, ids=ids), before * 2) and torch.equal(x, before)
        assert (module.seen[-1] == x.data_ptr()) == (number not in COPIED and writes_from > 0)
        rows = cached(x, ids=ids)
        rows.zero_()
        assert torch.equal(x, before) and torch.equal(cached.fetch(ids), before * 2)


def test_a_forward_that_writes_later_changes_one_batch_of_the_caller_warns_and_gets_copies_from_then_on():
    # The first batch is three calls.
    module = Seen(4).eval()
    cached = tcx.cached(module, None, id="seen_v1")
    changed = []
    for number in range(7):
        x, ids = batch(number)
        before = x.clone()
        if number == 2:
            with pytest.warns(UserWarning, match="module `seen_v1`: `forward` wrote into an input for the first time, after 2 batches"):
                assert torch.equal(cached(x, ids=ids), before * 2)
        else:
            assert torch.equal(cached(x, ids=ids), before * 2)
        changed += [] if torch.equal(x, before) else [number]
    assert changed == [2]


def through_numpy(x):
    x.numpy()[...] *= 2


def through_data(x):
    x.data.mul_(2)


def through_dlpack(x):
    torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)).mul_(2)


@torch.inference_mode()
def in_inference(x):
    x.mul_(2)


UNCOUNTED = [through_numpy, through_data, through_dlpack, in_inference]


@pytest.mark.parametrize("write", UNCOUNTED)
@pytest.mark.parametrize("writes_from", [0, 3])
def test_writes_that_tensors_do_not_count_are_seen_by_their_bytes(write, writes_from):
    cached = tcx.cached(Seen(writes_from, write).eval(), None, id="seen_v1")
    for number in range(6):
        x, ids = batch(number)
        x[0, 0] = torch.nan
        before = x.clone()
        assert torch.equal(cached(x, ids=ids).nan_to_num(), (before * 2).nan_to_num())
        assert torch.equal(x.nan_to_num(), before.nan_to_num()), number


def test_uncounted_writes_that_begin_later_end_with_the_next_batch_that_is_compared():
    cached = tcx.cached(Seen(7, through_numpy).eval(), None, id="seen_v1")
    changed = []
    for number in range(12):
        x, ids = batch(number)
        before = x.clone()
        cached(x, ids=ids)
        changed += [] if torch.equal(x, before) else [number]
    assert changed == [5, 6]


class Doubled(torch.nn.Module):
    def forward(self, x):
        return (x * 2).reshape(len(x), -1)


#: Contiguous, with steps of their own where a dimension has one element.
STEPS = [
    lambda: torch.rand(4, 1, 8, 8).permute(0, 2, 3, 1),
    lambda: torch.rand(5, 4)[3:4, 2],
    lambda: torch.rand(4, 1).t(),
]


@pytest.mark.parametrize("make", STEPS)
def test_whole_batches_are_compared_whatever_the_steps_of_their_dimensions(make):
    cached = tcx.cached(Doubled().eval(), None, id="doubled_v1")
    for number in range(5):
        x = make()
        ids = [f"{number} {row}" for row in range(len(x))]
        assert torch.equal(cached(x, ids=ids), (x * 2).reshape(len(x), -1))


def test_arguments_that_share_their_memory_are_copied():
    class Adding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x, y):
            self.calls += 1
            if self.calls > 4:
                x.mul_(2)
            return x + y

    cached = tcx.cached(Adding().eval(), None, id="adding_v1")
    for number in range(6):
        x, ids = batch(number)
        found = cached(x, x, ids=ids)
        assert torch.equal(found, x + x) or torch.equal(found, x * 2 + x), number


def test_nothing_is_passed_on_without_a_copy_in_the_mode_of_inference():
    module = Seen(100).eval()
    cached = tcx.cached(module, None, id="seen_v1")
    for number in range(7):
        x, ids = batch(number)
        with torch.inference_mode(number > 3):
            cached(x, ids=ids)
        assert (module.seen[-1] == x.data_ptr()) == (number == 2)


class Failing(Seen):
    def forward(self, x):
        found = super().forward(x)
        if len(self.seen) == self.writes_from + 1:
            raise RuntimeError("later")
        return found


def test_a_forward_that_fails_after_it_has_written_gets_copies_from_then_on():
    cached = tcx.cached(Failing(4).eval(), None, id="seen_v1")
    for number in range(2):
        x, ids = batch(number)
        cached(x, ids=ids)
    x, ids = batch(2)
    with pytest.warns(UserWarning, match="wrote into an input"), pytest.raises(RuntimeError, match="later"):
        cached(x, ids=ids)
    x, ids = batch(3)
    before = x.clone()
    assert torch.equal(cached(x, ids=ids), before * 2) and torch.equal(x, before)
    x, ids = batch(4)
    before = x.clone()
    assert torch.equal(cached(x, ids=ids), before * 2) and torch.equal(x, before)


def test_parts_that_are_not_plain_are_copied():
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    passed = plan(tcx.Inputs(x, None, mask=y), 3).passed([0, 1, 2])
    assert passed is not None and passed.args[0] is x and passed.kwargs["mask"] is y
    for inputs, positions in [
        (tcx.Inputs(x), [0, 2, 1]),
        (tcx.Inputs(x), [0, 1]),
        (tcx.Inputs(torch.randn(4, 3).T), [0, 1, 2]),
        (tcx.Inputs(torch.randn(3, 4, dtype=torch.complex64).conj()), [0, 1, 2]),
        (tcx.Inputs(x.numpy()), [0, 1, 2]),
        (tcx.Inputs({"x": x}), [0, 1, 2]),
        (tcx.Inputs(x, ["a", "b", "c"]), [0, 1, 2]),
    ]:
        assert plan(inputs, 3).passed(positions) is None
