"""Processes and their ends."""
