"""Functions that `torch.compile` calls as they are."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(function: Function) -> Function:
    """As ``torch.compiler.disable``, which imports the compiler at once, and adds calls to every call.

    What a lookup does depends on the ids and on the disk, so that it would be compiled again for each batch.
    """
    if _skip(function):
        return function
    # An old torch, or none that is imported yet.
    found: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal found
        if found is None:
            # While the compiler is imported, it has none.
            disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
            if disable is None:
                return function(*args, **kwargs)
            found = function if _skip(function) and _skip(call) else cast("Callable[..., Any]", disable(function))
        return found(*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return cast(Function, call)


def _skip(function: Any) -> bool:
    """Has the compiler leave out a function, and what it calls. Returns whether it does."""
    torch: Any = sys.modules.get("torch")
    try:
        frames = torch._C._dynamo.eval_frame
        skipped = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        frames.set_code_exec_strategy(function.__code__, skipped)
    except AttributeError:
        return False
    # The compiler looks for it before it traces from one function into another.
    function._torchdynamo_disable = True
    return True
