"""What can go wrong with the store. `words` are for people; the exception they come from is chained for the log.

    StoreError             base; never raised itself
      ObjectMissing        the store answers, and says that no object has this key
      StoreDenied          the store refuses us; says nothing about whether an object is there
      StoreFull            no space or quota is left
      StoreUnavailable     not reachable, not mounted, or it answered what we cannot use

Only `ObjectMissing` may ever be read as "the file is gone": every other error is the store's trouble, and rendering
again for it would cost money for nothing.
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of all."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class ObjectMissing(StoreError):
    """No object has this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"The store holds no object {key}.")
        self.key = key


class StoreDenied(StoreError):
    """The store refuses us: rights or credentials."""


class StoreFull(StoreError):
    """No space is left; what was asked for can be tried again when there is."""


class StoreUnavailable(StoreError):
    """The store cannot be used at the moment."""
