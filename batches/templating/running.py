"""What a compiled template does when it is filled: the library's nodes over expressions of our own.

A field that the data lacks is an error where it is read, unless its template gives a default or asks first. Comparing
never guesses: text from a table that is a number is compared as one, and what cannot be compared is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TextIO

from liquid.ast import BlockNode, Node
from liquid.builtin.expressions import LoopExpression
from liquid.context import RenderContext
from liquid.exceptions import LoopIterationLimitError
from liquid.expression import Expression
from liquid.output import LimitedStringIO
from liquid.template import BoundTemplate
from liquid.token import Token
from liquid.utils import ReadOnlyChainMap
from markupsafe import Markup, escape

from batches.templating import comparing, filters, formats
from batches.templating.limits import LIMITS, Limits
from batches.templating.problems import Fault, MissingValue, NotFilled, Problem, shown

Place = tuple[int | None, int | None]
_CHARACTERS_A_STEP = 64
_STYLE_VALUE = re.compile(r"(?:(?:rgb|hsl)a?\([0-9 .,%/]*+\)|[\w #%.,+-])*+")


class Output(LimitedStringIO):
    """Keeps line ends as they are; the library's own would make each CRLF a line feed."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits.output_bytes, "", "")


class Context(RenderContext):
    """One fill. There are no names but those of the data and of the template itself: no clock, no counters."""

    __slots__ = ("_iterations_left", "_work_left")

    def __init__(self, template: BoundTemplate, data: Mapping[str, object], limits: Limits) -> None:
        super().__init__(template, globals=data)
        self.scope = ReadOnlyChainMap(self.locals, data)
        self._work_left = limits.work
        self._iterations_left = limits.loop_iterations

    def spend(self, steps: int) -> None:
        self._work_left -= steps
        if self._work_left < 0:
            raise NotFilled(Problem(None, None, "Filling it takes too many steps.", "Use fewer loops and filters."))

    def raise_for_loop_limit(self, length: int = 1) -> None:
        """Iterations count together, of one loop after the other too."""
        self._iterations_left -= length
        if self._iterations_left < 0:
            raise LoopIterationLimitError("loop iteration limit reached", token=None)


def _work_of(value: object) -> int:
    """Steps that a look at all of a value takes."""
    if isinstance(value, str):
        return len(value) // _CHARACTERS_A_STEP
    return len(value) if isinstance(value, Sequence) else 0


class _Placed(Expression):
    """An expression that can say where it stands."""

    __slots__ = ("place",)

    def __init__(self, token: Token, place: Place) -> None:
        super().__init__(token)
        self.place = place

    def children(self) -> Iterable[Expression]:
        return []

    def fail(self, fault: Fault, cause: Exception | None = None) -> NoReturn:
        raise NotFilled(Problem(*self.place, fault.message, fault.fix)) from cause


class Field(_Placed):
    """A path into the data, or a name of the template's own. What is null counts as not there."""

    __slots__ = ("keys", "missing", "path", "root")

    def __init__(self, token: Token, place: Place, root: str, keys: tuple[object, ...], path: str) -> None:
        super().__init__(token, place)
        self.root = root
        self.keys = keys
        self.path = path
        self.missing: Any = MissingValue
        """What comes where the data lacks it: the error, or this value (None, "")."""

    def __str__(self) -> str:
        return self.path

    def evaluate(self, context: RenderContext) -> object:
        try:
            value: object = context.scope[self.root]
        except KeyError:
            value = None
        for key in self.keys:
            if value is None:
                break
            value = _item(value, key.evaluate(context) if isinstance(key, Expression) else key)
        if value is not None:
            return value
        if self.missing is not MissingValue:
            return self.missing
        raise MissingValue(self.path, Problem(*self.place, self._words(context), "Add it to the row."))

    def _words(self, context: RenderContext) -> str:
        if "[]" in self.path and context.loops:
            at = getattr(context.loops[-1], "index", "?")
            return f"There is no {self.path} in item {at} of its list."
        return f"The row has no {self.path}."


