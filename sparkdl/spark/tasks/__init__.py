"""What runs in Spark's Python workers: plain functions, without pyspark.ml."""
