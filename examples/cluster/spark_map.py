"""The tasks of a Spark job compute features with a cache: `mapInArrow` gives each task batches of ids, and gets batches of features.

Run: `spark-submit examples/cluster/spark_map.py CACHE`. CACHE is a directory that all executors see, or the URL of an object store.
Look at: Spark divides the samples and starts a lost task again, so the tasks call `fetch`. They flush after each batch: a task
that is lost after that finds its rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pyarrow
import torch
from pyspark.sql import SparkSession

import tcx_cache as tcx


def network() -> torch.nn.Module:
    """Stands in for a large one. It is the same in every task."""
    torch.manual_seed(0)
    return torch.nn.Linear(16, 8).eval().requires_grad_(False)


def load(ids: list[int]) -> torch.Tensor:
    """Stands in for decoding files."""
    return torch.tensor(ids, dtype=torch.float32)[:, None].sin().expand(-1, 16)


def encoder(cache: str):
    """A function for `mapInArrow`. It gets the path of the cache, and opens it in the task."""

    def encode(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        with tcx.cached(network(), cache, id="encoder_v1", outputs=tcx.f32[8]) as cached:
            for batch in batches:
                before = cached.stats()["rows_computed"]
                ids = batch.column("id").to_pylist()
                features = cached.fetch(ids, load)
                cached.flush()
                computed = cached.stats()["rows_computed"] - before
                yield pyarrow.RecordBatch.from_pydict(
                    {"id": ids, "features": features.tolist(), "computed": [computed] + [0] * (len(ids) - 1)},
                    schema=pyarrow.schema([("id", pyarrow.int64()), ("features", pyarrow.list_(pyarrow.float32())), ("computed", pyarrow.int64())]),
                )

    return encode


def run(spark: SparkSession, cache: str, samples: int) -> int:
    """How many samples were computed."""
    encoded = spark.range(samples, numPartitions=4).mapInArrow(encoder(cache), "id long, features array<float>, computed long")
    return int(encoded.groupBy().sum("computed").collect()[0][0])


def main() -> None:
    """Encodes a data set twice."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", help="a directory that all executors see, or the URL of an object store")
    parser.add_argument("--samples", type=int, default=2000)
    options = parser.parse_args()
    spark = SparkSession.builder.appName("features").getOrCreate()
    for number in ("first", "second"):
        print(f"the {number} run computed {run(spark, options.cache, options.samples)} of {options.samples} samples", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
