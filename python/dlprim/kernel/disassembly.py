"""Machine code as text, by the objdump of GNU binutils."""

from __future__ import annotations

import os
import shutil
import subprocess
from tempfile import NamedTemporaryFile

_OPTIONS = ["-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", "--no-show-raw-insn"]


def disassembly(code: bytes) -> str:
    """x86-64 code in Intel syntax: per line an offset, which jumps refer to, and an instruction.

    RuntimeError where there is no objdump, or it failed.
    """
    if not code:
        return ""
    objdump = shutil.which("objdump")
    if objdump is None:
        raise RuntimeError(
            "disassembling needs objdump of GNU binutils, which is not on the PATH: "
            "apt-get install binutils"
        )
    with NamedTemporaryFile(suffix=".bin") as file:
        file.write(code)
        file.flush()
        run = subprocess.run(
            [objdump, *_OPTIONS, file.name],
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode != 0:
        raise RuntimeError(f"objdump failed: {run.stderr.strip()}")
    return run.stdout.partition("<.data>:\n")[2]
