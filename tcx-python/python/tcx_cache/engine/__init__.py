"""The engine: rows of tables, for values that Python has."""
