"""The sandbox stands on its own: no Django, nothing of `batches` but its own package."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox_process import PROJECT_ROOT

PACKAGE = PROJECT_ROOT / "batches" / "sandbox"


def imported_by(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_it_imports_nothing_of_batches_but_itself() -> None:
    foreign = {
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        for name in imported_by(path.read_text(encoding="utf-8"))
        if name.startswith(("batches", "relaypdf_site", "django")) and not name.startswith("batches.sandbox")
    }
    assert foreign == set()


@pytest.mark.processes
def test_it_starts_without_django() -> None:
    program = "import sys, batches.sandbox.cli; sys.exit('django' in sys.modules or 'plutoprint' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=PROJECT_ROOT, check=True, timeout=60)


@pytest.mark.processes
def test_the_management_command_takes_the_same_arguments(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "sandbox", "--port", "0", "--set", "jobs.moon=1"]
    command += ["--data-dir", str(tmp_path / "sandbox")]
    refused = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "there is no switch 'jobs.moon'" in refused.stderr
    assert "Traceback" not in refused.stderr
