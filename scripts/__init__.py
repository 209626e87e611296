"""What a person runs, and the processes behind it."""
