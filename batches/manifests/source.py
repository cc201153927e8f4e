"""What was handed over, and how it opens: a ZIP with its files, a manifest alone, a folder, or a pasted text.

Owns finding the manifest and the files beside it, and the manifest that is proposed for HTML files without one. Knows
no row and no rule about documents.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Protocol

from batches.manifests import paths, sniffing
from batches.manifests.archive import Archive, Entry
from batches.manifests.folder import FolderFiles
from batches.manifests.limits import Limits
from batches.manifests.problems import Code, ManifestRefused, Unfit, listed, megabytes, shown

Container = Literal["file", "zip", "folder"]
_SPOOL_BYTES = 4_000_000
_JSON_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson"})
_TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".tab", ".psv", ".xlsx", ".xlsm", ".xls", ".ods", ".txt"})
_PAGE_SUFFIXES = frozenset({".html", ".htm", ".xhtml"})
_FIX_NAME = "Name it manifest.json, manifest.csv or manifest.xlsx and put it at the top of the ZIP."


@dataclass(frozen=True, slots=True)
class ManifestSource:
    """An upload (`stream`) or something on disk (`path`); exactly one is set."""

    filename: str
    stream: IO[bytes] | None = None
    path: Path | None = None


class Files(Protocol):
    """The files that rows may name."""

    def locate(self, path: str) -> str:
        """The one name of the file that a row means by `path`. Raises Unfit, its message continuing `The path x `."""
        ...

    def read(self, name: str) -> bytes:
        """The bytes of a file that `locate` named. Raises Unfit, its message continuing `The file x `."""
        ...

    def names(self) -> Iterator[str]:
        """Every file that a row could name, to find the ones that none does."""
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """An upload whose manifest was found; `stream` and `upload` are seekable."""

    container: Container
    stream: IO[bytes]
    """The manifest's bytes."""
    upload: IO[bytes]
    """What was handed over: the ZIP, else the same as `stream`."""
    files: Files
    manifest_name: str
    links: tuple[str, ...] = ()
    """Links in a ZIP; never followed."""
    lists_files: bool = False
    """Whether files that no row names are worth a warning."""
    proposed_rows: int = 0
    """HTML files, where there was no manifest and `stream` holds a row for each, as JSONL."""


def from_upload(stream: IO[bytes], filename: str) -> ManifestSource:
    """An uploaded file. `stream` is binary and seekable; it has to stay open until the manifest is closed."""
    return ManifestSource(paths.name_of(filename.replace("\\", "/"))[:255] or "upload", stream=stream)


def from_text(text: str) -> ManifestSource:
    """A table (or JSON) that somebody pasted."""
    # Half of a character goes on as bytes that are no UTF-8: reading refuses them with their line.
    return ManifestSource("pasted.txt", stream=io.BytesIO(text.encode("utf-8", "surrogatepass")))


def from_path(path: str | Path) -> ManifestSource:
    """A manifest beside its files, a ZIP, or a folder with a manifest in it (command line)."""
    return ManifestSource(Path(path).name[:255] or str(path), path=Path(path))


def opened(
    source: ManifestSource, limits: Limits, stack: ExitStack, *, propose_rows: bool = False, most: int | None = None
) -> Opened:
    """Open `source`; whatever is opened closes with `stack`. Raises ManifestRefused.

    With `propose_rows`, HTML files without a manifest get one. `most` is how much of a manifest in a ZIP is unpacked
    when its first bytes are enough (a workbook comes whole).
    """
    if source.path is not None and source.path.is_dir():
        return _opened_folder(source.path, limits, stack, propose_rows=propose_rows)
    if source.stream is not None:
        stream = source.stream
    elif source.path is not None:
        stream = _file(source.path, stack)
    else:
        raise ValueError("a ManifestSource needs a stream or a path")
    size = stream.seek(0, 2)
    if size > limits.max_upload_bytes:
        raise too_large("The file", size, limits.max_upload_bytes)
    stream.seek(0)
    if sniffing.looks_like(stream.read(sniffing.HEAD_BYTES)) == "a ZIP":
        archive = Archive(stream, limits)
        if not archive.is_workbook:
            return _opened_zip(stream, archive, limits, stack, propose_rows=propose_rows, most=most)
    if source.path is not None:
        files = FolderFiles(source.path.parent, limits)
        return Opened("folder", stream, stream, files, source.path.name)
    return Opened("file", stream, stream, NoFiles(), source.filename)


