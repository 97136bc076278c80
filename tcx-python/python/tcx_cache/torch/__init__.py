"""Rows as a dataset of PyTorch, and epochs that are read ahead."""

from __future__ import annotations

from .dataset import FeatureDataset
from .epoch import epoch

__all__ = ["FeatureDataset", "epoch"]
