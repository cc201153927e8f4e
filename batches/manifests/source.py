"""What was handed over, and how it opens: a ZIP with its files, a manifest alone, or a folder.

Owns finding the manifest and the files beside it. Knows no row and no rule about documents.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
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
_TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".xlsx", ".xls", ".ods", ".txt"})
_FIX_NAME = "Name it manifest.json (or manifest.jsonl) and put it at the top of the ZIP."


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


def from_upload(stream: IO[bytes], filename: str) -> ManifestSource:
    """An uploaded file. `stream` is binary and seekable; it has to stay open until the manifest is closed."""
    return ManifestSource(paths.name_of(filename.replace("\\", "/"))[:255] or "upload", stream=stream)


def from_path(path: str | Path) -> ManifestSource:
    """A manifest beside its files, a ZIP, or a folder with a manifest in it (command line)."""
    return ManifestSource(Path(path).name[:255] or str(path), path=Path(path))


def opened(source: ManifestSource, limits: Limits, stack: ExitStack) -> Opened:
    """Open `source`; whatever is opened closes with `stack`. Raises ManifestRefused."""
    if source.path is not None and source.path.is_dir():
        return _opened_folder(source.path, limits, stack)
    if source.stream is not None:
        stream = source.stream
    elif source.path is not None:
        stream = _file(source.path, stack)
    else:
        raise ValueError("a ManifestSource needs a stream or a path")
    size = stream.seek(0, 2)
    if size > limits.max_upload_bytes:
        raise _too_large("The file", size, limits.max_upload_bytes)
    stream.seek(0)
    if sniffing.looks_like(stream.read(sniffing.HEAD_BYTES)) == "a ZIP":
        return _opened_zip(stream, limits, stack)
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

    A file called `manifest.…` comes before other JSON, JSON before tables (which are refused with a
    reason of their own once they are read). Raises ManifestRefused: none, or more than one.
    """
    for depth in (0, 1):
        level = [name for name in names if name.count("/") == depth]
        for candidates in _candidates(level):
            if len(candidates) > 1:
                raise ManifestRefused(
                    Code.SEVERAL_MANIFESTS,
                    f"There is more than one manifest: {listed(candidates)}.",
                    "Keep one of them, or name the right one manifest.json.",
                    files=candidates,
                )
            if candidates:
                return candidates[0]
    deeper = [name for name in names if is_manifest(name) and paths.suffix_of(name) in _JSON_SUFFIXES]
    if deeper:
        message = f"The manifest stands too deep: {shown(deeper[0])}."
        raise ManifestRefused(Code.NO_MANIFEST, message, "Pack that folder itself.", files=deeper)
    message = f"There is no manifest; found {listed(sorted(names))}."
    raise ManifestRefused(Code.NO_MANIFEST, message, _FIX_NAME, files=names[:100])


def _candidates(level: list[str]) -> Iterator[list[str]]:
    json_files = sorted(name for name in level if paths.suffix_of(name) in _JSON_SUFFIXES)
    yield [name for name in json_files if is_manifest(name)]
    yield json_files
    others = sorted(name for name in level if paths.suffix_of(name) in {*_TABLE_SUFFIXES, ""})
    yield [name for name in others if is_manifest(name)]
    yield [name for name in others if paths.suffix_of(name) in _TABLE_SUFFIXES - {".txt"}]


def is_manifest(name: str) -> bool:
    """Whether a file is called `manifest`, with whatever ending."""
    return paths.name_of(name).lower().split(".")[0] == "manifest"


def spool(stack: ExitStack) -> IO[bytes]:
    """A temporary file that stays in memory while it is small, and goes when `stack` closes."""
    return stack.enter_context(tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES))


def _opened_zip(stream: IO[bytes], limits: Limits, stack: ExitStack) -> Opened:
    archive = Archive(stream, limits)
    links = tuple(entry.name for entry in archive.files if entry.is_link)
    name = chosen_manifest([entry.name for entry in archive.files if not entry.is_link])
    entry = archive.find(name)
    if entry is None:
        raise ManifestRefused(Code.NO_MANIFEST, "There is no manifest in the ZIP.", _FIX_NAME)
    if entry.zip_info.file_size > limits.max_manifest_bytes:
        raise _too_large("The manifest", entry.zip_info.file_size, limits.max_manifest_bytes)
    copy = spool(stack)
    for chunk in archive.chunks(entry, limits.max_manifest_bytes):
        copy.write(chunk)
    files = ZipFiles(archive, paths.folder_of(name))
    return Opened("zip", copy, stream, files, name, links, lists_files=True)


def _opened_folder(folder: Path, limits: Limits, stack: ExitStack) -> Opened:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    except OSError as error:
        raise _unreadable(folder, error) from error
    name = chosen_manifest([name for name in names if not paths.is_junk(name)])
    stream = _file(folder / name, stack)
    files = FolderFiles(folder, limits)
    return Opened("folder", stream, stream, files, name, lists_files=True)


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


def _too_large(what: str, size: int, most: int) -> ManifestRefused:
    message = f"{what} is {megabytes(size)} large; {megabytes(most)} are allowed."
    return ManifestRefused(Code.UPLOAD_TOO_LARGE, message, "Split it into several uploads.")
