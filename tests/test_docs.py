"""What the documents say of paths, links, commands, variables and headings is true of this repository."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from batches.providers import PROVIDERS
from relaypdf_site import environment
from tests import handbook, provider_table
from tests.stack_process import REPOSITORY

README = REPOSITORY / "README.md"
MAP = REPOSITORY / "batches" / "README.md"
ARCHITECTURE = REPOSITORY / "docs" / "architecture.md"
FOLDERS = ("batches", "benchmarks", "docs", "examples", "relaypdf_site", "templates", "tests")
WRITTEN = {".py", ".md", ".html", ".css", ".js", ".txt"}

#: Documents that belong to no clone of this repository, by the ways in which they would be cited. Standards have
#: sections too, and a decision here is about dependencies: both are meant to stay.
ELSEWHERE = re.compile(
    r"\bdesign(\.md| sections? \d)|\bfeatures?(\.md| \d)|\bstyle(\.md| sections? \d)|\bdjango-q2\.md"
    r"|(?<!\d-)\bdependencies\.md|\bcases/log|(?<!RFC )(?<!RFC \d{4} )\bsection \d"
)

#: A path in backticks: with a folder or an ending, `name/` or `name.py`, perhaps with "../" before it.
PATH = re.compile(r"`((?:\.\./)*[\w-]+(?:/[\w.-]+)*(?:/|\.(?:py|md|html|css|js|txt)))`")
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
POINTER = re.compile(r'docs/architecture\.md,\s+"([^"]+)"')


def written_files() -> Iterator[Path]:
    """Every text that people read here: the documents, the code, the templates."""
    yield from (path for path in REPOSITORY.iterdir() if path.suffix in WRITTEN or path.name == "Makefile")
    for folder in FOLDERS:
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.suffix in WRITTEN and path != Path(__file__) and "cases" not in path.parts:
                yield path


def documents() -> list[Path]:
    return [path for path in written_files() if path.suffix == ".md"]


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives a document's headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def cited_elsewhere(path: str, text: str) -> list[str]:
    """The lines of `text` that point at a document outside the repository."""
    return [
        f"{path}:{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), start=1)
        if ELSEWHERE.search(line)
    ]


def test_every_path_in_the_map_exists() -> None:
    named = PATH.findall(MAP.read_text("utf-8"))
    assert len(named) > 40
    # The map writes paths from its own folder, and those of tests from the repository's.
    missing = [name for name in named if not (MAP.parent / name).exists() and not (REPOSITORY / name).exists()]
    assert missing == []


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_link_leads_somewhere(document: Path) -> None:
    dead = []
    for link in LINK.findall(document.read_text("utf-8")):
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_the_readme_explains_every_variable_that_is_read_and_no_other() -> None:
    settings = README.read_text("utf-8").partition("## Settings")[2].partition("\n## ")[0]
    first_cells = re.findall(r"^\| (`[^|]+) \|", settings, re.MULTILINE)
    explained = [name for cell in first_cells for name in re.findall(r"`([A-Z_]+)`", cell)]
    assert sorted(explained) == sorted(environment.VARIABLES)


def test_every_command_in_the_documents_exists_and_every_command_is_explained() -> None:
    ours = {name for name, app in get_commands().items() if app == "batches"}
    for document in (README, REPOSITORY / "examples" / "README.md"):
        said = set(re.findall(r"manage\.py ([a-z]\w*)", document.read_text("utf-8")))
        assert said - ours == set()
        assert said
    architecture = ARCHITECTURE.read_text("utf-8")
    assert [name for name in sorted(ours) if f"`{name}`" not in architecture] == []


def all_help(parser: argparse.ArgumentParser) -> str:
    """What `--help` says of a command, and of each of its verbs (`template upload --help`)."""
    verbs = [
        each
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for each in action.choices.values()
    ]
    return "\n".join([parser.format_help(), *map(all_help, verbs)])


def test_every_option_in_the_readme_is_taken_by_its_command() -> None:
    wrong = []
    for line in re.findall(r"manage\.py ([a-z]\w* [^`\n]*)", README.read_text("utf-8")):
        command, *words = line.partition(" #")[0].split()
        known = all_help(load_command_class("batches", command).create_parser("manage.py", command))
        wrong += [f"{command} {word}" for word in words if word.startswith("--") and word.strip("[]") not in known]
    assert wrong == []


def test_every_pointer_to_the_architecture_names_one_of_its_headings() -> None:
    headings = set(re.findall(r"^## (.+)$", ARCHITECTURE.read_text("utf-8"), re.MULTILINE))
    pointers = {heading for path in written_files() for heading in POINTER.findall(path.read_text("utf-8"))}
    assert len(pointers) > 4
    assert pointers - headings == set()


def test_nothing_refers_to_a_document_outside_the_repository() -> None:
    found = []
    for path in written_files():
        found += cited_elsewhere(str(path.relative_to(REPOSITORY)), path.read_text("utf-8"))
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "Exit codes (design section 8): 0 complete",
        "the answer (features.md 4.3)",
        "The validation answer of features 4.3",
        "(style section 5, design sections 4 and 10)",
        "see django-q2.md",
        "cases/log.md",
        "as section 4 says",
    ],
)
def test_a_planted_reference_is_found(line: str) -> None:
    assert cited_elsewhere("batches/planted.py", f'"""Planted.\n\n{line}\n"""') == [f"batches/planted.py:3: {line}"]


@pytest.mark.parametrize(
    "line",
    [
        "HTTP dates of RFC 9110 section 5.6.7",
        "docs/decisions/0001-dependencies.md",
        "this design is simple",
        "a style of its own, docs/architecture.md",
    ],
)
def test_an_innocent_line_is_left_alone(line: str) -> None:
    assert cited_elsewhere("batches/planted.py", line) == []


def test_the_file_for_staff_is_what_the_help_says() -> None:
    assert handbook.FILE.read_text("utf-8") == handbook.text(), "run: python -m tests.handbook"


def test_the_tables_of_providers_say_what_the_adapters_declare() -> None:
    """`python -m tests.provider_table` writes them."""
    text = provider_table.FILE.read_text("utf-8")
    assert text == provider_table.written(text)
    assert all(f"**{adapter.label}.**" in text for adapter in PROVIDERS.values()), "each has its note"