class NoFiles:
    """The files of a manifest that came alone: there are none."""

    def locate(self, path: str) -> str:
        raise Unfit(
            Code.MISSING_FILE,
            "came without its file: this needs a ZIP with the file.",
            "Put the manifest and its HTML files into one ZIP and upload that. "
            "If the text itself was meant, give it as html_content.",
        )

    def read(self, name: str) -> bytes:
        raise Unfit(Code.MISSING_FILE, "did not come with the manifest.", "Upload a ZIP with the file.")

    def names(self) -> Iterator[str]:
        return iter(())


class ZipFiles:
    """The files of a ZIP, relative to the folder its manifest stands in."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self._archive = archive
        self._prefix = f"{folder}/" if folder else ""
        self._by_loose_name: dict[str, str] = {}

    def locate(self, path: str) -> str:
        try:
            wanted = paths.normalised(path)
        except paths.UnsafePath as reason:
            fix = "Name a file in the ZIP, relative to the manifest. A web page's address goes into url."
            raise Unfit(Code.ARCHIVE_UNSAFE, f"{reason}.", fix) from reason
        entry = self._archive.find(self._prefix + wanted)
        if entry is None:
            raise Unfit(Code.MISSING_FILE, "is not in the ZIP.", self._advice(wanted))
        if entry.is_link:
            raise Unfit(Code.ARCHIVE_UNSAFE, "is a link, which is never followed.", "Put the file itself in the ZIP.")
        return entry.name

    def read(self, name: str) -> bytes:
        return self._archive.read(self._entry(name))

    def names(self) -> Iterator[str]:
        return (entry.name for entry in self._archive.files if not entry.is_link)

    def _entry(self, name: str) -> Entry:
        entry = self._archive.find(name)
        if entry is None:
            raise Unfit(Code.MISSING_FILE, "is not in the ZIP.", self._advice(name))
        return entry

    def _advice(self, wanted: str) -> str:
        """Where a file of nearly this name stands, for somebody who mistyped it."""
        if not self._by_loose_name:
            for entry in self._archive.files:
                self._by_loose_name.setdefault(paths.name_of(entry.name).casefold(), entry.name)
        near = self._by_loose_name.get(paths.name_of(wanted).casefold())
        if near is None:
            return "Put it in the ZIP, or correct the path."
        return f"The ZIP holds {shown(near)}: correct the path (folders and capitals count)."


def chosen_manifest(names: list[str]) -> str:
    """Which of `names` (normalised) is the manifest: at the top, else one folder down.

    A file called `manifest.…` comes before other JSON, JSON before tables. Raises ManifestRefused: none, or more than
    one.
    """
    for depth in (0, 1):
        level = [name for name in names if name.count("/") == depth]
        for candidates in _candidates(level):
            if len(candidates) > 1:
                raise ManifestRefused(
                    Code.SEVERAL_MANIFESTS,
                    f"There is more than one manifest: {listed(candidates)}.",
                    "Keep one of them, or name the right one manifest (as in manifest.csv).",
                    files=candidates,
                )
            if candidates:
                return candidates[0]
    deeper = [name for name in names if is_manifest(name) and paths.suffix_of(name) in _JSON_SUFFIXES | _TABLE_SUFFIXES]
    if deeper:
        message = f"The manifest stands too deep: {shown(deeper[0])}."
        raise ManifestRefused(Code.NO_MANIFEST, message, "Pack that folder itself.", files=deeper)
    message = f"There is no manifest; found {listed(sorted(names))}."
    raise ManifestRefused(Code.NO_MANIFEST, message, _FIX_NAME, files=names[:100])


def _candidates(level: list[str]) -> Iterator[list[str]]:
    json_files = sorted(name for name in level if paths.suffix_of(name) in _JSON_SUFFIXES)
    tables = sorted(name for name in level if paths.suffix_of(name) in {*_TABLE_SUFFIXES, ""})
    yield [name for name in sorted([*json_files, *tables]) if is_manifest(name)]
    yield json_files
    yield [name for name in tables if paths.suffix_of(name) in _TABLE_SUFFIXES - {".txt"}]


def _manifest_or_pages(names: list[str], where: str, *, propose_rows: bool) -> tuple[str, list[str]]:
    """The manifest's name, or "" and the HTML files that each become a document. Raises ManifestRefused."""
    try:
        return chosen_manifest(names), []
    except ManifestRefused as refused:
        pages = sorted(name for name in names if paths.suffix_of(name) in _PAGE_SUFFIXES)
        if refused.code is not Code.NO_MANIFEST or not pages or any(map(is_manifest, names)):
            raise
    if not propose_rows:
        count = "one HTML file" if len(pages) == 1 else f"{len(pages):,} HTML files"
        message = f"There is no manifest; the {where} holds {count}: {listed(pages)}."
        fix = "Confirm that each becomes a document named after its file, or add a manifest that names them."
        raise ManifestRefused(Code.NO_MANIFEST, message, fix, files=pages[:100])
    return "", pages


