"""Fixtures as files: a compressed archive per scenario, and beside it what is expected of it."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

__all__ = ["FIXTURES", "Fixture", "fixtures", "pack", "unpack"]

FIXTURES: Final = Path(__file__).parent / "fixtures"
_NUMBERS: Final = re.compile(r"\[\s+-?\d+(,\s+-?\d+)*\s+\]")
_BILLION: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Fixture:
    """One scenario as one release wrote it."""

    release: str
    scenario: str

    def __str__(self) -> str:
        return f"{self.release}-{self.scenario}"

    @property
    def archive(self) -> Path:
        """The archive; scenarios without files have none."""
        return FIXTURES / self.release / f"{self.scenario}.tar.xz"

    @property
    def manifest_path(self) -> Path:
        """What is expected."""
        return FIXTURES / self.release / f"{self.scenario}.json"

    @property
    def manifest(self) -> dict[str, Any]:
        """What is expected, parsed."""
        found: dict[str, Any] = json.loads(self.manifest_path.read_text(encoding="utf-8"))
        return found

    def unpack(self, folder: Path, below: str = "", *, keep_times: bool = True) -> Path:
        """Extract the archive, or one folder of it, and return the folder."""
        unpack(self.archive, folder, below, keep_times=keep_times)
        return folder

    def save(self, source: Path, manifest: dict[str, Any]) -> None:
        """Write archive and manifest of what lies in `source`."""
        self.archive.parent.mkdir(parents=True, exist_ok=True)
        pack(source, self.archive)
        text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False)
        # A list of numbers takes one line.
        text = _NUMBERS.sub(lambda found: " ".join(found[0].split()), text)
        self.manifest_path.write_text(f"{text}\n", encoding="utf-8")


def fixtures(scenario: str) -> list[Fixture]:
    """Return a scenario's fixtures of all releases that have one."""
    found = sorted(FIXTURES.glob(f"*/{scenario}.json"))
    return [Fixture(path.parent.name, scenario) for path in found]


def pack(folder: Path, archive: Path) -> None:
    """Write all below `folder` to an archive: names sorted, owner 0, times to the nanosecond."""
    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as out:
        for path in sorted(folder.rglob("*")):
            if not (path.is_file() or path.is_dir()) or path.is_symlink():
                msg = f"{path}: only files and folders can be packed"
                raise ValueError(msg)
            info = out.gettarinfo(path, path.relative_to(folder).as_posix())
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            written = path.stat().st_mtime_ns
            info.mtime = written // _BILLION
            # The number field of the header holds whole seconds only.
            info.pax_headers = {"mtime": f"{written // _BILLION}.{written % _BILLION:09d}"}
            if not path.is_file():
                out.addfile(info)
                continue
            with path.open("rb") as data:
                out.addfile(info, data)


def unpack(archive: Path, folder: Path, below: str = "", *, keep_times: bool = True) -> None:
    """Extract an archive, or one folder of it, with or without the times of its files.

    An archive is read once per process; what it holds is copied from then on.
    """
    copy = shutil.copy2 if keep_times else shutil.copyfile
    shutil.copytree(_extracted(archive) / below, folder, copy_function=copy, dirs_exist_ok=True)


@cache
def _extracted(archive: Path) -> Path:
    """Extract an archive to a temporary folder that lives as long as the process."""
    folder = Path(tempfile.mkdtemp(prefix="streaming-core-compat-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(archive, "r:xz") as source:
        for member in source:
            path = folder / member.name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            data = source.extractfile(member)
            assert data is not None, f"{member.name} is not a file"
            path.write_bytes(data.read())
            seconds, _, fraction = member.pax_headers["mtime"].partition(".")
            written = int(seconds) * _BILLION + int(fraction)
            os.utime(path, ns=(written, written))
    return folder