def _item(value: object, key: object) -> object:
    if isinstance(value, Mapping):
        return value.get(key) if isinstance(key, str) else None
    if isinstance(value, list | tuple):
        if isinstance(key, int) and not isinstance(key, bool):
            return value[key] if -len(value) <= key < len(value) else None
        if key == "size":
            return len(value)
        if key in ("first", "last") and value:
            return value[0 if key == "first" else -1]
    return None


class Constant(_Placed):
    """Something that is written out in the template; text of it is text like any other."""

    __slots__ = ("value",)

    def __init__(self, token: Token, place: Place, value: object) -> None:
        super().__init__(token, place)
        self.value = value

    def __str__(self) -> str:
        return shown(self.value)

    def evaluate(self, context: RenderContext) -> object:
        return self.value


class Range(_Placed):
    """`(1..n)`: whole numbers, no more of them than a loop may take."""

    __slots__ = ("start", "stop")

    def __init__(self, token: Token, place: Place, start: Expression, stop: Expression) -> None:
        super().__init__(token, place)
        self.start = start
        self.stop = stop

    def __str__(self) -> str:
        return f"({self.start}..{self.stop})"

    def evaluate(self, context: RenderContext) -> object:
        first, last = (self._whole(each.evaluate(context)) for each in (self.start, self.stop))
        if last - first >= LIMITS.loop_iterations:
            words = f"A range may hold {LIMITS.loop_iterations:,} numbers."
            self.fail(Fault(words, "Use a smaller one."))
        return range(first, last + 1)

    def _whole(self, value: object) -> int:
        try:
            number = formats.decimal(value)
        except Fault as fault:
            self.fail(fault, fault)
        if number != int(number):
            self.fail(Fault(f"{shown(value)} is not a whole number.", "Correct the row."))
        return int(number)


class Applied:
    """A filter with its arguments."""

    __slots__ = ("_apply", "_arguments", "_constants", "_cost", "_named", "_place", "_what")

    def __init__(
        self,
        known: filters.Filter,
        what: str,
        place: Place,
        arguments: list[Expression],
        named: dict[str, Expression],
    ) -> None:
        self._apply = known.apply
        self._cost = known.cost
        self._what = what
        self._place = place
        self._arguments = arguments
        self._named = named
        are_constant = all(isinstance(each, Constant) for each in (*arguments, *named.values()))
        self._constants = [each.value for each in arguments if isinstance(each, Constant)] if are_constant else None

    def evaluate(self, value: object, context: RenderContext) -> object:
        assert isinstance(context, Context), "only `Compiled.fill` runs this"
        arguments = self._constants
        if arguments is None:
            arguments = [each.evaluate(context) for each in self._arguments]
        named = {name: each.evaluate(context) for name, each in self._named.items()} if self._named else {}
        try:
            result = self._apply(value, *arguments, **named)
        except Fault as fault:
            words = f"{self._what}: {fault.message}" if self._what else fault.message
            raise NotFilled(Problem(*self._place, words, fault.fix)) from fault
        context.spend(1 + self._cost * _work_of(value) + _work_of(result))
        return result


class Filtered(_Placed):
    __slots__ = ("applied", "left")

    def __init__(self, token: Token, place: Place, left: Expression, applied: list[Applied]) -> None:
        super().__init__(token, place)
        self.left = left
        self.applied = applied

    def evaluate(self, context: RenderContext) -> object:
        value = self.left.evaluate(context)
        for each in self.applied:
            value = each.evaluate(value, context)
        return value


class Loop(LoopExpression):
    """Over a list or a range, never over an object, whose fields have no order that lasts."""

    __slots__ = ("place",)

    def __init__(
        self,
        given: LoopExpression,
        place: Place,
        iterable: Expression,
        *,
        limit: Expression | None,
        offset: Expression | None,
    ) -> None:
        super().__init__(
            given.token,
            given.identifier,
            iterable,
            limit=limit,
            offset=offset,
            reversed_=given.reversed,
            cols=None,
        )
        self.place = place

    def evaluate(self, context: RenderContext) -> tuple[Iterator[object], int]:
        try:
            found = filters.items(self.iterable.evaluate(context))
            start, most = self._at(self.offset, context) or 0, self._at(self.limit, context)
        except Fault as fault:
            raise NotFilled(Problem(*self.place, f"{self.iterable}: {fault.message}", fault.fix)) from fault
        chosen = found[start:] if most is None else found[start : start + most]
        return (reversed(chosen) if self.reversed else iter(chosen)), len(chosen)

    def _at(self, given: Expression | None, context: RenderContext) -> int | None:
        if given is None:
            return None
        number = formats.decimal(given.evaluate(context))
        if number < 0 or number != int(number):
            raise Fault(f"{shown(number)} is no number of items.", "Write a whole number, 0 or more.")
        return int(number)


