"""From the text of a template to one that can be filled: parsed, checked whole, and its fields known.

The library parses; `walking.Walk` goes through what it parsed once, refuses what is not allowed with its line, puts
`running.py`'s expressions in the place of the library's, and notes which fields are read where.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from liquid.ast import Node
from liquid.exceptions import LiquidError, ResourceLimitError
from liquid.template import BoundTemplate

from batches.templating import markup, walking
from batches.templating.language import Language, problem_of
from batches.templating.limits import LIMITS, Limits
from batches.templating.places import Places
from batches.templating.problems import NotFilled, Problem, TemplateRefused
from batches.templating.reads import Read
from batches.templating.running import Context, Output

_PAIRED = re.compile(r"\{%-?\s*(raw|endraw|doc|enddoc)\s*-?%\}")


class Compiled:
    """A template that can be filled. Safe to use from several threads: filling changes nothing of it."""

    def __init__(self, template: BoundTemplate, nodes: list[Node], reads: Mapping[str, Read], limits: Limits) -> None:
        self._template = template
        self._nodes = nodes
        self._limits = limits
        self.reads = reads
        """What it reads of the data, by path."""

    @property
    def fields(self) -> Mapping[str, tuple[int, ...]]:
        """Paths that it reads (`customer.name`, `lines[].sku`) with the lines that name them."""
        return MappingProxyType({path: read.lines for path, read in self.reads.items()})

    @property
    def optional(self) -> frozenset[str]:
        """Paths that a row may lack."""
        return frozenset(path for path, read in self.reads.items() if read.is_optional)

    def fill(self, data: Mapping[str, Any]) -> str:
        """The finished text; the same data always gives the same one. Raises MissingValue, NotFilled."""
        context = Context(self._template, data, self._limits)
        output = Output(self._limits)
        try:
            context.spend(len(self._nodes))
            for node in self._nodes:
                node.render_to_output(context, output)
            return output.getvalue()
        except ResourceLimitError as error:
            raise NotFilled(_limit_met(error, self._limits)) from error
        except UnicodeEncodeError as error:
            words = "A value holds half of a character (a lone surrogate)."
            raise NotFilled(Problem(None, None, words, "Write the text out again.")) from error
        except (LiquidError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            words = f"It cannot be filled from this data ({str(error)[:160]})."
            raise NotFilled(Problem(None, None, words, "Compare the row with the fields of the template.")) from error


def _limit_met(error: ResourceLimitError, limits: Limits) -> Problem:
    kind = type(error).__name__
    if kind.startswith("Output"):
        words = f"The document would be larger than {limits.output_bytes:,} bytes."
    elif kind.startswith("Loop"):
        words = f"Its loops would run more than {limits.loop_iterations:,} times."
    elif kind.startswith("Local"):
        words = "Its assigned values take too much memory."
    else:
        words = "Its loops stand too deep in one another."
    return Problem(None, None, words, "Use a shorter list, or make several documents of it.")


def compiled(source: str, limits: Limits = LIMITS) -> Compiled:
    """Compile the text of a template. Raises TemplateRefused with everything that is wrong with it."""
    if len(source) > limits.source_characters:
        words = f"The template is {len(source):,} characters long; {limits.source_characters:,} are allowed."
        raise TemplateRefused([Problem(None, None, words, "Use smaller pictures and fonts.")])
    places = Places(source)
    _refuse_unpaired(source, places)
    tags = source.count("{{") + source.count("{%")
    if tags > limits.tags:
        words = f"The template has {tags:,} tags and values; {limits.tags:,} are allowed."
        raise TemplateRefused([Problem(None, None, words, "Loop over lists instead of writing each line out.")])
    language = Language(limits)
    walk = walking.Walk(places, limits, markup.styles(source))
    try:
        nodes = language._parse(source)
        nodes = walk.nodes(nodes)
    except RecursionError:
        words = "An expression of it is too long."
        raise TemplateRefused([Problem(None, None, words, "Write shorter conditions.")]) from None
    except LiquidError as error:
        language.errors.append(error)
        nodes = []
    problems = [*_told(language.errors, places), *walk.problems]
    if problems:
        raise TemplateRefused(sorted(dict.fromkeys(problems), key=_order)[: limits.problems])
    template = BoundTemplate(language, nodes)
    return Compiled(template, nodes, MappingProxyType(dict(sorted(walk.reads.items()))), limits)


def _refuse_unpaired(source: str, places: Places) -> None:
    """`raw` without its end: looked for here, since the library reads the whole text again for each of them."""
    opened: re.Match[str] | None = None
    for found in _PAIRED.finditer(source):
        name = found[1]
        if name in ("doc", "enddoc"):
            words, fix = f"There is no tag {name}.", "Write comment."
        elif opened is None and name == "endraw":
            words, fix = "There is an endraw without its raw.", "Remove it."
        elif opened is None or name == "endraw":
            opened = found if name == "raw" else None
            continue
        else:
            continue  # raw within raw is text
        raise TemplateRefused([Problem(*places.of(found.start()), words, fix)])
    if opened is not None:
        place = places.of(opened.start())
        raise TemplateRefused([Problem(*place, "A raw is never closed.", "Write {% endraw %} behind it.")])


def _told(errors: Iterable[LiquidError], places: Places) -> Iterable[Problem]:
    """The parser's errors; the end of a block whose beginning is refused is no error of its own."""
    seen: set[str] = set()
    for error in errors:
        name = str(getattr(error, "name", ""))
        if name.startswith("end") and name.removeprefix("end") in seen:
            continue
        seen.add(name)
        yield problem_of(error, places.of(error.token.start_index if error.token else -1))


def _order(problem: Problem) -> tuple[int, int, str]:
    return problem.line or 0, problem.column or 0, problem.message
