"""A worker's rows as batches on its device."""
