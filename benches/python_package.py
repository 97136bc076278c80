"""Measures the Python package beside other packages, in one process and in turns, and prints figures as JSON: ratios by name, the
seconds of a round of `fetch`, and why a package was skipped.

    python3 python_package.py DIR ROWS WIDTH BATCH

DIR has the plain file `raw` of all rows, and their shuffled order in the file `order`.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

ROUNDS = 5
#: The slow packages read this share of the rows.
SHARE = 20


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(works, rounds=ROUNDS):
    """The median seconds of each, which take turns round by round; the first round is not counted."""
    times = [[timed(work) for work in works] for _ in range(rounds + 1)][1:]
    return [statistics.median(own) for own in zip(*times)]


class Same:
    """Builds the module that returns its inputs, so that only the cache is measured."""

    def __new__(cls):
        import torch

        class Identity(torch.nn.Module):
            def forward(self, rows):
                return rows

        return Identity().eval()


def reads(folder, rows, width, batch, found):
    import numpy
    import torch

    import tcx_cache as tcx

    raw = torch.from_numpy(numpy.fromfile(folder / "raw", dtype=numpy.float32).reshape(rows, width))
    order = numpy.fromfile(folder / "order", dtype="<u8").astype(int).tolist()
    batches = [order[at : at + batch] for at in range(0, len(order), batch)]
    some = batches[: max(1, len(batches) // SHARE)]

    cached = tcx.cached(Same(), folder / "package", id="same_v1", outputs=tcx.f32[width])
    cached.warm([f"sample_{row}" for row in range(rows)], lambda ids: raw[[int(own[7:]) for own in ids]], batch_size=4096, progress=False)
    cached.flush()
    ids = [[f"sample_{row}" for row in numbers] for numbers in batches]

    def fetch(number):
        # A caller drops a batch before it reads the next one.
        part = cached.fetch(ids[number])
        assert int(part[-1, 0]) == batches[number][-1], "the right row"

    def all_of(read, count):
        return lambda: [read(number) for number in range(count)]

    found["seconds"] = in_turns([all_of(fetch, len(batches))])[0]
    for name, make in RIVALS.items():
        try:
            read = make(folder, raw, some)
        except ImportError as error:
            found["skipped"][name] = str(error)
            continue
        theirs, ours = in_turns([all_of(read, len(some)), all_of(fetch, len(some))], 3)
        found["figures"][f"fetch.vs_{name}"] = theirs / ours
    workers(cached, folder, raw, batch, found)
    cached.close()


def datasets(folder, raw, batches):
    import pyarrow
    from datasets import Dataset

    values = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(raw.numpy().reshape(-1)), raw.shape[1])
    Dataset(pyarrow.table({"values": values})).save_to_disk(str(folder / "package_datasets"))
    dataset = Dataset.load_from_disk(str(folder / "package_datasets")).with_format("torch")
    return lambda number: check(dataset[batches[number]]["values"], batches[number])


def safetensors(folder, raw, batches):
    """A file for each sample."""
    import torch
    from safetensors.torch import load_file, save_file

    place = folder / "package_safetensors"
    place.mkdir()
    for row in {row for numbers in batches for row in numbers}:
        save_file({"row": raw[row].clone()}, place / f"{row}.safetensors")
    return lambda number: check(torch.stack([load_file(place / f"{row}.safetensors")["row"] for row in batches[number]]), batches[number])


def torchcache(folder, raw, batches):
    """Rows in its files, and its memory filled by the first round; the inputs of a sample are 16 numbers."""
    import logging

    import torch
    from torchcache import torchcache as decorated

    logging.disable(logging.WARNING)
    place = folder / "package_torchcache"
    place.mkdir()
    inputs = [torch.tensor(numbers, dtype=torch.float32).unsqueeze(1) + torch.arange(16) / 32 for numbers in batches]

    @decorated(persistent=True, persistent_cache_dir=str(place), max_persistent_cache_size=int(1e11), max_memory_cache_size=int(1e11))
    class Rows(torch.nn.Module):
        def forward(self, numbers):
            return raw[numbers[:, 0].long()]

    model = Rows().eval()
    with torch.no_grad():
        for own in inputs:
            model(own)
    return lambda number: check(model(inputs[number]), batches[number])


def torch_module_cache(folder, raw, batches):
    import torch
    from torch_module_cache import cache_module

    @cache_module(cache_path=str(folder / "package_module_cache"), cache_name="rows")
    class Rows(torch.nn.Module):
        def forward(self, numbers):
            return raw[numbers]

    model = Rows()
    keys = [[str(row) for row in numbers] for numbers in batches]
    inputs = [torch.tensor(numbers) for numbers in batches]
    for own, key in zip(inputs, keys):
        model(own, cache_key=key)
    return lambda number: check(model(inputs[number], cache_key=keys[number]), batches[number])


def check(rows, numbers):
    assert int(rows[-1][0]) == numbers[-1], "the right row"


RIVALS = {"datasets": datasets, "safetensors": safetensors, "torchcache": torchcache, "torch_module_cache": torch_module_cache}


def workers(cached, folder, raw, batch, found):
    """An epoch by one forked worker of a `DataLoader`, and by two, beside the same with rows of a plain array, mapped into memory: the limit
    is what it takes to start workers and to send tensors."""
    import numpy
    import torch
    from torch.utils.data import DataLoader, Dataset

    from tcx_cache.torch import FeatureDataset

    rows = min(len(raw), 20_000)
    numpy.save(folder / "package_mapped.npy", raw[:rows].numpy())

    class Mapped(Dataset):
        values = numpy.load(folder / "package_mapped.npy", mmap_mode="r")

        def __len__(self):
            return rows

        def __getitems__(self, numbers):
            return torch.from_numpy(self.values[numbers])

    ours = FeatureDataset(cached, [f"sample_{row}" for row in range(rows)])

    def epoch(dataset, count, collate=None):
        return lambda: all(
            True
            for _ in DataLoader(dataset, batch_size=batch, shuffle=True, num_workers=count, collate_fn=collate, multiprocessing_context="fork")
        )

    one, two, mapped_one, mapped_two = in_turns(
        [epoch(ours, 1), epoch(ours, 2), epoch(Mapped(), 1, batch_of), epoch(Mapped(), 2, batch_of)], 5
    )
    found["figures"]["loader.two_workers.vs_one"] = one / two
    found["figures"]["loader.two_workers.of_mapped.vs_one"] = mapped_one / mapped_two
    found["figures"]["loader.one_worker.vs_mapped"] = mapped_one / one
    found["figures"]["loader.two_workers.vs_mapped"] = mapped_two / two


def batch_of(batch):
    return batch


def epochs(folder, found):
    """Epochs of a network that takes 5 ms for a batch of 64: without a cache, filling one, and from the cache."""
    import torch

    import tcx_cache as tcx

    size, batch, count = 1024, 64, 100
    torch.manual_seed(1)
    hidden = [layer for _ in range(200) for layer in (torch.nn.Linear(size, size), torch.nn.ReLU())]
    depth = next(depth for depth in range(0, 400, 2) if milliseconds(torch.nn.Sequential(*hidden[:depth], torch.nn.Linear(size, 2048))) >= 5)
    network = torch.nn.Sequential(*hidden[:depth], torch.nn.Linear(size, 2048)).eval().requires_grad_(False)
    inputs = [torch.full((batch, size), 1 + number / 1000) for number in range(count)]
    ids = [[f"sample_{number * batch + row}" for row in range(batch)] for number in range(count)]
    plain, first, second = [], [], []
    for _ in range(ROUNDS):
        touch_memory()
        plain.append(timed(lambda: all(network(own) is not None for own in inputs)))
        touch_memory()
        with tempfile.TemporaryDirectory(dir=folder) as place, tcx.cached(network, place, id="network_v1") as cached:
            # Weights are hashed and the batch is checked once in a cache, not in an epoch.
            def epoch(cached=cached):
                for own, names in zip(inputs, ids):
                    cached(own, ids=names)

            first.append(timed(epoch))
            cached.flush()
            second.append(timed(epoch))
    found["figures"]["first_epoch_overhead"] = statistics.median(first) / statistics.median(plain)
    found["figures"]["second_epoch_speedup"] = statistics.median(plain) / statistics.median(second)


def touch_memory():
    """The system gives memory back to this process faster if it has had it before: more than an epoch needs."""
    import torch

    torch.ones(1 << 30, dtype=torch.uint8)


def milliseconds(network):
    import torch

    with torch.no_grad():
        inputs = torch.ones(64, 1024)
        return statistics.median(timed(lambda: network(inputs)) for _ in range(9)) * 1000


def main():
    os.environ["HF_HUB_OFFLINE"] = "1"
    found = {"figures": {}, "seconds": None, "skipped": {}, "load": os.getloadavg()[0]}
    folder, (rows, width, batch) = pathlib.Path(sys.argv[1]), map(int, sys.argv[2:])
    try:
        import torch

        import tcx_cache  # noqa: F401
    except ImportError as error:
        found["skipped"]["the package"] = str(error)
        return found
    torch.set_num_threads(1)
    reads(folder, rows, width, batch, found)
    epochs(folder, found)
    return found


# What other packages print is no part of the report.
report, sys.stdout = sys.stdout, sys.stderr
result = main()
print(json.dumps(result), file=report)
