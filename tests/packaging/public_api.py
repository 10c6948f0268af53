"""The public names and signatures of the packages, as text.

    python tests/packaging/public_api.py > tests/packaging/public_api.txt

records them again after an intended change.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MODULES", "public_api"]

MODULES: Final = (
    "streaming_core",
    "streaming_core.errors",
    "streaming_core.testing",
    "streaming_reader",
    "streaming_writer",
)
_OURS: Final = ("streaming_core", "streaming_reader", "streaming_writer")
# What a caller reaches without naming it.
_OPERATORS: Final = {
    "__call__",
    "__contains__",
    "__enter__",
    "__exit__",
    "__getitem__",
    "__iter__",
    "__len__",
    "__next__",
}


def public_api() -> str:
    """Return one line for each public module, name and member, with signatures."""
    return "".join(f"{line}\n" for module in MODULES for line in _module(module))


def _module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield f"module {name}"
    for each in sorted(module.__all__):
        yield from (f"  {line}" for line in _object(each, getattr(module, each)))


def _object(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {name}({bases})"
        yield f"  __init__{_signature(value)}"
        yield from (f"    **{line}" for line in _unpacked(value.__init__))
        yield from (f"  {line}" for line in _members(value))
    elif inspect.isfunction(value):
        yield f"def {name}{_signature(value)}"
        yield from (f"  **{line}" for line in _unpacked(value))
    elif inspect.ismodule(value):
        yield f"module {name}: {value.__name__}"
    else:
        yield f"{name}: {type(value).__name__}"


def _unpacked(function: Any) -> Iterator[str]:
    """Describe the options that a function takes as an unpacked `TypedDict`."""
    for annotation in inspect.get_annotations(function).values():
        taken = re.fullmatch(r"Unpack\[(\w+)\]", str(annotation))
        if taken:
            options = inspect.unwrap(function).__globals__[taken[1]]
            for name in sorted(options.__annotations__):
                kind = options.__annotations__[name]
                yield f"{name}: {getattr(kind, '__forward_arg__', kind)}"


def _members(cls: type) -> Iterator[str]:
    """Describe the public members that a class has from our packages, inherited ones too."""
    found: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        if owner.__module__.split(".")[0] in _OURS:
            found |= dict.fromkeys(inspect.get_annotations(owner))
            found |= vars(owner)
    for name in sorted(found):
        if name.startswith("_") and name not in _OPERATORS:
            continue
        member = found[name]
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(function):
            kind = type(member).__name__.replace("function", "def")
            yield f"{kind} {name}{_signature(function)}"
        elif isinstance(member, property):
            settable = " (settable)" if member.fset else ""
            yield f"property {name} -> {_returned(member.fget)}{settable}"
        else:
            yield f"attribute {name}"


def _signature(function: Any) -> str:
    """Return a signature with its annotations as they stand in the source."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    parameters = [
        each.replace(annotation=_Text(each.annotation))
        if each.annotation is not each.empty
        else each
        for each in signature.parameters.values()
        if each.name != "self"
    ]
    returned = signature.return_annotation
    if returned is not signature.empty:
        returned = _Text(returned)
    return str(signature.replace(parameters=parameters, return_annotation=returned))


def _returned(getter: Any) -> str:
    return str(_Text(inspect.get_annotations(getter).get("return", "?")))


class _Text:
    """An annotation that is shown without quotes."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation

    def __repr__(self) -> str:
        if isinstance(self.annotation, str):
            return self.annotation
        return inspect.formatannotation(self.annotation)


if __name__ == "__main__":
    sys.stdout.write(public_api())
