"""The HTTP edge: the only part that knows of routes, statuses and tokens. No rule lives here."""
