"""What is said of a file that no network can be made of."""

from __future__ import annotations


class Refused(Exception):
    """What is wrong with a file, as the end of a sentence that begins with its path."""
