"""Attributes of the public classes, whose names subclasses may need for their own.

Code of this package never reads them from an object that a user may have subclassed: what it needs
lies behind one private attribute, the object's engine.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from streaming_core._arguments import ARGUMENTS, checked
from streaming_core.errors import SettingError, StreamingError

__all__ = ["ENGINE", "engine_of", "forget_assigned", "open_to_subclasses"]

ENGINE: Final = "_streaming_engine"
"""The one attribute of public objects that this package depends on."""

_SETTINGS: Final = ARGUMENTS.keys() - {"length", "num_samples"}
"""Arguments that say how an object is made; those others are what methods take."""

_Class = TypeVar("_Class", bound=type)


def open_to_subclasses(cls: _Class) -> _Class:
    """Let subclasses assign the public properties of a class.

    Those that are named like an argument are settings: they accept the value that they have. All
    others become attributes of the subclass.

    Example:
        >>> @open_to_subclasses
        ... class Data:
        ...     @property
        ...     def size(self):
        ...         return 3
        >>> data = Data()
        >>> data.size
        3
        >>> data.size = "large"
        >>> data.size
        'large'
    """
    for name, value in list(vars(cls).items()):
        if isinstance(value, property) and not name.startswith("_"):
            is_setting = name in _SETTINGS or value.fset is not None
            setattr(cls, name, (_Setting if is_setting else _Replaceable)(name, value))
    return cls


def engine_of(instance: object) -> Any:  # noqa: ANN401 - each class knows its own
    """Return what a public object is made of.

    Raises:
        SettingError: It was not set up.
    """
    try:
        return vars(instance)[ENGINE]
    except KeyError:
        kind = type(instance).__name__
        msg = f"{kind} is not set up: its __init__ has to call super().__init__(...) first"
        raise SettingError(msg) from None


def forget_assigned(instance: object) -> None:
    """Drop settings that were assigned before an object is set up: its arguments replace them."""
    own = vars(instance)
    for name in [name for name in own if isinstance(getattr(type(instance), name, None), _Setting)]:
        del own[name]


def _own(instance: object) -> dict[str, Any]:
    """Return an object's own attributes; none if it is the class that is asked."""
    return {} if instance is None else vars(instance)


class _Open(property):
    """A property that knows its name."""

    def __init__(self, name: str, of: property) -> None:
        super().__init__(of.fget, of.fset, of.fdel, of.__doc__)
        self._name = name


class _Replaceable(_Open):
    """A property that a subclass may assign, and then has as an attribute of its own."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:  # noqa: ANN401 - any attribute
        own = _own(instance)
        if self._name in own:
            return own[self._name]
        return super().__get__(instance, owner)

    def __set__(self, instance: Any, value: Any) -> None:  # noqa: ANN401 - any attribute
        vars(instance)[self._name] = value

    def __delete__(self, instance: Any) -> None:  # noqa: ANN401 - any object
        if self._name not in vars(instance):
            raise AttributeError(self._name)
        del vars(instance)[self._name]


class _Setting(_Open):
    """A property that may be assigned the value it has, or any if it has a setter.

    Until the object is set up, it is an attribute like any other.
    """

    def __get__(self, instance: Any, owner: type | None = None) -> Any:  # noqa: ANN401 - any setting
        own = _own(instance)
        if self._name in own and ENGINE not in own:
            return own[self._name]
        return super().__get__(instance, owner)

    def __set__(self, instance: Any, value: Any) -> None:  # noqa: ANN401 - any setting
        if ENGINE not in vars(instance):
            vars(instance)[self._name] = value
        elif self.fset is not None:
            self.fset(instance, value)
        elif not self._has(instance, value):
            now = super().__get__(instance)
            kind = type(instance).__name__
            msg = (
                f"{self._name}: this {kind} was made with {now!r:.80}, got {value!r:.80}, and it "
                f"cannot be changed later; give {self._name} when the {kind} is made"
            )
            raise SettingError(msg)

    def _has(self, instance: Any, value: Any) -> bool:  # noqa: ANN401 - any setting
        """Whether a value is the setting's, as it is used or as it was given."""
        now, engine = super().__get__(instance), engine_of(instance)
        try:
            value = checked({self._name: value})[self._name]
            return bool(value == now or value == engine.given.get(self._name, now))
        except (StreamingError, ValueError):  # arrays are neither equal nor not
            return False
