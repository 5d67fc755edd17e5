"""From the columns that Spark sends as Arrow to NumPy arrays; knows neither Spark nor JAX."""