def _proposal(pages: Iterable[str], stack: ExitStack) -> IO[bytes]:
    """A row for each page, as JSONL: its id is the file's name without folder and ending."""
    rows = spool(stack)
    for page in pages:
        stem = paths.name_of(page).rpartition(".")[0]
        row = {"id": stem, "html": f"./{page}" if page.lstrip().startswith("<") else page}
        rows.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return rows


def is_manifest(name: str) -> bool:
    """Whether a file is called `manifest`, with whatever ending."""
    return paths.name_of(name).lower().split(".")[0] == "manifest"


def spool(stack: ExitStack) -> IO[bytes]:
    """A temporary file that stays in memory while it is small, and goes when `stack` closes."""
    return stack.enter_context(tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES))


def _opened_zip(
    stream: IO[bytes], archive: Archive, limits: Limits, stack: ExitStack, *, propose_rows: bool, most: int | None
) -> Opened:
    links = tuple(entry.name for entry in archive.files if entry.is_link)
    names = [entry.name for entry in archive.files if not entry.is_link]
    name, pages = _manifest_or_pages(names, "ZIP", propose_rows=propose_rows)
    if pages:
        files = ZipFiles(archive, "")
        return Opened(
            "zip", _proposal(pages, stack), stream, files, "", links, lists_files=True, proposed_rows=len(pages)
        )
    entry = archive.find(name)
    if entry is None:
        raise ManifestRefused(Code.NO_MANIFEST, "There is no manifest in the ZIP.", _FIX_NAME)
    if entry.zip_info.file_size > limits.max_manifest_bytes:
        raise too_large("The manifest", entry.zip_info.file_size, limits.max_manifest_bytes)
    copy = spool(stack)
    size = 0
    is_archive = False
    for chunk in archive.chunks(entry, limits.max_manifest_bytes):
        is_archive = is_archive or (not size and sniffing.looks_like(chunk) == "a ZIP")
        copy.write(chunk)
        size += len(chunk)
        if most is not None and size >= most and not is_archive:
            break
    files = ZipFiles(archive, paths.folder_of(name))
    return Opened("zip", copy, stream, files, name, links, lists_files=True)


def _opened_folder(folder: Path, limits: Limits, stack: ExitStack, *, propose_rows: bool) -> Opened:
    files = FolderFiles(folder, limits)
    try:
        top = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    except OSError as error:
        raise _unreadable(folder, error) from error
    top = [name for name in top if not paths.is_junk(name)]
    try:
        name = chosen_manifest(top)
    except ManifestRefused as refused:
        if refused.code is not Code.NO_MANIFEST:
            raise
        name, pages = _manifest_or_pages(list(files.names()), "folder", propose_rows=propose_rows)
        if pages:
            stream = _proposal(pages, stack)
            return Opened("folder", stream, stream, files, "", lists_files=True, proposed_rows=len(pages))
    stream = _file(folder / name, stack)
    files = FolderFiles((folder / name).parent, limits)
    return Opened("folder", stream, stream, files, paths.name_of(name), lists_files=True)


def _file(path: Path, stack: ExitStack) -> IO[bytes]:
    try:
        if not path.is_file():
            message = f"There is no file {shown(str(path))}."
            raise ManifestRefused(Code.NOT_READABLE, message, "Check the path; a file or a folder is wanted.")
        return stack.enter_context(path.open("rb"))
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ManifestRefused:
    message = f"{shown(str(path))} cannot be read ({error.strerror})."
    return ManifestRefused(Code.NOT_READABLE, message, "Check its permissions.")


def too_large(what: str, size: int, most: int) -> ManifestRefused:
    """The refusal of an upload, or of its manifest, that has `size` bytes."""
    message = f"{what} is {megabytes(size)} large; {megabytes(most)} are allowed."
    return ManifestRefused(Code.UPLOAD_TOO_LARGE, message, "Split it into several uploads.")
