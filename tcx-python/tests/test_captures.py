"""The threads of tcx beside one of the program that captures CUDA graphs; a fake stands for the library of CUDA."""

from __future__ import annotations

import ctypes
import threading

import pytest
import torch
from conftest import frozen

import tcx_cache as tcx
from tcx_cache.identity import watch, watched
from tcx_cache.tensors import captures


class Library:
    """The mode of each thread, as CUDA keeps it: 0 is `global`, and 2 is `relaxed`."""

    def __init__(self):
        self.modes = {}

    def __call__(self, mode):
        own = ctypes.cast(mode, ctypes.POINTER(ctypes.c_int))
        thread = threading.get_ident()
        before, self.modes[thread] = self.modes.get(thread, 0), own[0]
        own[0] = before
        return 0

    @property
    def mode(self):
        """That of this thread."""
        return self.modes.get(threading.get_ident(), 0)


@pytest.fixture
def library(monkeypatch):
    library = Library()
    monkeypatch.setattr(captures, "uses_cuda", lambda: True)
    monkeypatch.setattr(captures, "_exchange", lambda: library)
    return library


def test_a_thread_has_its_mode_again_afterwards(library):
    with captures.beside_captures():
        with captures.beside_captures():
            assert library.mode == 2
        assert library.mode == 2
    assert library.mode == 0
    with pytest.raises(KeyError), captures.beside_captures():
        raise KeyError
    assert library.mode == 0


def test_the_writer_reads_weights_beside_captures(directory, linear, library, monkeypatch):
    modes, is_written = [], watched.Weight.is_written
    monkeypatch.setattr(watched.Weight, "is_written", lambda own: modes.append((threading.current_thread(), library.mode)) or is_written(own))
    with tcx.cached(linear, directory, id="m_v1") as cached:
        cached(torch.ones(2, 4), ids=["a", "b"])
    assert modes and all(mode == 2 for thread, mode in modes if thread is not threading.main_thread())
    assert any(thread is not threading.main_thread() for thread, _ in modes)
    assert set(library.modes.values()) == {0}


def test_the_thread_of_an_epoch_reads_beside_captures(directory, linear, library):
    modes = []

    def load(ids):
        modes.append(library.mode)
        return torch.ones(len(ids), 4)

    with tcx.cached(linear, directory, id="m_v1") as cached:
        assert len(list(tcx.torch.epoch(cached, range(8), 4, load=load))) == 2
        assert modes == [2, 2]
        list(tcx.torch.epoch(cached, range(8, 16), 4, load=load, prefetch=0))
        assert modes == [2, 2, 0, 0]


def test_the_library_is_one_that_this_process_has_loaded():
    exchange = captures._exchange()
    if exchange is not None:
        # Without a GPU it returns an error, and the mode stays.
        mode = ctypes.c_int(2)
        if exchange(ctypes.byref(mode)) == 0:
            exchange(ctypes.byref(mode))
    with captures.beside_captures():
        pass


@pytest.mark.parametrize("failures", [1, 3, 4])
def test_weights_that_could_not_be_read_are_read_again(directory, linear, monkeypatch, failures):
    """As while the program captures a graph: a no would be final."""
    left, is_written = [failures], watched.Weight.is_written

    def fails(own):
        if left[0] and threading.current_thread() is not threading.main_thread():
            left[0] -= 1
            raise RuntimeError("operation not permitted when stream is capturing")
        return is_written(own)

    monkeypatch.setattr(watch, "_PAUSES", (0.01, 0.01, 0.01))
    monkeypatch.setattr(watched.Weight, "is_written", fails)
    cached = tcx.cached(linear, directory, id="m_v1")
    cached(torch.ones(2, 4), ids=["a", "b"])
    if failures > 3:
        with pytest.raises(tcx.ModuleViolationError, match="the check that the weights are unchanged failed: .*not permitted"):
            cached.flush()
        return
    cached.close()
    with tcx.cached(frozen(linear), directory, id="m_v1") as cached:
        assert cached.coverage(["a", "b"]).is_complete
