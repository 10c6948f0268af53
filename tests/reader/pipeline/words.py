"""A tokenizer with a few words."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

__all__ = ["CHAT", "tiny_tokenizer"]

UNKNOWN = "[UNK]"
CHAT = (
    "{% for m in messages %}{{ m.role }} : "
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %} . {% endfor %}"
)
"""A template that marks what the assistant says."""


def tiny_tokenizer(*, template: str | None = CHAT) -> Any:
    """Return a tokenizer of transformers with a vocabulary of a few words."""
    words = ["[PAD]", UNKNOWN, "user", "assistant", ":", ".", "wört", "hi", "you", "there", "how"]
    model = WordLevel({word: at for at, word in enumerate(words)}, unk_token=UNKNOWN)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = WhitespaceSplit()
    made: Any = PreTrainedTokenizerFast
    return made(
        tokenizer_object=tokenizer,
        pad_token=words[0],
        unk_token=UNKNOWN,
        chat_template=template,
    )
