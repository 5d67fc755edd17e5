"""What one step computes: jitted programs over a mesh of workers."""
