"""Logs a module of a cache as an artifact of an MLflow run, and restores it into another cache.

Run: python examples/recipes/mlflow_artifact.py CACHE MODULE RESTORED
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import mlflow


def tcx(*arguments):
    """What a command of tcx answers. Any exit code but 0, such as for rows that do not verify, is an error."""
    output = subprocess.run(["tcx", *arguments, "--json"], check=True, stdout=subprocess.PIPE)
    return json.loads(output.stdout)


def log_module(cache, module):
    """Packs a module and logs the file to the active run. The same rows have the same digest."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, f"{module}.tcxpack"))
        packed = tcx("pack", cache, module, "--to", file)
        mlflow.log_artifact(file, "features")
    mlflow.set_tags({"tcx.module": module, "tcx.rows": packed["rows"], "tcx.digest": packed["digest"]})


def restore_module(run_id, module, cache):
    """Adds the rows that a run logged to a cache, which is created if it does not exist."""
    with tempfile.TemporaryDirectory() as folder:
        artifact = f"features/{module}.tcxpack"
        file = mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path=artifact, dst_path=folder)
        return tcx("unpack", cache, file, "--create")


if __name__ == "__main__":
    cache, module, restored = sys.argv[1:]
    with mlflow.start_run() as run:
        log_module(cache, module)
    added = restore_module(run.info.run_id, module, restored)
    tcx("diff", cache, restored, module)  # fails if a row differs
    digest = mlflow.get_run(run.info.run_id).data.tags["tcx.digest"]
    print(f"run {run.info.run_id}: {added['added']} rows restored, {digest}")
