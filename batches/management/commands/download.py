"""`manage.py download ID --out F.zip`: the stored PDFs of a batch with their lists."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from batches import archives, storage
from batches.management import auditing, choosing
from batches.management.readiness import DatabaseCommand


class Command(DatabaseCommand):
    help = "Write the ZIP of what is saved. It appears under its name only when it is whole."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="The batch's id, as in bat_…")
        parser.add_argument("--out", required=True, metavar="F.zip", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        batch, out = choosing.batch(options["id"]), options["out"]
        now = timezone.now()
        if not out.parent.is_dir():
            raise choosing.refusal(f"There is no folder {out.parent}; make it first, or write to another place.")
        if out.is_dir():
            raise choosing.refusal(f"{out} is a folder; give the name of the file, such as {out / 'documents.zip'}.")
        try:
            archive = archives.build(batch, store=storage.open_store(settings.STORAGE_URL), now=now, with_ids=True)
            _write(archive, out)
        except archives.NothingSaved as nothing:
            otherwise = f"Nothing of {batch.public_id} is saved yet, so there is nothing to download."
            raise CommandError(nothing.words(otherwise)) from None
        except (archives.ArchiveBroken, storage.StoreError) as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise choosing.refusal(f"{out} cannot be written ({error.strerror}).") from error
        facts = {"documents": archive.document_count, "rows": archive.row_count}
        auditing.record("download_archive", f"batch {batch.public_id}", batch.workspace, now=now, facts=facts)
        note = " (PARTIAL: manifest.csv says why the others are missing)" if archive.is_partial else ""
        self.stdout.write(f"{out}: {archive.document_count:,} of {archive.row_count:,} documents{note}")


def _write(archive: archives.Archive, out: Path) -> None:
    handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name[:40]}-")
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in archive.chunks:
                file.write(chunk)
        Path(name).replace(out)
    except BaseException:
        Path(name).unlink()
        raise
