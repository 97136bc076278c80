"""A sample of the weights on GPUs. It is gathered there: to read all of them after each batch would take longer than to compute one."""

from __future__ import annotations

from typing import Any

from ..tensors.captures import beside_captures
from ..tensors.streams import is_capturing

#: Elements that are read after each computed batch, over all weights.
_ELEMENTS = 1 << 14
#: Those of each weight at least, where it has as many.
_LEAST = 16


def is_on_gpu(tensor: Any) -> bool:
    """Whether a weight is on a GPU."""
    return bool(tensor.is_cuda)


class Sample:
    """The values that some elements of the weights have when it is made, for weights of any type, by their bits."""

    def __init__(self, weights: list[Any]) -> None:
        count = max(_ELEMENTS // max(len(weights), 1), _LEAST)
        groups: dict[tuple[Any, Any], list[Any]] = {}
        for own in weights:
            elements = _spread(own, count)
            if elements is not None:
                groups.setdefault((own.device, elements.dtype), []).append(elements)
        # Views of one type on one device are gathered by few kernels, however many they are.
        self._groups = list(groups.values())
        self._found = self._read()

    def is_other(self) -> bool:
        """Whether some of them have other values now, for what is queued on the current stream. While this thread captures a graph, none can
        be read."""
        import torch

        if not self._groups or is_capturing():
            return False
        return not all(map(torch.equal, self._read(), self._found))

    def _read(self) -> list[Any]:
        import torch

        with beside_captures():
            return [torch.cat(own).cpu() for own in self._groups]


def in_order(tensor: Any) -> Any:
    """A view with the dimensions in the order of memory, such as those of `channels_last`; ``None`` of a tensor with gaps in its memory."""
    ordered = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
    return ordered if ordered.is_contiguous() else None


def _spread(tensor: Any, count: int) -> Any:
    """About this many elements as integers, at equal distances in memory, as a view; ``None`` of a weight with gaps in its memory, or whose
    values are not its bits."""
    import torch

    ordered = in_order(tensor)
    if ordered is None or tensor.numel() == 0 or tensor.is_conj() or tensor.is_neg():
        return None
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    elements = ordered.view(-1).view(integers.get(tensor.element_size(), torch.int64))
    # An odd distance: one that divides the length of rows would read a few columns only.
    return elements[:: max(len(elements) // count, 1) | 1]
