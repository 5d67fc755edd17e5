"""What a run tells of itself: progress, timeline, TensorBoard's events."""
