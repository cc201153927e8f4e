"""What reading takes of memory, in a process of its own: no input, however made, may cost the others their worker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.manifests.samples import CASES

MOST_BYTES = 300_000_000

READ = """
import pathlib, re, sys
from batches import manifests

for path in map(pathlib.Path, sys.argv[1:]):
    for read in (manifests.look, manifests.read):
        with path.open("rb") as stream:
            try:
                seen = read(manifests.from_upload(stream, path.name))
                if read is manifests.read:
                    with seen as manifest:
                        for row in manifest.rows:
                            row.text()
            except manifests.ManifestRefused:
                pass
# Not getrusage: its peak begins with what the parent had when it forked.
print(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])
"""


def peak(*paths: Path) -> int:
    """The most bytes that a process had which looked at these and read them all."""
    done = subprocess.run([sys.executable, "-c", READ, *map(str, paths)], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024


def test_every_input_of_the_case_log_is_read_in_little_memory() -> None:
    assert peak(*sorted(CASES.iterdir())) < MOST_BYTES


@pytest.mark.parametrize("filler", ["x", "é", "🧾", "\\u00e9", "\\ud83e\\uddfe"], ids=ascii)
@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv"])
def test_a_row_of_the_largest_size_is_read_in_little_memory(tmp_path: Path, suffix: str, filler: str) -> None:
    text = filler * (31_900_000 // len(filler.encode()))
    path = tmp_path / f"one.{suffix}"
    row = f'{{"id": "INV-1", "html": "<p>{text}</p>"}}'
    path.write_text(f'id,html\nINV-1,"<p>{text}</p>"\n' if suffix == "csv" else f"[{row}]" if suffix == "json" else row)
    assert peak(path) < MOST_BYTES


def test_a_row_of_very_many_values_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_text(json.dumps({"id": "INV-1", "html": "<p>1</p>", "data": [1] * 5_000_000}) + "\n")
    assert peak(path) < MOST_BYTES
