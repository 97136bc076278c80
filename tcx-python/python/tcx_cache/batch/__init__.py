"""Inputs of a batch: which samples they have, and how to select some."""
