"""What a store holds, for assertions."""

from __future__ import annotations

from batches.storage import ArtifactStore


def keys_in(store: ArtifactStore) -> list[str]:
    """Every key, in order."""
    return [facts.key for facts in store.iter_facts()]
