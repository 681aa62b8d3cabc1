"""What a layer makes for the shapes that it meets, of which it keeps the latest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

_MOST = 32  # of a layer: training and inference of some sizes

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


class Recent(OrderedDict[Key, Made]):
    """Some of the latest entries: what was not asked for longest makes room."""

    def __setitem__(self, key: Key, made: Made) -> None:
        super().__setitem__(key, made)
        if len(self) > _MOST:
            self.popitem(last=False)

    def __getitem__(self, key: Key) -> Made:
        made = super().__getitem__(key)
        self.move_to_end(key)
        return made

    def get(self, key: Key, default: Made | None = None) -> Made | None:  # type: ignore[override]
        return self[key] if key in self else default  # noqa: SIM401 this is what it would call
