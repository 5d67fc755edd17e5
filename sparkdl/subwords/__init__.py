"""Subword tokenizers of the package tokenizers, an extra; no Spark."""
