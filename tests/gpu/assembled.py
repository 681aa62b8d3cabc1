"""The assembly of kernels for GPUs that are not here, and what registers they keep in memory."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas

from dlprim.gpu import choice
from dlprim.gpu.kernels import Kernel, kernels_of, loaded
from dlprim.gpu.mapping import PARTS
from dlprim.gpu.steps import Steps
from dlprim.gpu.tree import Array

TARGETS = {
    "sm_80": choice.target("A100", 108, 163, major=8),
    "sm_90": choice.target("H100", 132, 227),
    "gfx942": choice.target("MI300X", 304, 64, warp=64),
}
POINTERS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "uint8": "u8"} | {
    f"int{bits}": f"i{bits}" for bits in (8, 32, 64)
}


class Code(NamedTuple):
    assembly: str
    spills: int
    shared: int  # bytes of a block


def codes(steps: Steps, target: str) -> list[Code]:
    """By the model's genes for such a device."""
    on = TARGETS[target]
    arrays = {PARTS: Array("float32", (), ()), **steps.arrays}
    return [
        compiled(kernel, [arrays[name].dtype for name in kernel.arrays], target)
        for step in steps.steps
        for tile in choice.tiles_for(step, steps.arrays, on, steps.precision)[:1]
        for kernel in kernels_of(step, tile, steps.arrays, steps.precision, "kernel")
    ]


def compiled(kernel: Kernel, dtypes: list[str], target: str) -> Code:
    """For arrays that lie on 16 bytes, as a new array does."""
    is_hip = target.startswith("gfx")
    where = GPUTarget("hip", target, 64) if is_hip else GPUTarget("cuda", int(target[3:]), 32)
    signature = {f"{it}_": f"*{POINTERS[t]}" for it, t in zip(kernel.arrays, dtypes, strict=True)}
    signature |= dict.fromkeys(kernel.numbers, "i32")
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(len(signature))}
    function = loaded(kernel.name, kernel.source)
    source = triton.compiler.ASTSource(function, signature, attrs=aligned)
    made = triton.compile(source, target=where, options=kernel.options)
    if is_hip:
        assembly = made.asm["amdgcn"]
        spills = re.findall(r"\.[sv]gpr_spill_count:\s*(\d+)", assembly)
    else:
        assembly = made.asm["ptx"]
        spills = spilled(assembly)
    assert spills
    return Code(assembly, sum(map(int, spills)), int(made.metadata.shared))


def spilled(assembly: str) -> list[str]:
    """Bytes, as the assembler of Triton's package reports them."""
    (architecture,) = re.findall(r"\.target (sm_\w+)", assembly)
    ptxas = get_ptxas(int(re.sub(r"\D", "", architecture))).path
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.ptx").write_text(assembly)
        command = [ptxas, "-v", f"-arch={architecture}", "kernel.ptx"]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return re.findall(r"(\d+) bytes spill", run.stderr)
