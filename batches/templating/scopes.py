"""What is known at a place of a template: the names that it gave itself, and the fields that are surely there. Pure.

Owns what branches leave behind and what a condition proves. Goes through no node and refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from liquid.expression import Expression

from batches.templating import comparing, running


@dataclass(frozen=True)
class Scope:
    """What is known where a node stands. `names` are the template's own, each with the path that it stands for, ""
    for none; `maybe` those that only some branches gave; `sure` the paths that a condition around found there."""

    names: dict[str, str]
    maybe: frozenset[str] = frozenset()
    sure: frozenset[str] = frozenset()
    is_conditional: bool = False
    loops: int = 0

    def knowing(self, paths: Iterable[str]) -> Scope:
        """The same within a branch, whose condition found `paths` there."""
        return replace(self, sure=self.sure | frozenset(paths), is_conditional=True)

    def is_own(self, name: str) -> bool:
        """Whether the template gave the name, and it stands for no path of the data."""
        return name in self.names and not self.names[name]


def joined(scope: Scope, ends: Sequence[Scope], *, is_whole: bool) -> Scope:
    """What is known behind branches: the names that each of them gave, if one of them is always taken."""
    given = [end.names.keys() - scope.names.keys() for end in ends]
    in_all = set.intersection(*map(set, given)) if is_whole else set()
    in_some = set().union(*given, *(end.maybe for end in ends)) - in_all
    names = scope.names | {name: _only(end.names[name] for end in ends) for name in in_all}
    return replace(scope, names=names, maybe=scope.maybe | frozenset(in_some))


def _only(paths: Iterable[str]) -> str:
    found = set(paths)
    return found.pop() if len(found) == 1 else ""


def found_by(condition: Expression) -> frozenset[str]:
    """The paths that are surely there where the condition holds."""
    if not isinstance(condition, running.Condition):
        return frozenset()
    left, right = condition.left, condition.right
    if right is None:
        if isinstance(left, running.Condition):
            return found_by(left)
        return frozenset({left.path}) if isinstance(left, running.Field) else frozenset()
    if condition.operator == "and":
        return found_by(left) | found_by(right)
    if condition.operator == "or":
        return found_by(left) & found_by(right)
    if condition.operator == "!=":
        pairs = ((left, right), (right, left))
        return frozenset(one.path for one, other in pairs if isinstance(one, running.Field) and _is_absent(other))
    return frozenset()


def _is_absent(value: Expression) -> bool:
    """Whether it is one of Liquid's words for what is not there."""
    return isinstance(value, running.Constant) and value.value in comparing.ABSENT
