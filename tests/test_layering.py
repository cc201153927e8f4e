"""Who may import whom, and the few things that only one place may do (docs/architecture.md, "Layers").

`breaches` reads one module with `ast`; the second half of the file plants every kind of breach and sees it found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

BATCHES = Path(__file__).resolve().parent.parent / "batches"

#: Modules that only read rows and shape them for a face.
READERS = frozenset(
    {
        "actionlist",
        "account_rows",
        "actions",
        "archives",
        "attention",
        "audits",
        "batchfacts",
        "batchlist",
        "batchrows",
        "cells",
        "comparing",
        "counting",
        "cursors",
        "deletions",
        "differences",
        "documents",
        "exports",
        "failedlist",
        "failures",
        "figures",
        "filenames",
        "finishing",
        "headway",
        "help",
        "inbox_rows",
        "listings",
        "notices",
        "overview",
        "palette",
        "places",
        "results",
        "savedviews",
        "searching",
        "selectors",
        "sentences",
        "template_rows",
        "timelines",
        "tokens",
        "uploads",
        "wording",
        "workbooks",
        "zipwriter",
    }
)
READER_MAY = READERS | {"models", "rights", "rownumbers", "storage"}
FACE_MAY = READERS | {
    "account_forms",
    "engine",
    "forms",
    "manifests",
    "models",
    "rights",
    "rownumbers",
    "storage",
    "templating",
}

#: What each part of `batches` may import of the others. A part without a row fails the test, and so does a stale row.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "conf": frozenset(),
    "processes": frozenset(),
    "lives": frozenset(),
    "rownumbers": frozenset(),
    "sandbox": frozenset(),
    "models": frozenset({"rownumbers"}),
    "queue": frozenset(),
    "migrations": frozenset({"models"}),
    "providers": frozenset({"conf"}),
    "storage": frozenset({"conf"}),
    "templating": frozenset({"conf"}),
    "manifests": frozenset({"cells", "conf", "rownumbers"}),
    "engine": frozenset(
        {
            "archives",  # an export is what a download is, built by a worker
            "cells",  # the columns of a list of failed rows, as messages name them
            "conf",
            "figures",
            "filenames",
            "manifests",
            "models",
            "providers",
            "queue",
            "results",
            "rights",
            "rownumbers",
            "storage",
            "templating",
            "wording",
            "workbooks",
        }
    ),
    "rights": frozenset({"models"}),
    "navigation": frozenset({"rights"}),
    "checks": frozenset({"conf"}),
    "sqlite_turns": frozenset(),
    "postgres_sessions": frozenset(),
    "rolegroups": frozenset({"models", "rights"}),
    "apps": frozenset({"checks", "postgres_sessions", "rolegroups", "sqlite_turns"}),
    "cluster": frozenset({"lives", "processes"}),
    "stack": frozenset({"processes"}),
    "installation": frozenset({"engine", "models", "rolegroups", "storage"}),
    "mailing": READERS | {"engine", "models"},
    "tasks": frozenset({"cluster", "engine", "lives", "mailing"}),
    **dict.fromkeys(READERS, READER_MAY),
    "results": READER_MAY | {"manifests"},
    "batchfacts": READER_MAY | {"engine"},
    "deletions": READER_MAY | {"engine"},
    "batchrows": READER_MAY | {"engine"},
    "comparing": READER_MAY | {"engine"},
    "forms": READERS | {"models"},
    "account_forms": READERS | {"engine", "models"},
    "templatetags": READERS | {"models", "navigation", "rownumbers"},
    "views": FACE_MAY,
    "middleware": frozenset(),
    "api": FACE_MAY,
    "admin": FACE_MAY | {"views"},
    "urls": frozenset({"api", "views"}),
    "management": FACE_MAY | {"cluster", "installation", "processes", "queue", "sandbox", "stack", "tasks"},
}

#: Outside packages that only some parts may import. A part is named as above, one module as `engine/clock`.
ONLY: dict[str, frozenset[str]] = {
    "requests": frozenset({"providers"}),
    "urllib3": frozenset({"providers"}),
    "django_q.tasks": frozenset({"queue"}),
    "django_q": frozenset({"admin", "cluster", "migrations", "queue"}),
    "boto3": frozenset({"storage"}),
    # The adapter of AWS Lambda signs with it and sends nothing by it (`providers/aws.py`).
    "botocore": frozenset({"providers", "storage"}),
    "plutoprint": frozenset({"sandbox"}),
    "liquid": frozenset({"templating"}),
    "babel": frozenset({"templating"}),
    "relaypdf_site": frozenset(),
}
#: Outside packages that some parts must never import.
NEVER: dict[str, tuple[str, ...]] = {
    "conf": ("django",),
    "processes": ("django",),
    "lives": ("django",),
    "providers": ("django",),
    "sandbox": ("django",),
    "manifests": ("django",),
    "templating": ("django",),
    "models": ("django.db.models.signals", "django.dispatch"),
    "engine": ("django.http", "django.shortcuts", "django.forms", "django.contrib.admin"),
    "tasks": ("django.db",),
}

#: Who asks what time it is; everybody else is told.
KNOWS_THE_TIME = frozenset({"views", "api", "admin", "management", "tasks", "sandbox", "engine/clock"})
CLOCKS = {("timezone", "now"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}

#: The only writer of `Job.state`. The sandbox has jobs of its own, in a database of its own.
STATE_WRITER = "engine/transitions"
#: Drafts have a state too, and exports, and one module each that writes it; they know no job.
DRAFT_WRITER, EXPORT_WRITER = "engine/drafts", "engine/exports"
#: And what settles deletions.
DELETION_WRITERS = ("engine/deleting", "engine/copies")
WRITES_NO_JOB = frozenset({"sandbox", "migrations"})
WRITING_CALLS = frozenset(
    {"update", "create", "bulk_create", "get_or_create", "update_or_create", "bulk_update", "guarded_update", "Job"}
)
SETS_STATE_IN_SQL = re.compile(r"\bupdate\b.*\bset\b.*\bstate\b\s*=", re.IGNORECASE | re.DOTALL)


def breaches(module: str, source: str) -> list[str]:
    """What `module` (as `engine/claims`) does that it must not, one line each with the line's number."""
    tree = ast.parse(source)
    return [
        f"{module}:{line}: {words}"
        for rule in (_wrong_imports, _own_clocks, _state_writes, _smells)
        for line, words in rule(module, tree)
    ]


