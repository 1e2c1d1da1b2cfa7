"""What a chat is: the item of a deployment with task="chat", unless it declares another struct."""

from typing import Annotated, Any, Literal

import msgspec


class TextPart(msgspec.Struct, tag_field="type", tag="text"):
    """A piece of the content of a message."""

    text: str


class Message(msgspec.Struct, omit_defaults=True):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    @property
    def text(self) -> str:
        """Its content; of several parts these in a row."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class Chat(msgspec.Struct, kw_only=True):
    """A chat to which a model writes the next message.

    A deployment that takes more fields has a struct that inherits from this one. Clients of the OpenAI API send the
    fields by their names.
    """

    messages: Annotated[list[Message], msgspec.Meta(min_length=1)]
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 1024
    """Most tokens of the answer."""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    stop: str | list[str] | None = None
    """Texts at which the answer ends. Models read `stops`."""
    seed: int | None = None

    @property
    def stops(self) -> list[str]:
        """The texts at which the answer ends, without them. None is empty."""
        texts = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [text for text in texts if text]

    def plain(self) -> list[dict[str, Any]]:
        """Return the messages as templates take them: dicts of `role`, `content` as one text, and perhaps `name`."""
        return [
            {"role": message.role, "content": message.text, **({"name": message.name} if message.name else {})}
            for message in self.messages
        ]
