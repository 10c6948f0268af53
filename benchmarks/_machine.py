"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["machine_record"]


def machine_record(work_dir: Path) -> dict[str, Any]:
    """Describe processor, memory, system, the file system of `work_dir` and the code's commit."""
    return {
        "cpu": _field(Path("/proc/cpuinfo"), "model name") or platform.processor() or "unknown",
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "file_system": _file_system(work_dir),
        "load_before": os.getloadavg()[0],
        "commit": _commit(),
    }


def _field(path: Path, key: str) -> str | None:
    if not path.exists():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)


def _file_system(folder: Path) -> str:
    """The type of the mount that holds `folder`: the one with the longest matching path."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    rows = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()]
    above = [row for row in rows if folder.resolve().is_relative_to(row[1])]
    return max(above, key=lambda row: len(row[1]))[2] if above else "unknown"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(  # noqa: PLW1510 - a tree without commits, or no git, is no failure
        command, cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return done.stdout.strip() or "uncommitted"
