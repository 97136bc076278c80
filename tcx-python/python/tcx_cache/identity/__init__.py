"""The identity of a module: everything that decides its outputs."""
