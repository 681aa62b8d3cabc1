"""Other libraries' ways to see and limit threads: threadpoolctl's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from dlprim import _core


def register() -> None:
    """Tell threadpoolctl about this library, as soon as somebody imports it.

    ``threadpoolctl.threadpool_limits(n)`` then holds for calls from the Python thread that says it,
    and ``threadpool_info()`` lists the library as ``"dlprim"``.
    """
    if sys.modules.get("threadpoolctl") is not None:
        _add_controller(sys.modules["threadpoolctl"])
    else:
        sys.meta_path.insert(0, _Awaited())


class _Awaited:
    """Finds threadpoolctl as Python itself does, and goes when it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "threadpoolctl":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _add_controller(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _add_controller(threadpoolctl: Any) -> None:
    if not hasattr(threadpoolctl, "register"):  # before 3.2
        return

    class Controller(threadpoolctl.LibController):  # type: ignore[misc]
        user_api = internal_api = "dlprim"
        filename_prefixes = ("_core.",)
        check_symbols = ("dlprim_num_threads",)

        def get_num_threads(self) -> int:
            return _core.num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            _core.set_threads_of_caller(0)
            if num_threads != _core.num_threads():
                _core.set_threads_of_caller(num_threads)

        def get_version(self) -> str:
            import dlprim

            return dlprim.__version__

    threadpoolctl.register(Controller)
