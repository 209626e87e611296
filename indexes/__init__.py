"""What the database must look like, declared as data, and the means to make and keep it so.

`declared` has the indexes, `validators` the shape of each collection's documents, and
`access_patterns` the questions asked of them. `python -m indexes plan|apply|verify` compares the
three with a live database.
"""

from indexes.building import apply, missing

__all__ = ["apply", "missing"]
