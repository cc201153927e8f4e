"""What the engine refuses, as facts. Provider errors are `batches.providers.errors`."""

from __future__ import annotations


class EngineError(Exception):
    """Base. `words` are for people."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class IllegalTransition(EngineError):
    """No edge of `transitions.EDGES` leads there: a bug of the caller."""


class StaleClaim(EngineError):
    """Somebody else has claimed or moved the job since it was read; nothing was written."""


class IntakeRefused(EngineError):
    """A manifest that does not hold; nothing was stored."""


class TemplateRule(EngineError):
    """What cannot be done to a template as it stands."""


class AccountRule(EngineError):
    """A change of an account that its submissions or its hold forbid."""


class SpendCapReached(EngineError):
    """A batch may not go on under its spend cap; nothing was changed."""
