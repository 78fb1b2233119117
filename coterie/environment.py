"""What made a run: versions, device and commit."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("coterie", "torch", "numpy", "scikit-learn", "safetensors")


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Versions, device, commit and date as plain values."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source tree, where this is one."""
    here = Path(__file__).parent.parent
    if not (here / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(here), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
