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