class Block(BlockNode):
    """A sequence of nodes; each is a step of work."""

    __slots__ = ()

    def render_to_output(self, context: RenderContext, buffer: TextIO) -> int:
        assert isinstance(context, Context), "only `Compiled.fill` runs this"
        context.spend(len(self.nodes))
        return sum(node.render_to_output(context, buffer) or 0 for node in self.nodes)


class Print(Node):
    """`{{ … }}`: text, escaped exactly once."""

    __slots__ = ("expression", "place")

    def __init__(self, token: Token, place: Place, expression: Expression) -> None:
        super().__init__(token)
        self.expression = expression
        self.place = place
        self.blank = False

    def render_to_output(self, context: RenderContext, buffer: TextIO) -> int:
        value = self.expression.evaluate(context)
        if isinstance(value, Markup):  # of newline_to_br, which escaped it
            return buffer.write(value)
        if not isinstance(value, str):
            try:
                value = filters.text(value)
            except Fault as fault:
                self._fail(fault)
        return buffer.write(escape(value))

    def _fail(self, fault: Fault) -> NoReturn:
        words = f"{self.expression}: {fault.message}" if isinstance(self.expression, Field) else fault.message
        raise NotFilled(Problem(*self.place, words, fault.fix)) from fault


class StylePrint(Print):
    """`{{ … }}` in a style sheet, where no escape of HTML means anything: a value there can be no more than words,
    numbers and colours."""

    __slots__ = ()

    def render_to_output(self, context: RenderContext, buffer: TextIO) -> int:
        value = self.expression.evaluate(context)
        try:
            text = filters.text(value)
            if not _STYLE_VALUE.fullmatch(text):
                words = f"{shown(text)} cannot stand in a style sheet: only words, numbers, lengths and colours can."
                raise Fault(words, "Correct the row, or put the value into a style attribute.")
        except Fault as fault:
            self._fail(fault)
        return buffer.write(text)


# --- conditions -------------------------------------------------------------------------------------------------------


class Condition(_Placed):
    """`operator` compares two values, or is `and` or `or` of two conditions; with no value on its right it asks whether
    the one on its left is there."""

    __slots__ = ("left", "operator", "right")

    def __init__(self, token: Token, place: Place, operator: str, left: Expression, right: Expression | None) -> None:
        super().__init__(token, place)
        self.operator = operator
        self.left = left
        self.right = right

    def evaluate(self, context: RenderContext) -> bool:
        assert isinstance(context, Context), "only `Compiled.fill` runs this"
        left = self.left.evaluate(context)
        if self.right is None:
            context.spend(1)
            return filters.is_there(left)
        if self.operator == "and":
            return filters.is_there(left) and filters.is_there(self.right.evaluate(context))
        if self.operator == "or":
            return filters.is_there(left) or filters.is_there(self.right.evaluate(context))
        context.spend(1 + _work_of(left))
        try:
            return comparing.OPERATORS[self.operator](left, self.right.evaluate(context))
        except Fault as fault:
            self.fail(fault, fault)


class AnyOf(_Placed):
    """What a `when` of a `case` asks: once true, however many of its values are equal."""

    __slots__ = ("left", "values")

    def __init__(self, token: Token, place: Place, left: Expression, values: list[Expression]) -> None:
        super().__init__(token, place)
        self.left = left
        self.values = values

    def evaluate(self, context: RenderContext) -> list[bool]:
        assert isinstance(context, Context), "only `Compiled.fill` runs this"
        left = self.left.evaluate(context)
        context.spend(len(self.values) * (1 + _work_of(left)))
        try:
            return [any(comparing.equal(left, each.evaluate(context)) for each in self.values)]
        except Fault as fault:
            self.fail(fault, fault)
