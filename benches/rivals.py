"""Reads shuffled batches of rows by id from stores of Python, and prints the seconds of each as JSON; for a store
that is not installed, why it was skipped.

    python3 rivals.py DIR ROWS WIDTH BATCH
"""

import json
import pathlib
import statistics
import sys
import time

folder, rows, width, batch = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:])
ROUNDS = 3


def measured(read, order):
    """The median of the rounds; `read` returns the rows of a batch of numbers as an array."""
    times = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        for first in range(0, len(order), batch):
            numbers = order[first : first + batch]
            found = read(numbers)
            assert int(found[len(numbers) - 1][0]) == numbers[-1], "the right row"
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def stores(numpy):
    raw = numpy.memmap(folder / "raw", dtype=numpy.float32, mode="r", shape=(rows, width))
    ids = [f"sample_{row}" for row in range(rows)]

    def memmap_dict():
        places = {name: row for row, name in enumerate(ids)}
        return lambda numbers: raw[[places[ids[number]] for number in numbers]]

    def safetensors():
        from safetensors import safe_open
        from safetensors.numpy import save_file

        save_file({"rows": numpy.asarray(raw)}, folder / "rows.safetensors")
        places = {name: row for row, name in enumerate(ids)}
        part = safe_open(folder / "rows.safetensors", framework="numpy").get_slice("rows")
        return lambda numbers: [part[places[ids[number]]] for number in numbers]

    def arrow_table():
        import pyarrow

        values = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(numpy.asarray(raw).reshape(-1)), width)
        return pyarrow.table({"id": ids, "values": values})

    def lance():
        import lance

        dataset = lance.write_dataset(arrow_table(), str(folder / "lance"), mode="overwrite")
        places = {name: row for row, name in enumerate(ids)}

        def read(numbers):
            found = dataset.take([places[ids[number]] for number in numbers], columns=["values"])
            return found["values"].combine_chunks().flatten().to_numpy().reshape(-1, width)

        return read

    def datasets():
        from datasets import Dataset

        Dataset(arrow_table()).save_to_disk(str(folder / "datasets"))
        dataset = Dataset.load_from_disk(str(folder / "datasets")).select_columns(["values"]).with_format("numpy")
        places = {name: row for row, name in enumerate(ids)}
        return lambda numbers: dataset[[places[ids[number]] for number in numbers]]["values"]

    return {
        "numpy_memmap_dict": memmap_dict,
        "safetensors": safetensors,
        "lance": lance,
        "datasets": datasets,
    }


def main():
    found = {}
    try:
        import numpy
    except ImportError as error:
        names = ["numpy_memmap_dict", "safetensors", "lance", "datasets"]
        return dict.fromkeys(names, str(error))
    order = numpy.fromfile(folder / "order", dtype="<u8").astype(int).tolist()
    for name, make in stores(numpy).items():
        # The slow ones read a part, and the time is that of all.
        part = order if name == "numpy_memmap_dict" else order[: max(batch, len(order) // 20)]
        try:
            found[name] = measured(make(), part) * len(order) / len(part)
        except ImportError as error:
            found[name] = str(error)
    return found


print(json.dumps(main()))
