"""Adds the library and its header to the wheel."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent


class LibraryHook(BuildHookInterface[Any]):
    """Takes them from the folder HARTLINE_LIBRARY, or from target/libhartline of the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Names the files, and the platform that they are for."""
        default = HERE.parents[2] / "target/libhartline"
        folder = Path(os.environ.get("HARTLINE_LIBRARY", default))
        for name in ["libhartline.so.0", "hartline_host.h"]:
            file = folder / name
            if not file.is_file():
                message = f"{file} is missing: run vmm/embed-c/build.sh {folder}"
                raise FileNotFoundError(message)
            build_data["force_include"][str(file.resolve())] = f"hartline_host/{name}"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
