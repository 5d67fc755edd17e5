"""Texts: readers of the files that data sets of them come in."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from sparkdl.datasets.found_files import text_of

SMS_LABELS = ("ham", "spam")
TRAINED_ON = 0.9  # of the characters of tiny_shakespeare, as is usual


def sms_spam(directory: str | Path) -> pa.Table:
    """The SMS Spam Collection: short messages, and which of them are spam.

    Parameters
    ----------
    directory : str or Path
        Folder of the file SMSSpamCollection, gzipped or not, or the one that holds it in a folder sms-spam.

    Returns
    -------
    pyarrow.Table
        5,574 rows in the order of the file: text (string) and label ("ham" or "spam", about one in seven).

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing, or is damaged.

    Notes
    -----
    Almeida, Gomez Hidalgo, Yamakami: Contributions to the Study of SMS Spam Filtering, DocEng 2011; file at
    https://archive.ics.uci.edu/dataset/228/sms+spam+collection.
    """
    lines = text_of(directory, "sms-spam", "SMSSpamCollection").removesuffix("\n").split("\n")
    rows = [line.split("\t", 1) for line in lines]
    for number, row in enumerate(rows, 1):
        if len(row) < 2 or row[0] not in SMS_LABELS:
            raise ValueError(
                f"Line {number} of SMSSpamCollection should be ham or spam, a tab and a text, received "
                f"{lines[number - 1][:60]!r}; download it again."
            )
    return pa.table({"text": [text for _, text in rows], "label": [label for label, _ in rows]})


def tiny_shakespeare(directory: str | Path) -> pa.Table:
    """Speeches from plays of Shakespeare, 1,115,394 characters in all, on which small language models are tried.

    Parameters
    ----------
    directory : str or Path
        Folder of the file input.txt, gzipped or not, or the one that holds it in a folder tinyshakespeare.

    Returns
    -------
    pyarrow.Table
        7,222 rows in the order of the plays: text (string: the speaker's name, a colon, and the lines of the speech)
        and split ("train" where a speech begins in the first nine tenths of the characters, else "test"). The file is
        the texts, with an empty line between two.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing, or is damaged.

    Notes
    -----
    Karpathy: The Unreasonable Effectiveness of Recurrent Neural Networks, 2015; file at
    https://github.com/karpathy/char-rnn/tree/master/data/tinyshakespeare.
    """
    whole = text_of(directory, "tinyshakespeare", "input.txt")
    texts = whole.removesuffix("\n").split("\n\n")
    begins = accumulate((len(text) + 2 for text in texts[:-1]), initial=0)
    limit = int(TRAINED_ON * len(whole))
    return pa.table({"text": texts, "split": ["train" if begin < limit else "test" for begin in begins]})
