"""Filling a cache from several processes and machines: by leases of work ranges, or by rank."""
