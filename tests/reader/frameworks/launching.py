"""Start jobs as the ranks of a launcher, and collect what each has seen."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "launch", "quiet_environment", "torchrun"]

ROOT = Path(__file__).parents[3]
_DEADLINE = 600


def quiet_environment() -> dict[str, str]:
    """Return this process's variables without any launcher's, for work on few processors."""
    kept = {k: v for k, v in os.environ.items() if k not in {"RANK", "WORLD_SIZE", "LOCAL_RANK"}}
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
        "ACCELERATE_USE_CPU": "true",
        "HF_HUB_OFFLINE": "1",
    }


def launch(ranks: int, module: str, job: str, out: Path, *arguments: object) -> list[Any]:
    """Run `job` of `module` once for each rank, and return what each wrote into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, job, str(out), *map(str, arguments)],
            cwd=out,
            env={**quiet_environment(), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for variables in _variables(ranks)
    ]
    try:
        said = [process.communicate(timeout=_DEADLINE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, text in zip(processes, said, strict=True):
        assert process.returncode == 0, text[-4000:]
    return [json.loads((out / f"{job}.{rank}.json").read_text()) for rank in range(ranks)]


def _variables(ranks: int) -> list[dict[str, str]]:
    """Return what torchrun would tell each rank; nothing for a single one."""
    if ranks == 1:
        return [{}]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_PORT": port}
    return [
        {**common, "MASTER_ADDR": "127.0.0.1", "RANK": str(rank), "LOCAL_RANK": str(rank)}
        for rank in range(ranks)
    ]


def torchrun(ranks: int, module: str, job: str, out: Path, *, restarts: int) -> None:
    """Run `job` under the real torchrun, which starts all ranks anew when one dies."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", "--monitor-interval=0.1"),
            *("-m", module, job, str(out)),
        ],
        cwd=out,
        env=quiet_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=_DEADLINE,
    )
    assert done.returncode == 0, done.stderr[:6000]
