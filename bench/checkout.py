"""Import it first: `dlprim.bench` is this checkout's, whichever build of dlprim the process has.

An older build has no such package, or another one; what it measures must be the same on both sides.
"""

import importlib.util
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent.parent / "python" / "dlprim" / "bench"


def _take() -> None:
    spec = importlib.util.spec_from_file_location(
        "dlprim.bench", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dlprim.bench"] = module
    spec.loader.exec_module(module)


_take()
