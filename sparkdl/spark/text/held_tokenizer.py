"""What stages with a trained tokenizer share: its JSON, its vocabulary, and the way to the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from sparkdl.spark.driver.interpreter import check_interpreter
from sparkdl.spark.driver.remote import Shipped, carried, over_connect
from sparkdl.spark.params.column_params import HasColumns
from sparkdl.spark.saving.persistence import Saved
from sparkdl.spark.tasks.tokenizing import Batch, text_of
from sparkdl.subwords.reading import read_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Work = Callable[[Iterator[Batch]], Iterator[pa.Array]]


class HoldsTokenizer(HasColumns, Saved):
    """A stage around a trained tokenizer.

    Attributes
    ----------
    tokenizerJson : str
        As of a tokenizer.json, which Tokenizer.from_str of the package tokenizers reads.
    """

    _text_folder: ClassVar[str] = "tokenizer"

    def __init__(self, tokenizerJson: str | None = None) -> None:
        super().__init__()
        self._json: str | None = None
        self._shipped = Shipped()
        if tokenizerJson is not None:
            try:
                self._restore_text(tokenizerJson)
            except ValueError as error:
                raise ValueError(f"tokenizerJson cannot be read: {error}.") from None

    @property
    def tokenizerJson(self) -> str:
        """The tokenizer's own JSON on one line; ValueError without a tokenizer."""
        if self._json is None:
            raise ValueError(f"This {type(self).__name__} has no tokenizer; take one from fit, load or from_file.")
        return self._json

    @property
    def vocabularySize(self) -> int:
        """The largest id and one more: the rows of an Embedding that takes the ids."""
        return max(self.getVocabulary().values(), default=-1) + 1

    def getVocabulary(self) -> dict[str, int]:
        """The tokens and their ids, in the order of the ids."""
        return dict(sorted(self._tokenizer().get_vocab().items(), key=lambda item: item[1]))

    def decode(self, ids: Sequence[int], skipSpecialTokens: bool = True) -> str:
        """The text of ids, on the driver.

        Parameters
        ----------
        ids : sequence of int
        skipSpecialTokens : bool, default True
            Whether special tokens, such as padding, are left out.

        Raises
        ------
        ValueError
            One of them is of no token, or there is no tokenizer.
        """
        return text_of(self._tokenizer(), [int(each) for each in ids], skipSpecialTokens)

    def _tokenizer(self) -> Tokenizer:
        return read_tokenizer(self.tokenizerJson)

    def _work(self, session: SparkSession, stream: bool = False) -> tuple[Work, DataType]:
        """What a worker does to a column, and the type of what it makes; checks what can be checked before."""
        raise NotImplementedError(f"{type(self).__name__} makes no column.")

    def _sent(self, session: SparkSession, stream: bool) -> Callable[[], bytes]:
        """Gives the JSON's bytes on a worker; sent to every executor once, however often the stage transforms."""
        data = self.tokenizerJson.encode()
        check_interpreter(session)
        if stream and over_connect(session):
            return carried(data)
        return self._shipped.to(session, lambda: [data])

    def _saved_text(self) -> str:
        return self.tokenizerJson

    def _restore_text(self, text: str) -> None:
        self._json = read_tokenizer(text).to_str()  # on one line
