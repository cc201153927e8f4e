"""Folders on the command line: files beside a manifest, and no way out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from batches.manifests import Code, Limits, ManifestRefused, from_path, read
from tests.manifests.samples import PAGE, codes, row, zipped


def folder(root: Path, rows: list[object], **files: str) -> Path:
    root.mkdir(exist_ok=True)
    (root / "manifest.json").write_text(json.dumps(rows))
    for name, content in files.items():
        path = root / f"{name.replace('__', '/')}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.parametrize("as_file", [True, False])
def test_a_folder_is_read_by_its_manifest(tmp_path: Path, as_file: bool) -> None:
    root = folder(tmp_path / "in", [row(html="a.html"), row(id="B", html="sub/b.html")], a=PAGE, sub__b="<p>b</p>")
    with read(from_path(root / "manifest.json" if as_file else root)) as manifest:
        assert manifest.errors == ()
        assert manifest.container == "folder"
        assert [only.text() for only in manifest.rows] == [PAGE, "<p>b</p>"]
        assert [only.path for only in manifest.rows] == ["a.html", "sub/b.html"]


def test_a_zip_on_disk_is_read(tmp_path: Path) -> None:
    path = tmp_path / "october"
    path.write_bytes(zipped({"a.html": PAGE}, rows=[row(html="a.html")]))
    with read(from_path(str(path))) as manifest:
        assert manifest.container == "zip"
        assert manifest.rows[0].text() == PAGE


def test_files_beside_are_listed_for_a_folder_and_not_for_a_manifest(tmp_path: Path) -> None:
    root = folder(tmp_path / "in", [row(html="a.html")], a=PAGE, spare=PAGE, sub__deep=PAGE)
    with read(from_path(root)) as manifest:
        (warning,) = manifest.warnings
        assert sorted(warning.files) == ["spare.html", "sub/deep.html"]
    with read(from_path(root / "manifest.json")) as manifest:
        assert manifest.warnings == ()


def test_no_path_leaves_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.html").write_text("<p>secret</p>")
    root = folder(
        tmp_path / "in",
        [
            row(id="A", html="../secret.html"),
            row(id="B", html=str(tmp_path / "secret.html")),
            row(id="C", html="link.html"),
            row(id="D", html="out/secret.html"),
            row(id="E", html="x/../../secret.html"),
            row(id="F", html="inside.html"),
        ],
        a=PAGE,
    )
    (root / "link.html").symlink_to(tmp_path / "secret.html")
    (root / "out").symlink_to(tmp_path)
    (root / "inside.html").symlink_to(root / "a.html")

    with read(from_path(root)) as manifest:
        assert codes(manifest.errors) == [("archive_unsafe", "html", (0, 1, 2, 3, 4))]
        assert [(only.business_id, only.text()) for only in manifest.rows] == [("F", PAGE)]
        assert "secret" not in json.dumps(manifest.report()["warnings"])


@pytest.mark.parametrize("path", ["nothing.html", "sub", "pipe.html", "x" * 300, "locked.html\0"])
def test_what_is_no_file_is_an_error_of_its_row(tmp_path: Path, path: str) -> None:
    root = folder(tmp_path / "in", [row(html=path)], sub__a=PAGE)
    os.mkfifo(root / "pipe.html")
    with read(from_path(root)) as manifest:
        assert [code for code, _, _ in codes(manifest.errors)] in (["missing_file"], ["archive_unsafe"])


def test_a_decomposed_name_on_disk_is_found(tmp_path: Path) -> None:
    root = folder(tmp_path / "in", [row(html="r\u00e9sum\u00e9.html")])
    (root / "re\u0301sume\u0301.html").write_text(PAGE)
    with read(from_path(root)) as manifest:
        assert manifest.errors == ()
        assert manifest.rows[0].text() == PAGE


def test_a_file_that_changes_between_check_and_use_is_never_used(tmp_path: Path) -> None:
    root = folder(tmp_path / "in", [row(html="a.html"), row(id="B", html="b.html")], a=PAGE, b=PAGE)
    with read(from_path(root)) as manifest:
        (root / "a.html").write_text("<p>other</p>")
        (root / "b.html").unlink()
        for only in manifest.rows:
            with pytest.raises(ManifestRefused) as refused:
                only.text()
            assert refused.value.code is Code.CHANGED_WHILE_READING


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    root = folder(tmp_path / "in", [row(html="a.html")], a="<p>" + "x" * 500)
    with read(from_path(root), Limits(max_document_bytes=100)) as manifest:
        assert codes(manifest.errors) == [("file_too_large", "html", (0,))]


@pytest.mark.parametrize(
    ("name", "code"), [("nowhere", Code.NOT_READABLE), ("empty", Code.NO_MANIFEST), ("pipe", Code.NOT_READABLE)]
)
def test_a_path_that_leads_nowhere_is_refused_with_a_sentence(tmp_path: Path, name: str, code: Code) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ManifestRefused) as refused:
        read(from_path(tmp_path / name))

    assert refused.value.code is code
    assert refused.value.fix
