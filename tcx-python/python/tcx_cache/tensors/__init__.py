"""Tensors and arrays as memory."""
