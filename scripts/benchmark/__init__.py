"""`scripts/bench`: a flash sale against the whole service, measured beside the driver's own limits.

`stage` starts what is measured, `load` is the process that makes the load, `scenarios` say what is
done and what must be reached, `report` says what came of it.
"""
