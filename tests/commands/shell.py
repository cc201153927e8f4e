"""A command as a shell sees it: its exit code and what it printed."""

from __future__ import annotations

import io
from typing import Any

from django.core.management import call_command
from django.core.management.base import CommandError


def run(*arguments: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command, as a shell would see them."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command(*arguments, stdout=out, stderr=err, no_color=True)
    except CommandError as error:
        return error.returncode, out.getvalue(), f"{err.getvalue()}{error}"
    except SystemExit as error:
        return int(error.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()
