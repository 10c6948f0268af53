"""Base classes that become torch's once torch is loaded, so that nobody loads it for nothing.

torch, and trainers, look whether a dataset is one of torch's. Inheriting from torch's classes would
load torch for those who read without it.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar

if TYPE_CHECKING:
    from torch.utils.data import Dataset, IterableDataset

__all__ = ["IterableBase", "MapBase", "join_torch"]

_T_co = TypeVar("_T_co", covariant=True)


class _Own(Generic[_T_co]):
    """What the bases are until torch is loaded; has the memory layout of torch's `Dataset`."""


class _Joining(_Own[_T_co], metaclass=ABCMeta):
    """A class whose instances are checked for torch's classes."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # noqa: ANN401 # pyright: ignore[reportIncompatibleMethodOverride]
        """The class; `isinstance` asks for it where the type does not tell.

        torch may have been loaded since this object was made, so its class joins torch's now. What
        is returned then is a subclass made for this answer: Python has looked at the type already.
        """
        own = type(self)
        return type(own.__name__, (own,), {}) if join_torch() else own

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:  # noqa: ANN401 - as `object` has it
        """Return how to pickle this; pickle compares the class with the type."""
        join_torch()  # after which this class is no base of the object's any more
        return object.__reduce_ex__(self, protocol)


if TYPE_CHECKING:
    IterableBase = IterableDataset
    MapBase = Dataset
else:

    class IterableBase(_Joining[_T_co]):
        """Becomes a subclass of `torch.utils.data.IterableDataset`."""

    class MapBase(_Joining[_T_co]):
        """Becomes a subclass of `torch.utils.data.Dataset`."""


def join_torch() -> bool:
    """Let the bases be torch's from now on, if torch is loaded; tell whether that is new."""
    torch: Any = sys.modules.get("torch.utils.data")
    if not hasattr(torch, "IterableDataset") or _Joining not in IterableBase.__bases__:
        return False
    IterableBase.__bases__ = (torch.IterableDataset,)
    MapBase.__bases__ = (torch.Dataset,)
    return True
