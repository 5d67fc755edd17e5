"""What a run leaves so that another can go on from it, on any file system."""
