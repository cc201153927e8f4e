"""One walk over a parsed template: what is not allowed, which fields are read, and our expressions in place of the
library's.

A path is followed through loops and plain assignments, so that `line.sku` in `{% for line in lines %}` is read as
`lines[].sku`. A field is optional where it has a default, where it is only asked for, and where a condition around it
says that it is there.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from liquid.ast import BlockNode, IllegalNode, Node
from liquid.builtin.content import ContentNode
from liquid.builtin.expressions import BooleanExpression, FilteredExpression, LoopExpression, Path, logical, primitive
from liquid.builtin.expressions.arguments import KeywordArgument
from liquid.builtin.output import OutputNode
from liquid.builtin.tags.assign_tag import AssignNode
from liquid.builtin.tags.case_tag import CaseNode, MultiExpressionBlockNode
from liquid.builtin.tags.comment_tag import CommentNode
from liquid.builtin.tags.for_tag import BreakNode, ContinueNode, ForNode
from liquid.builtin.tags.if_tag import IfNode
from liquid.builtin.tags.unless_tag import UnlessNode
from liquid.expression import Expression
from liquid.token import Token

from batches.templating import comparing, filters, formats, reads, running
from batches.templating.limits import Limits
from batches.templating.places import Places
from batches.templating.problems import Fault, MissingValue, Problem, shown
from batches.templating.reads import Need, Read
from batches.templating.scopes import Scope, found_by, joined

_COMPARISONS: dict[type, str] = {
    logical.EqExpression: "==",
    logical.NeExpression: "!=",
    logical.LtExpression: "<",
    logical.GtExpression: ">",
    logical.LeExpression: "<=",
    logical.GeExpression: ">=",
    logical.ContainsExpression: "contains",
    logical.LogicalAndExpression: "and",
    logical.LogicalOrExpression: "or",
}
_ABSENT: dict[type, object] = {
    primitive.Nil: comparing.NOTHING,
    primitive.Empty: comparing.EMPTY,
    primitive.Blank: comparing.BLANK,
}
_LITERALS = (primitive.StringLiteral, primitive.IntegerLiteral, primitive.FloatLiteral)
_ARITHMETIC = ("plus", "minus", "times", "divided_by", "round")
#: Words that other engines know and that mean the time of filling.
_CLOCKS = frozenset({"now", "today"})


class Walk:
    """Goes over the nodes of one template. `problems` and `reads` are what it found."""

    def __init__(self, places: Places, limits: Limits, styles: Sequence[tuple[int, int]] = ()) -> None:
        """`styles`: where the style sheets stand in the text, in order."""
        self.problems: list[Problem] = []
        self.reads: dict[str, Read] = {}
        self._told: set[str] = set()
        self._places = places
        self._limits = limits
        self._styles = styles
        self._visits: dict[type, Callable[[Any, Scope], tuple[Node, Scope]]] = {
            OutputNode: self._output,
            AssignNode: self._assign,
            IfNode: self._choice,
            UnlessNode: self._choice,
            CaseNode: self._case,
            ForNode: self._for,
            BreakNode: self._leave,
            ContinueNode: self._leave,
        }

    def nodes(self, given: Sequence[Node]) -> list[Node]:
        """The nodes of a template, ready to run."""
        made, _ = self._sequence(given, Scope({}))
        for path in [path for path in self.reads if path.endswith((".size", ".first", ".last"))]:
            whole = path.rpartition(".")[0]
            if whole in self.reads and any(each.startswith(f"{whole}[]") for each in self.reads):
                del self.reads[path]  # of a list, which it has by itself
        return made

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _sequence(self, given: Sequence[Node], scope: Scope) -> tuple[list[Node], Scope]:
        made: list[Node] = []
        for node in given:
            if isinstance(node, ContentNode):
                made.append(node)
            elif visit := self._visits.get(type(node)):
                changed, scope = visit(node, scope)
                made.append(changed)
            elif not isinstance(node, CommentNode | IllegalNode):
                self._refuse(node.token, f"There is no {type(node).__name__}.", "Write it in another way.")
        return made, scope

    def _block(self, given: BlockNode, scope: Scope) -> tuple[running.Block, Scope]:
        nodes, after = self._sequence(given.nodes, scope)
        return running.Block(given.token, nodes), after

    def _output(self, node: OutputNode, scope: Scope) -> tuple[Node, Scope]:
        expression = self._value(node.expression, scope)
        at = node.token.start_index
        before = bisect(self._styles, at, key=lambda bounds: bounds[0])
        is_style = before > 0 and at < self._styles[before - 1][1]
        print_node = running.StylePrint if is_style else running.Print
        return print_node(node.token, self._place(node.expression.token), expression), scope

    def _assign(self, node: AssignNode, scope: Scope) -> tuple[Node, Scope]:
        name = str(node.name)
        self._check_name(name, node.token)
        node.expression = self._value(node.expression, scope)
        left = node.expression
        path = left.path if isinstance(left, running.Field) and not scope.is_own(left.root) else ""
        return node, replace(scope, names=scope.names | {name: path}, maybe=scope.maybe - {name})

    def _choice(self, node: IfNode | UnlessNode, scope: Scope) -> tuple[Node, Scope]:
        """`if` and `unless` with their branches. Each branch knows what its condition found to be there."""
        is_unless = isinstance(node, UnlessNode)
        node.condition = condition = self._condition(node.condition, scope)
        found = found_by(condition)
        node.consequence, after = self._block(node.consequence, scope.knowing(() if is_unless else found))
        ends = [after]
        for alternative in node.alternatives:
            alternative.expression = self._condition(alternative.expression, scope)
            inner = scope.knowing(found_by(alternative.expression))
            alternative.block, after = self._block(alternative.block, inner)
            ends.append(after)
        if node.default:
            is_only = is_unless and not node.alternatives
            node.default, after = self._block(node.default, scope.knowing(found if is_only else ()))
            ends.append(after)
        return node, joined(scope, ends, is_whole=node.default is not None)

    def _case(self, node: CaseNode, scope: Scope) -> tuple[Node, Scope]:
        left = self._value(node.expression, scope)
        node.expression = left
        ends: list[Scope] = []
        is_whole = False
        blocks: list[MultiExpressionBlockNode | BlockNode] = []
        for block in node.blocks:
            if isinstance(block, MultiExpressionBlockNode):
                values = [self._value(each, scope) for each in block.expression.expressions]
                self._give_sample(left, _written(values[0]))
                any_of = running.AnyOf(block.token, self._place(block.token), left, values)
                inner, after = self._block(block.block, scope.knowing(()))
                # The library names a class of its own there, and asks no more of it than AnyOf answers.
                blocks.append(MultiExpressionBlockNode(block.token, inner, any_of))  # type: ignore[arg-type]
            else:
                is_whole = True
                inner, after = self._block(block, scope.knowing(()))
                blocks.append(inner)
            ends.append(after)
        node.blocks = blocks
        return node, joined(scope, ends or [scope], is_whole=is_whole)

    def _for(self, node: ForNode, scope: Scope) -> tuple[Node, Scope]:
        given = node.expression
        assert isinstance(given, LoopExpression), "the library's own node"
        self._check_name(given.identifier, given.token)
        iterable = self._value(given.iterable, scope)
        limit, offset = (None if part is None else self._value(part, scope) for part in (given.limit, given.offset))
        node.expression = running.Loop(given, self._place(given.token), iterable, limit=limit, offset=offset)
        path = iterable.path if isinstance(iterable, running.Field) else ""
        inner = replace(
            scope,
            names=scope.names | {str(given.identifier): f"{path}[]" if path else "", "forloop": ""},
            loops=scope.loops + 1,
        )
        node.block, after = self._block(node.block, inner)
        if node.default:
            node.default, _ = self._block(node.default, scope)
        own = {str(given.identifier), "forloop"}
        given_names = (after.names.keys() - scope.names.keys()) | after.maybe
        return node, replace(scope, maybe=scope.maybe | frozenset(given_names - own))

    def _leave(self, node: BreakNode | ContinueNode, scope: Scope) -> tuple[Node, Scope]:
        if not scope.loops:
            self._refuse(node.token, "This stands in no loop.", "Write it between for and endfor.")
        return node, scope

    # --- expressions --------------------------------------------------------------------------------------------------

    def _value(self, given: Expression, scope: Scope, missing: Any = MissingValue) -> Expression:
        place = self._place(given.token)
        if isinstance(given, FilteredExpression):
            has_default = bool(given.filters and given.filters[0].name == "default")
            left = self._value(given.left, scope, None if has_default else missing)
            if not given.filters:
                return left
            what = left.path if isinstance(left, running.Field) else ""
            applied = [made for each in given.filters if (made := self._filter(each, what, scope))]
            self._give_sample(left, _sample_for(given.filters))
            return running.Filtered(given.token, place, left, applied)
        if isinstance(given, Path):
            return self._field(given, scope, missing)
        if isinstance(given, _LITERALS):
            return running.Constant(given.token, place, given.value)
        if isinstance(given, primitive.TrueLiteral | primitive.FalseLiteral):
            return running.Constant(given.token, place, isinstance(given, primitive.TrueLiteral))
        if isinstance(given, primitive.RangeLiteral):
            ends = [self._value(each, scope) for each in (given.start, given.stop)]
            return running.Range(given.token, place, *ends)
        if type(given) in _ABSENT:
            return running.Constant(given.token, place, _ABSENT[type(given)])
        self._refuse(given.token, "This is no value.", "Name a field, or write text in quotes.")
        return running.Constant(given.token, place, "")

    def _filter(self, given: Any, what: str, scope: Scope) -> running.Applied | None:
        known = filters.FILTERS.get(given.name)
        if known is None:
            words = f"There is no filter {str(given.name)[:40]}."
            self._refuse(
                given.token, words, filters.REFUSED.get(given.name, f"There are {', '.join(filters.FILTERS)}.")
            )
            return None
        positional = [each.value for each in given.args if not isinstance(each, KeywordArgument)]
        named = {each.name: each.value for each in given.args if isinstance(each, KeywordArgument)}
        if not known.least <= len(positional) <= known.most:
            wanted = f"{known.least}" if known.least == known.most else f"{known.least} to {known.most}"
            words = f"The filter {given.name} takes {wanted} values behind its colon, not {len(positional)}."
            self._refuse(given.token, words, 'Separate them by commas: money: "EUR", "de".')
            return None
        for name in named.keys() - known.keywords.keys():
            words = f"The filter {given.name} takes no {str(name)[:40]}."
            self._refuse(given.token, words, f"It takes {', '.join(known.keywords) or 'no names'}.")
        arguments = [self._value(each, scope) for each in positional]
        by_name = {name: self._value(each, scope) for name, each in named.items() if name in known.keywords}
        written: dict[int | str, Expression] = dict(enumerate(arguments))
        written.update(by_name)
        for key in known.checks.keys() & written.keys():
            self._check(known.checks[key], written[key])
        renamed = {known.keywords[name]: each for name, each in by_name.items()}
        return running.Applied(known, what, self._place(given.token), arguments, renamed)

    def _check(self, check: filters.Check, argument: Expression) -> None:
        """An argument that is written out is checked now, whatever the rows hold."""
        if isinstance(argument, running.Constant):
            try:
                check(argument.value if isinstance(argument.value, str) else shown(argument.value))
            except Fault as fault:
                self.problems.append(Problem(*argument.place, fault.message, fault.fix))

    def _condition(self, given: Expression, scope: Scope) -> Expression:
        if isinstance(given, BooleanExpression):
            inner = self._condition(given.expression, scope)
            return inner if isinstance(inner, running.Condition) else self._asked(inner)
        operator = _COMPARISONS.get(type(given))
        if operator is None:
            return self._asked(self._value(given, scope, None))
        left, right = given.left, given.right  # type: ignore[attr-defined] # all of `_COMPARISONS` have both
        place = self._place(given.token)
        if operator in ("and", "or"):
            first = self._condition(left, scope)
            known = scope.knowing(found_by(first)) if operator == "and" else scope
            return running.Condition(given.token, place, operator, first, self._condition(right, known))
        asks = operator in ("==", "!=") and bool({type(left), type(right)} & set(_ABSENT))
        missing = None if asks else MissingValue
        sides = [self._value(each, scope, missing) for each in (left, right)]
        for one, other in (sides, reversed(sides)):
            self._give_sample(one, _written(other))
        return running.Condition(given.token, place, operator, *sides)

    def _asked(self, value: Expression) -> Expression:
        return running.Condition(value.token, self._place(value.token), "is there", value, None)

    # --- fields -------------------------------------------------------------------------------------------------------

    def _field(self, given: Path, scope: Scope, missing: Any) -> Expression:
        place = self._place(given.token)
        root, *rest = given.path
        if not isinstance(root, str):
            self._refuse(given.token, "A field is named, not computed.", "Write its name.")
            return running.Constant(given.token, place, "")
        keys: list[object] = []
        is_known = True
        path = scope.names[root] if root in scope.names else _quoted(root, is_first=True)
        self._check_name(root, given.token)
        for segment in rest:
            if isinstance(segment, Path):
                keys.append(self._field(segment, scope, MissingValue))
                is_known = False
                continue
            if isinstance(segment, str):
                self._check_name(segment, given.token)
            keys.append(segment)
            if is_known and path:
                path += f"[{segment}]" if isinstance(segment, int) else _quoted(segment)
        if scope.is_own(root):
            shown_path = ".".join(str(each) for each in given.path if not isinstance(each, Path))
            field = running.Field(given.token, place, root, tuple(keys), shown_path)
        else:
            if root in _CLOCKS and root not in scope.names:
                self._refuse(given.token, f"There is no {root}: the same row always gives the same text.", _DATED)
            field = running.Field(given.token, place, root, tuple(keys), path)
            self._note(field, scope, is_optional=missing is not MissingValue)
        field.missing = missing
        return field

    def _note(self, field: running.Field, scope: Scope, *, is_optional: bool) -> None:
        is_found = any(field.path == sure or field.path.startswith((f"{sure}.", f"{sure}[")) for sure in scope.sure)
        if is_optional or is_found:
            need = Need.NEVER
        else:
            is_only_sometimes = scope.is_conditional or field.root in scope.maybe
            need = Need.SOMETIMES if is_only_sometimes else Need.ALWAYS
        line = field.place[0] or 1
        known = self.reads.get(field.path)
        if known:
            self.reads[field.path] = known.with_line(line, need, lines_most=self._limits.lines_kept)
        elif refused := reads.unbearable(field.path, len(self.reads), self._limits):
            if refused.message not in self._told:
                self._told.add(refused.message)
                self._refuse(field.token, refused.message, refused.fix)
        else:
            self.reads[field.path] = Read(field.path, (line,), need)

    def _give_sample(self, value: Expression, sample: str) -> None:
        """The first use that says what a field looks like says it."""
        known = self.reads.get(value.path) if isinstance(value, running.Field) else None
        if known is not None and sample and not known.sample:
            self.reads[known.path] = replace(known, sample=sample)

    def _check_name(self, name: str, token: Token) -> None:
        if name.startswith("__") or "\0" in name:
            words = f"The name {shown(name)} is refused: a template sees the fields of its row and nothing else."
            self._refuse(token, words, "Name a field of the row.")

    def _refuse(self, token: Token, message: str, fix: str) -> None:
        if len(self.problems) < self._limits.problems:
            self.problems.append(Problem(*self._place(token), message, fix))

    def _place(self, token: Token) -> running.Place:
        return self._places.of(token.start_index)


_DATED = "Give the row a field with the date."


def _sample_for(applied: Iterable[Any]) -> str:
    """A value that the filters take: a number or a date, in the notation that they name."""
    for each in applied:
        named = {arg.name: arg.value for arg in each.args if isinstance(arg, KeywordArgument)}
        source = getattr(named.get("from"), "value", "")
        try:
            if each.name in ("number", "money", *_ARITHMETIC):
                return formats.number("1234.50", source) if source else "1234.50"
            if each.name == "percent":
                return formats.number("0.19", source) if source else "0.19"
            if each.name == "date":
                return formats.date("2026-10-05", source, "en") if source else "2026-10-05"
        except Fault:
            return ""  # told as a problem already
    return ""


def _written(value: Expression) -> str:
    if isinstance(value, running.Constant) and isinstance(value.value, str | int | float):
        return "" if isinstance(value.value, bool) else str(value.value)
    return ""


def _quoted(name: str, *, is_first: bool = False) -> str:
    """A name as it stands in a path; one with a dot or a bracket in it is quoted."""
    if name and not set(name) & set(".[]\"'"):
        return name if is_first else f".{name}"
    return name if is_first else f"[{shown(name)}]"
