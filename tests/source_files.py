"""The sources of a checkout, for the tests that read them: which there are, and who breaks a rule.

Not the installed package: whoever imports this is skipped where no sources lie beside the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CPP = ROOT / "cpp"

if not (CPP / "brgemm").is_dir():
    pytest.skip(f"{ROOT} holds no C++ sources", allow_module_level=True)

CPP_FILES = sorted(path for path in CPP.rglob("*") if path.suffix in {".cpp", ".h"})
OWN_FILES = [*CPP_FILES, *sorted((ROOT / "tests" / "cpp").rglob("*.cpp"))]
PYTHON_FILES = sorted(
    path for folder in ("python", "tests", "bench") for path in (ROOT / folder).rglob("*.py")
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def names_of(paths: Iterable[Path], broken: Callable[[Path], object]) -> list[str]:
    """Of the files that break a rule."""
    return [name_of(path) for path in paths if broken(path)]
