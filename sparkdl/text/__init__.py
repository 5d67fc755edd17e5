"""Texts for networks: tokenizers as Spark ML stages; they need the extra `text`."""

from sparkdl.spark.text.detokenizer import Detokenizer as Detokenizer
from sparkdl.spark.text.tokenizer import Tokenizer as Tokenizer
from sparkdl.spark.text.tokenizer import TokenizerModel as TokenizerModel

__all__ = ["Detokenizer", "Tokenizer", "TokenizerModel"]
