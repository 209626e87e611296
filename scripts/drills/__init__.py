"""Faults on a real set of three nodes under a running sale, and what the fans were told.

Fans buy through the API and every request and answer is kept. Something is killed or stopped, and
all is mended again. Then the history is held against the database: whatever was acknowledged is
there, and whatever was refused left nothing.
"""
