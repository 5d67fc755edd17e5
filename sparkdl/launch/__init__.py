"""The task's side of a fit: meets the other workers, starts the process that trains, and watches it."""
