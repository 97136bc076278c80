"""What a user opens: caches, tables, cached modules."""
