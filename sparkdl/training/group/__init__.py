"""How the processes of a fit become one group of workers."""
