"""Stages and weights in Spark ML's directories."""
