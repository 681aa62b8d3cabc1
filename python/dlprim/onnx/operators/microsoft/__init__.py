"""Operators of com.microsoft, as ONNX Runtime's optimiser and exporters of language models write them.

Those that quantise are with the others of 8 bits.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
