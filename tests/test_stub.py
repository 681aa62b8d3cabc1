"""The stub file of the compiled core names what the core has: mypy believes nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dlprim

pytestmark = pytest.mark.any_level

CORE = dlprim._core
STUB = Path(__file__).parent.parent / "python" / "dlprim" / "_core.pyi"

if not STUB.is_file():
    pytest.skip(f"{STUB} is not there", allow_module_level=True)

NODES = ast.parse(STUB.read_text()).body
CLASSES = {node.name: node for node in NODES if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name for node in NODES if isinstance(node, ast.FunctionDef)}


def public(names: object) -> set[str]:
    kept = {"__init__", "__call__"}
    return {str(name) for name in vars(names) if not str(name).startswith("_") or name in kept}


def methods(node: ast.ClassDef) -> set[str]:
    """With those of the classes that the stub alone has, whose names begin with an underscore."""
    found = {it.name for it in node.body if isinstance(it, ast.FunctionDef)}
    for base in node.bases:
        assert isinstance(base, ast.Name)
        found |= methods(CLASSES[base.id])
    return found


def test_every_name_is_in_both() -> None:
    assert public(CORE) == FUNCTIONS | {name for name in CLASSES if not name.startswith("_")}


def test_every_method_is_in_both() -> None:
    for name in CLASSES:
        if not name.startswith("_"):
            assert public(getattr(CORE, name)) == methods(CLASSES[name]), name