def _part(module: str) -> str:
    return module.partition("/")[0]


def _imported(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every imported name in full, relative imports and imports inside functions too."""
    package = ["batches", *module.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def _wrong_imports(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    part = _part(module)
    for line, name in _imported(module, tree):
        if name.startswith("batches."):
            other = name.split(".")[1]
            if other != part and other not in MAY_IMPORT[part]:
                yield line, f"{part} must not import {other}"
        for package, allowed in ONLY.items():
            if _is_or_is_in(name, package) and part not in allowed:
                yield line, f"only {', '.join(sorted(allowed)) or 'nobody'} may import {package}"
        for package in NEVER.get(part, ()):
            if _is_or_is_in(name, package):
                yield line, f"{part} must not import {package}"


def _is_or_is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _own_clocks(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if _part(module) in KNOWS_THE_TIME or module in KNOWS_THE_TIME:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if (name, node.func.attr) in CLOCKS:
                yield node.lineno, f"{name}.{node.func.attr}() outside an interface; take `now` as a parameter"


def _state_writes(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if module in (STATE_WRITER, DRAFT_WRITER, EXPORT_WRITER, *DELETION_WRITERS) or _part(module) in WRITES_NO_JOB:
        return
    # A row for `bulk.guarded_update` is a dictionary; nothing else in the engine needs a key of that name.
    rows_too = _part(module) == "engine"
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets):
                writes = any(_assigns_state(target, rows_too=rows_too) for target in targets)
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                writes = _assigns_state(target, rows_too=rows_too)
            case ast.Call():
                writes = _writes_state(node)
            case ast.Constant(value=str(text)):
                writes = bool(SETS_STATE_IN_SQL.search(text))
            case ast.Dict(keys=keys):
                writes = rows_too and any(map(_is_state, keys))
            case _:
                writes = False
        if writes:
            yield node.lineno, f"writes a state; only {STATE_WRITER} may"


def _assigns_state(target: ast.expr, *, rows_too: bool) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "state" and not _is_own(node))
        or (rows_too and isinstance(node, ast.Subscript) and _is_state(node.slice))
        for node in ast.walk(target)
    )


def _is_own(target: ast.Attribute) -> bool:
    """`self.state = …` of a class that is no row: a plain object may have a state of its own."""
    return isinstance(target.value, ast.Name) and target.value.id == "self"


def _writes_state(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "setattr":
        return len(call.args) > 1 and _is_state(call.args[1])
    if name not in WRITING_CALLS:
        return False
    if any(keyword.arg == "state" for keyword in call.keywords):
        return True
    inner = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(
        _is_state(found) for value in inner for found in ast.walk(value) if not isinstance(value, ast.GeneratorExp)
    )


def _is_state(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == "state"


def _smells(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    part = _part(module)
    for node in ast.walk(tree):
        if part == "tasks" and isinstance(node, ast.For | ast.While | ast.If | ast.Try):
            yield node.lineno, "a task only calls the engine: no logic, no loop, no except"
        if part == "models" and isinstance(node, ast.FunctionDef) and node.name in ("save", "delete"):
            yield node.lineno, "no logic in save() or delete(): bulk writes go past it"


def modules() -> list[str]:
    found = (path.relative_to(BATCHES).with_suffix("") for path in sorted(BATCHES.rglob("*.py")))
    return [str(path.parent if path.name == "__init__" and len(path.parts) > 1 else path) for path in found]


def source_of(module: str) -> str:
    path = BATCHES / module
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [module for module in modules() if module != "__init__"])
def test_module_keeps_to_its_layer(module: str) -> None:
    assert _part(module) in MAY_IMPORT, f"batches/{_part(module)} has no row in MAY_IMPORT; decide what it may import"
    assert breaches(module, source_of(module)) == []


def test_every_row_of_the_table_is_about_something_that_exists() -> None:
    assert {_part(module) for module in modules()} - {"__init__"} == set(MAY_IMPORT)


def test_no_part_reaches_itself_through_others() -> None:
    """Readers may use each other; besides them the table is a ladder."""
    reached = {part: {other for other in may if not {part, other} <= READERS} for part, may in MAY_IMPORT.items()}
    for _ in MAY_IMPORT:
        reached = {part: may | {deeper for other in may for deeper in reached[other]} for part, may in reached.items()}
    assert [part for part, may in reached.items() if part in may] == []


@pytest.mark.parametrize("writer", [DRAFT_WRITER, EXPORT_WRITER])
def test_the_writer_of_drafts_and_that_of_exports_know_no_job(writer: str) -> None:
    names = {name for _line, name in _imported(writer, ast.parse(source_of(writer)))}
    assert not [name for name in names if "Job" in name or "transitions" in name]


PLANTED = [
    ("engine/claims", "from batches.views import batches"),
    ("engine/claims", "from batches import admin"),
    ("engine/claims", "from ..views import batches"),
    ("engine/claims", "def late():\n    from batches.forms import UploadForm"),
    ("engine/claims", "import requests"),
    ("engine/claims", "from urllib3.util import Retry"),
    ("engine/claims", "from django.http import HttpRequest"),
    ("engine/claims", "from django_q.tasks import async_task"),
    ("views/batches", "from batches.providers import make_provider"),
    ("views/batches", "from batches.queue import ring"),
    ("views/batches", "import requests.adapters"),
    ("providers/relaypdf", "from batches.models import Job"),
    ("providers/relaypdf", "from django.db import models"),
    ("models/jobs", "from batches.engine import claims"),
    ("models/jobs", "from django.db.models.signals import post_save"),
    ("models/jobs", "class Job:\n    def save(self):\n        pass"),
    ("manifests/reading", "from batches.models import Document"),
    ("storage/files", "from batches.engine import keys"),
    ("selectors", "from batches.engine import intake"),
    ("sandbox/jobs", "from batches.models import Job"),
    ("sandbox/jobs", "from batches.conf import ENGINE"),
    ("tasks", "from batches.models import Job"),
    ("tasks", "def sweep():\n    for job in ():\n        pass"),
    ("tasks", "def sweep():\n    try:\n        pass\n    except ValueError:\n        pass"),
    ("conf", "from batches.models import Job"),
    ("queue", "from batches.engine import claims"),
    ("archives", "import boto3"),
    ("engine/keys", "import relaypdf_site.settings"),
    ("engine/sweep", "now = timezone.now()"),
    ("engine/sweep", "now = datetime.now(UTC)"),
    ("engine/sweep", "now = datetime.datetime.utcnow()"),
    ("selectors", "today = date.today()"),
    ("providers/relaypdf", "now = datetime.now(tz=UTC)"),
    ("engine/sweep", "Job.objects.filter(pk=1).update(state='failed')"),
    ("engine/sweep", "Job.objects.filter(pk=1).update(**{'state': 'failed'})"),
    ("engine/sweep", "Job.objects.create(state='saved')"),
    ("engine/sweep", "job = Job(version=v, state='saved')"),
    ("engine/sweep", "Job.objects.bulk_update(jobs, ['state'])"),
    ("engine/sweep", "Job.objects.update_or_create(pk=1, defaults={'state': 'saved'})"),
    ("engine/sweep", "job.state = JobState.SAVED"),
    ("engine/sweep", "job.state, job.due_at = JobState.SAVED, now"),
    ("engine/sweep", "setattr(job, 'state', 'saved')"),
    ("engine/sweep", "row = {'pk': 1, 'state': 'saved'}"),
    ("engine/sweep", "row['state'] = 'saved'"),
    ("engine/sweep", "cursor.execute('UPDATE batches_job SET due_at = now(), state = %s')"),
    ("admin", "queryset.update(state='pending')"),
    ("views/documents", "job.state = 'pending'"),
]

INNOCENT = [
    ("engine/claims", "from batches.models import Job\nJob.objects.filter(state='pending').update(lease_owner=None)"),
    ("engine/transitions", "row = {'state': 'saved'}"),
    ("engine/clock", "base = datetime.now(UTC)"),
    ("models/jobs", "created_at = DateTimeField(default=timezone.now)"),
    ("views/batches", "now = timezone.now()"),
    ("selectors", "answer = {'state': job.state}"),
    ("providers/http", "import requests"),
    ("queue", "from django_q.tasks import async_task"),
    ("sandbox/jobs", "job.state = 'done'"),
]


@pytest.mark.parametrize(("module", "source"), PLANTED)
def test_a_planted_breach_is_found(module: str, source: str) -> None:
    assert len(breaches(module, source)) >= 1


@pytest.mark.parametrize(("module", "source"), INNOCENT)
def test_what_is_allowed_is_left_alone(module: str, source: str) -> None:
    assert breaches(module, source) == []
