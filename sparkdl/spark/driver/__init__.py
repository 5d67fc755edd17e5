"""What runs on the driver: checks, columns, jobs, and what they bring back."""
