#!/usr/bin/env python
"""Run a management command of RelayPDF Batches."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relaypdf_site.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.stderr.write(f"The settings make no sense: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
