"""Transforms from texts and conversations to tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from streaming_core._arguments import checked, unexpected
from streaming_core._extras import require
from streaming_core.errors import MissingColumnError, SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IGNORED", "chat_template", "tokenize"]

IGNORED: Final = -100
"""The label of tokens that a model is not trained to give."""

_MARKS: Final = re.compile(r"\{%-?\s*generation\s*-?%\}")
_MASK: Final = "assistant_masks"


def tokenize(
    tokenizer: Any,  # noqa: ANN401 - of optional dependencies
    column: str = "text",
    *,
    max_length: int | None = None,
    padding: bool = False,
    add_special_tokens: bool = True,
    labels: bool = False,
    keep: bool = False,
) -> _Tokenize:
    """Return a transform that puts the tokens of a text in the text's place.

    A row gets `input_ids`, `attention_mask` and what else the tokenizer gives, as arrays of int64.
    Where they differ in length, take `padding`, or `ragged="padded"` or `"offsets"` of the loader.

    Args:
        tokenizer: One of transformers, a `tokenizers.Tokenizer`, or the name or folder of one that
            transformers can load, which is then done in the process that uses it.
        column: The column that holds the text.
        max_length: How many tokens are kept, all if None.
        padding: Fill up to `max_length`.
        add_special_tokens: Add those that begin and end a text.
        labels: Add `labels`: the tokens, and -100 where there is only padding.
        keep: Keep the text beside them.

    Raises `SchemaError` where the settings contradict each other.
    """
    given = _checked(
        {
            "column": column,
            "max_length": max_length,
            "padding": padding,
            "add_special_tokens": add_special_tokens,
            "labels": labels,
            "keep": keep,
        }
    )
    options = {"add_special_tokens": given.pop("add_special_tokens")}
    if not (isinstance(tokenizer, str) or callable(tokenizer) or hasattr(tokenizer, "encode")):
        wanted = "a tokenizer of transformers, a tokenizers.Tokenizer, or a name"
        raise unexpected(tokenizer, "tokenizer", wanted)
    return _Tokenize(_Tokenizer(tokenizer), options=options, **given)


def chat_template(
    tokenizer: Any,  # noqa: ANN401 - of an optional dependency
    column: str = "messages",
    *,
    template: str | None = None,
    max_length: int | None = None,
    padding: bool = False,
    add_generation_prompt: bool = False,
    assistant_mask: bool = False,
    labels: bool = False,
    as_text: bool = False,
    keep: bool = False,
) -> _Chat:
    """Return a transform that puts the tokens of a conversation in its place.

    A conversation is a list of messages (`{"role": ..., "content": ...}`), or such a list as JSON.
    Fields of a message that are None are left out, as columns of structs have all fields for all.

    Args:
        tokenizer: One of transformers, or its name or folder; see `tokenize`.
        column: The column that holds the conversation.
        template: A template instead of the tokenizer's own.
        max_length: How many tokens are kept, all if None.
        padding: Fill up to `max_length`.
        add_generation_prompt: End with what begins an answer.
        assistant_mask: Add `assistant_masks`: 1 for the tokens of answers. The template must mark
            them with `{% generation %}`.
        labels: Add `labels`: the tokens, and -100 where there is padding or, with
            `assistant_mask`, where it is not an answer.
        as_text: Make no tokens; the conversation's text comes as `text`.
        keep: Keep the conversation beside them.

    Raises `SchemaError` where the settings contradict each other.
    """
    given = _checked(
        {
            "column": column,
            "template": template,
            "max_length": max_length,
            "padding": padding,
            "add_generation_prompt": add_generation_prompt,
            "assistant_mask": assistant_mask,
            "labels": labels,
            "as_text": as_text,
            "keep": keep,
        }
    )
    if as_text and (max_length is not None or labels or assistant_mask):
        msg = "as_text makes no tokens, so max_length, labels and assistant_mask say nothing"
        raise SchemaError(msg)
    options = {"add_generation_prompt": given.pop("add_generation_prompt")}
    if (chosen := given.pop("template")) is not None:
        options["chat_template"] = chosen
    if not (isinstance(tokenizer, str) or hasattr(tokenizer, "apply_chat_template")):
        raise unexpected(tokenizer, "tokenizer", "a tokenizer of transformers, or a name")
    return _Chat(_Tokenizer(tokenizer), options=options, **given)


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    given = checked(given)
    if given["padding"] and given["max_length"] is None:
        msg = "padding fills up to max_length, which is not given; give it, or ragged='padded'"
        raise SchemaError(msg)
    return given


@dataclass(slots=True)
class _Tokenizer:
    """A tokenizer, loaded when it is first used if it was named."""

    named: Any
    loaded: Any = None

    def get(self) -> Any:  # noqa: ANN401 - of optional dependencies
        if not isinstance(self.named, str):
            return self.named
        if self.loaded is None:
            models = require("transformers", extra="text", purpose="a tokenizer by its name")
            try:
                self.loaded = models.AutoTokenizer.from_pretrained(self.named)
            except (OSError, ValueError) as error:
                msg = f"transformers finds no tokenizer {self.named!r}: {error!s:.300}"
                raise SchemaError(msg) from error
        return self.loaded

    def __getstate__(self) -> tuple[Any, None]:
        """Send the name alone, if there is one."""
        return self.named, None

    def __setstate__(self, state: tuple[Any, None]) -> None:
        self.named, self.loaded = state


@dataclass(slots=True)
class _Tokens:
    """What both transforms share; picklable if the tokenizer is."""

    tokenizer: _Tokenizer
    column: str
    max_length: int | None
    padding: bool
    options: dict[str, Any]
    labels: bool
    keep: bool

    def _of(self, row: Any) -> Any:  # noqa: ANN401 - any value
        if not isinstance(row, Mapping):
            msg = f"tokens are made of rows that are dicts, came {type(row).__name__}"
            raise SchemaError(msg)
        fields = cast("Mapping[str, Any]", row)
        if self.column not in fields:
            msg = f"no column {self.column!r}; the rows have {', '.join(map(repr, fields))}"
            raise MissingColumnError(msg)
        return fields[self.column]

    def _limits(self) -> dict[str, Any]:
        if self.max_length is None:
            return {}
        padding = "max_length" if self.padding else False
        return {"truncation": True, "max_length": self.max_length, "padding": padding}

    def _row(self, row: Any, found: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - a row
        arrays: dict[str, Any] = {name: _whole(values) for name, values in found.items()}
        if self.labels:
            trained = arrays.get(_MASK, arrays.get("attention_mask"))
            ids = arrays["input_ids"]
            arrays["labels"] = ids if trained is None else np.where(trained, ids, IGNORED)
        rest = {name: row[name] for name in row if self.keep or name != self.column}
        return {**rest, **arrays}


@dataclass(slots=True)
class _Tokenize(_Tokens):
    """From a text to tokens."""

    def __call__(self, row: Any) -> dict[str, Any]:  # noqa: ANN401 - a row
        text = self._of(row)
        if not isinstance(text, str):
            msg = f"column {self.column!r} must hold texts, came {text!r:.80}"
            raise SchemaError(msg)
        tokenizer = self.tokenizer.get()
        if callable(tokenizer):
            return self._row(row, cast("Any", tokenizer)(text, **self.options, **self._limits()))
        return self._row(row, self._encoded(tokenizer.encode(text, **self.options)))

    def _encoded(self, encoding: Any) -> dict[str, Any]:  # noqa: ANN401 - of an optional dependency
        """Return what the library beneath transformers gives, whose own settings we leave alone."""
        if self.max_length is not None:
            encoding.truncate(self.max_length)
            if self.padding:
                encoding.pad(self.max_length)
        return {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask}


@dataclass(slots=True)
class _Chat(_Tokens):
    """From a conversation to tokens, or to text."""

    assistant_mask: bool = False
    as_text: bool = False
    _is_checked: bool = field(default=False, repr=False)

    def __call__(self, row: Any) -> dict[str, Any]:  # noqa: ANN401 - a row
        messages = self._messages(self._of(row))
        tokenizer = self.tokenizer.get()
        if not self._is_checked:
            self._check_template(tokenizer)
        if self.as_text:
            text = tokenizer.apply_chat_template(messages, tokenize=False, **self.options)
            rest = {name: row[name] for name in row if self.keep or name != self.column}
            return {**rest, "text": text}
        options = {**self.options, **self._limits()}
        if self.assistant_mask:
            options["return_assistant_tokens_mask"] = True
        found: Any = tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, **options
        )
        return self._row(row, found)

    def _messages(self, value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any value
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                msg = f"column {self.column!r} holds a text that is no JSON: {error}"
                raise SchemaError(msg) from error
        messages = cast("Sequence[Any]", value)
        if isinstance(value, Sequence) and all(isinstance(each, Mapping) for each in messages):
            return [
                {name: part for name, part in message.items() if part is not None}
                for message in cast("Sequence[Mapping[str, Any]]", messages)
            ]
        msg = f"column {self.column!r} must hold lists of messages, came {value!r:.80}"
        raise SchemaError(msg)

    def _check_template(self, tokenizer: Any) -> None:  # noqa: ANN401 - of an optional dependency
        template = self.options.get("chat_template") or tokenizer.chat_template
        if not template:
            msg = "the tokenizer has no chat template; give template=..."
            raise SchemaError(msg)
        # A tokenizer can have several templates by name; transformers then takes one of them.
        if self.assistant_mask and isinstance(template, str) and not _MARKS.search(template):
            msg = (
                "assistant_mask needs a template that marks answers with {% generation %}, and "
                "this one does not: no token would be trained. Give template=... with these marks"
            )
            raise SchemaError(msg)
        self._is_checked = True


def _whole(values: Any) -> NDArray[np.int64]:  # noqa: ANN401 - a list of numbers
    return np.asarray(values, np.int64)
