"""What a process tells of itself: figures, log records and traces. Knows nothing of tickets."""
