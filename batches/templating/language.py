"""The Liquid that templates may use: which tags there are, and the library's limits set. Parses; runs nothing.

There is no loader, no tag that reads another template, and no global name: a template sees the data of its row.
"""

from __future__ import annotations

from liquid import Environment, Mode, StrictUndefined
from liquid.ast import IllegalNode, Node
from liquid.builtin import content, illegal, output
from liquid.builtin.tags import assign_tag, case_tag, comment_tag, for_tag, if_tag, inline_comment_tag, unless_tag
from liquid.exceptions import LiquidError, LiquidSyntaxError
from liquid.parser import eat_block
from liquid.stream import TokenStream
from liquid.tag import Tag
from liquid.token import TOKEN_EXPRESSION, TOKEN_TAG, Token

from batches.templating.limits import Limits
from batches.templating.problems import Problem

_TAGS: tuple[type[Tag], ...] = (
    content.Literal,
    output.Output,
    if_tag.IfTag,
    unless_tag.UnlessTag,
    case_tag.CaseTag,
    for_tag.ForTag,
    for_tag.BreakTag,
    for_tag.ContinueTag,
    assign_tag.AssignTag,
    comment_tag.CommentTag,
    inline_comment_tag.InlineCommentTag,
)
TAGS = ("if", "unless", "case", "for", "break", "continue", "assign", "comment", "raw")
#: Tags that read another file in some engine or other.
_OTHER_FILES = frozenset({"include", "render", "extends", "layout", "import", "block", "load", "ssi", "section"})
_OFFERED = f"There are {', '.join(TAGS[:-1])} and {TAGS[-1]}."
_WORDS = {
    "expected a primitive expression, found end of expression": ("A value is missing here.", "Name a field."),
    "expected '}}', found end of file": ("A {{ is never closed.", "Write }} at its end."),
    "missing tag name or closing delimiter": ("A {% is never closed or has no name.", "Write %} at its end."),
}


class NotOffered(LiquidSyntaxError):
    """A tag that there is not."""

    def __init__(self, name: str, *, token: Token) -> None:
        super().__init__(f"unexpected tag {name!r}", token=token)
        self.name = name


class _Illegal(illegal.Illegal):
    def parse(self, stream: TokenStream) -> IllegalNode:
        token = stream.expect(TOKEN_TAG)
        if stream.peek.kind == TOKEN_EXPRESSION:
            next(stream)
        raise NotOffered(token.value, token=token)


class _Told(Tag):
    """A tag whose errors say where it begins, when the library only knows that its text ended too early."""

    def __init__(self, tag: Tag) -> None:
        super().__init__(tag.env)
        self._tag = tag

    def parse(self, stream: TokenStream) -> Node:
        return self._tag.parse(stream)

    def get_node(self, stream: TokenStream) -> Node:
        start = stream.current
        try:
            return self.parse(stream)
        except LiquidError as error:
            if error.token is None or error.token.start_index < 0:
                error.token = start
            self.env.error(error)
            if self._tag.block:
                eat_block(stream, (self._tag.end,))
            return IllegalNode(start)


class Language(Environment):
    """The environment of one template. Errors of the parser are collected, so that all are told at once."""

    suppress_blank_control_flow_blocks = False  # what stands in the template is printed, white space too

    def __init__(self, limits: Limits) -> None:
        self.errors: list[LiquidError] = []
        # Set on this instance: the library has them as class variables, which it reads through the instance.
        for name, value in {
            "block_nesting_limit": limits.nesting,
            "context_depth_limit": limits.context_depth,
            "loop_iteration_limit": limits.loop_iterations,
            "local_namespace_limit": limits.local_bytes,
            "output_stream_limit": limits.output_bytes,
        }.items():
            setattr(self, name, value)
        super().__init__(tolerance=Mode.STRICT, undefined=StrictUndefined, strict_filters=True, autoescape=True)

    def setup_tags_and_filters(self, *, extra: bool = False) -> None:
        """None of the library's filters, and only these tags."""
        tags: tuple[type[Tag], ...] = (*_TAGS, _Illegal)
        for tag in tags:
            self.tags[tag.name] = _Told(tag(self))

    def error(self, exc: type[LiquidError] | LiquidError, msg: str | None = None, token: Token | None = None) -> None:
        error = exc if isinstance(exc, LiquidError) else exc(msg, token=token)
        if error.token is None:
            error.token = token
        self.errors.append(error)


def problem_of(error: LiquidError, place: tuple[int | None, int | None]) -> Problem:
    """An error of the parser, in words."""
    line, column = place
    if isinstance(error, NotOffered):
        if not error.name:
            return Problem(line, column, "A {% %} has no name.", _OFFERED)
        if error.name in _OTHER_FILES:
            words = f"The tag {error.name[:40]} is refused: a template reads no other file."
            return Problem(line, column, words, "Put its content here; pictures and style sheets go into the ZIP.")
        if error.name.startswith("end") or error.name in ("else", "elsif", "when"):
            return Problem(line, column, f"There is one {error.name[:40]} too many.", "Remove it, or open its block.")
        return Problem(line, column, f"There is no tag {error.name[:40]}.", _OFFERED)
    told = str(error.message or "it is not written as Liquid is")
    if told in _WORDS:
        return Problem(line, column, *_WORDS[told])
    if told.startswith("expected tag end"):
        name = told.split()[2].rstrip(",")
        return Problem(line, column, f"This block is never closed: there is no {name}.", f"Write {{% {name} %}}.")
    if told.startswith("block nesting"):
        return Problem(line, column, "Blocks stand too deep in one another.", "Write it with fewer levels.")
    return Problem(line, column, f"This cannot be read: {told[:160]}.", "Correct the text between the braces.")
