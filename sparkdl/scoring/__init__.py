"""What scores rows by a saved or fitted model, in a task of Spark's or in a program without Spark."""
