"""Directories that come from somewhere else: nothing in them is run."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections import namedtuple

import pytest
import torch

import tcx_cache as tcx
from tcx_cache import _native
from tcx_cache.schema import classes
from tcx_cache.schema.tree import Schema

RAN: list[object] = []
Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Plain:
    x: object
    y: object = None


@dataclasses.dataclass
class Running:
    x: object

    def __post_init__(self):
        RAN.append(self.x)


@dataclasses.dataclass
class Derived(Running):
    y: object = None


class Initialised(Plain):
    def __init__(self, x, y):
        RAN.append(x)


@dataclasses.dataclass
class Property:
    x: object

    @property
    def x(self):
        return 0

    @x.setter
    def x(self, value):
        RAN.append(value)


class Named(Pair):
    def __new__(cls, left, right):
        RAN.append(left)
        return super().__new__(cls, left, right)


class Meta(type):
    def __call__(cls, *args, **kwargs):
        RAN.append(args)


@dataclasses.dataclass
class Made(metaclass=Meta):
    x: object


def folder(directory, structure, fields=("x",), kind="str"):
    """A folder as another program may have written it: its schema names a class."""
    columns = [(name, "text" if kind == "str" else "dense", None if kind == "str" else "f32", [] if kind == "str" else [2], False) for name in fields]
    pinned = '{"%s":[%s]}' % (structure, ",".join(f'["{name}","{kind}"]' for name in fields))
    spec = _native.Spec("t_v1", "str", columns, [("self", "table"), ("outputs", pinned)], [])
    store = _native.Store(str(directory), spec, {}, "read_write")
    keys = _native.Keys.text(["a"], 0)
    rows = store.lookup(keys, [])
    store.insert(rows, [0], [_native.Column.texts([f"touch {directory}/ran"]) for _ in fields])
    store.flush()
    store.close()


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("subprocess:Popen", ["args"]),
        ("os:system", ["command"]),
        ("pathlib:Path", ["x"]),
        ("tcx_not_loaded:Class", ["x"]),
        (f"{__name__}:Running", ["x"]),
        (f"{__name__}:Derived", ["x", "y"]),
        (f"{__name__}:Initialised", ["x", "y"]),
        (f"{__name__}:Property", ["x"]),
        (f"{__name__}:Named", ["left", "right"]),
        (f"{__name__}:Made", ["x"]),
        (f"{__name__}:Plain", ["x"]),
        (f"{__name__}:classes.used", ["cls"]),
        (f"{__name__}:Plain.__class__", ["x"]),
        (f"{__name__}:", ["x"]),
        (":", ["x"]),
    ],
)
def test_no_class_is_built_because_a_directory_names_it(directory, name, fields):
    RAN.clear()
    folder(directory, f"struct {name}", fields)
    with pytest.raises(tcx.MismatchError, match=r"a cache is no reason to run code: .*`outputs=tcx.struct\(…\)`"):
        tcx.Cache(directory).table("t_v1").get(["a"])
    assert not RAN and not (directory / "ran").exists()


def test_no_module_is_imported_because_a_directory_names_it(directory):
    folder(directory, "struct transformers.modeling_outputs:BaseModelOutput", ["last_hidden_state"])
    program = """
import sys, types, tcx_cache as tcx
class Lazy(types.ModuleType):
    def __getattr__(self, name):
        print("imported", name)
        raise AttributeError(name)
sys.modules["transformers.modeling_outputs"] = Lazy("transformers.modeling_outputs")
try:
    tcx.Cache(sys.argv[1]).table("t_v1")
except tcx.MismatchError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program, str(directory)], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["refused"], done.stderr


def test_a_loaded_class_that_only_sets_fields_is_built(directory):
    for name, fields, built in [("Plain", ["x", "y"], Plain), ("Pair", ["left", "right"], Pair)]:
        folder(directory / name, f"struct {__name__}:{name}", fields)
        assert type(tcx.Cache(directory / name).table("t_v1").get(["a"])) is built


def test_a_class_that_the_program_declares_or_returns_is_built(directory):
    folder(directory, f"struct {__name__}:Running", ["x"])
    try:
        declared = tcx.Cache(directory).table("t_v1", outputs=tcx.struct(Running, x=str))
        assert isinstance(declared.get(["a"]), Running)
        assert isinstance(tcx.Cache(directory).table("t_v1").get(["a"]), Running)
    finally:
        classes._USED.clear()
    try:
        tcx.Cache(None).table("o_v1").fetch(["a"], lambda missing: Running(torch.ones(1)))
        assert isinstance(tcx.Cache(directory).table("t_v1").get(["a"]), Running)
    finally:
        classes._USED.clear()


@pytest.mark.parametrize("text", ["", "{", "[]", "[1]", '{"dict":1}', '{"dict":[["a"]]}', '{"a":[],"b":[]}', '{"dict":[[1,"str"]]}', "[" * 100_000, '"f32[x]"', '"f99[2]"'])
def test_a_damaged_description_of_outputs_is_an_error_of_tcx(text):
    with pytest.raises((tcx.CorruptError, tcx.InvalidOutputError)):
        Schema.parse(text)


@pytest.mark.parametrize("names", [("a", "a.b"), ("a.b", "a"), ("a.b", "a.b.c")])
def test_columns_that_cannot_be_outputs_are_damage(names):
    from tcx_cache.schema.existing import from_leaves

    with pytest.raises(tcx.CorruptError, match="is a part of another one"):
        from_leaves([(name, "dense", "f32", [2], False) for name in names])
