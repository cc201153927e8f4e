"""The fonts that documents are set in: those of three installed packages, and no others.

A machine without fonts would otherwise get PDFs without text, and a machine with fonts would get other PDFs
than its neighbour. The packages cover Latin, Greek, Cyrillic, Arabic, Hebrew, Thai, the scripts of India,
Ethiopic, Armenian, Georgian, CJK, symbols and emoji. They hold no serif and no fixed-width face, so both names
lead to Noto Sans.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

FONT_PACKAGES = ("fontpkg_noto_sans", "manimgx_fonts", "manimgx_fonts_cjk")

_GENERIC = ("sans-serif", "serif", "monospace", "cursive", "fantasy", "system-ui")
_LOOKALIKES = ("Arial", "Helvetica", "Verdana", "Times New Roman", "Georgia", "Courier New", "DejaVu Sans")


class FontsMissing(Exception):
    """A font package is not installed."""


def font_directories() -> list[Path]:
    """The folders of the font packages. Raises FontsMissing, naming the package to install."""
    found = []
    for package in FONT_PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            distribution = package.replace("_", "-")
            raise FontsMissing(
                f"The font package {distribution} is not installed, and without it text would be lost. "
                f"Run: pip install {distribution}"
            )
        found.append(Path(next(iter(spec.submodule_search_locations))))
    return found


@dataclass(frozen=True)
class FontSetup:
    """`conf` goes into the environment variable FONTCONFIG_FILE; `readable` is what rendering needs to read."""

    conf: Path
    readable: tuple[Path, ...]


def set_up(folder: Path) -> FontSetup:
    """Write `fonts.conf` into `folder`. Raises FontsMissing."""
    directories = font_directories()
    cache = _cache_folder(folder)
    lines = ['<?xml version="1.0"?>', '<!DOCTYPE fontconfig SYSTEM "fonts.dtd">', "<fontconfig>"]
    lines += [f"<dir>{escape(str(directory))}</dir>" for directory in directories]
    lines.append(f"<cachedir>{escape(str(cache))}</cachedir>")
    # Both packages hold a Noto Sans; the one with the width axis is kept.
    duplicates = directories[FONT_PACKAGES.index("manimgx_fonts")]
    for name in ("NotoSans?wght?.ttf", "NotoSans-Italic?wght?.ttf"):
        pattern = escape(str(duplicates / name))
        lines.append(f"<selectfont><rejectfont><glob>{pattern}</glob></rejectfont></selectfont>")
    for family in (*_GENERIC, *_LOOKALIKES):
        lines.append(f"<alias><family>{family}</family><prefer><family>Noto Sans</family></prefer></alias>")
    lines.append("</fontconfig>")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "fonts.conf"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return FontSetup(path, (*directories, folder, cache))


def _cache_folder(fallback: Path) -> Path:
    """A folder for fontconfig's index: shared by the user's sandboxes where that can be written."""
    own = fallback / "fontconfig"
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        shared = Path(base) / "relaypdf-sandbox" / "fontconfig"
        shared.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        # No home, or one that can't be written.
        return own
    return shared if os.access(shared, os.W_OK) else own
