"""Whether answers are of the declared type. Values are looked into for examples only: per request it would cost."""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from jitney.codecs.decode.media import media_hook
from jitney.codecs.decode.settling import settling
from jitney.codecs.plain import plain_hook, raw_hook
from jitney.codecs.refusals import refusal
from jitney.errors import InvalidOutput
from jitney.signature.annotations import Output
from jitney.signature.arrays import ANY_DTYPE, ArraySpec, is_array_type
from jitney.signature.hints import by_pydantic, holds, is_pillow_class, is_pydantic, show, strip
from jitney.signature.media_fields import fault_of_array
from jitney.signature.schemas import of_answer
from jitney.types.arrays import TOKENS

_KEPT: Final = (bytes, bytearray, memoryview)
_NOT_ARRAYS: Final = ("text", "bytes", "image")


class DeclaredArrays:
    """The arrays that `predict` is annotated to return, by name; checked for each batch, whatever its size."""

    def __init__(self, declared: Output) -> None:
        self._declared: Final = declared
        self._specs: Final[dict[str, ArraySpec]] = {spec.name: spec for spec in declared.arrays}
        if declared.counts_tokens:
            self._specs[TOKENS] = ArraySpec(TOKENS, "int64", ())

    def check(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Raise InvalidOutput unless an item's array of this dtype and shape is what was declared."""
        if not self._specs:
            if self._declared.kind in _NOT_ARRAYS:
                raise InvalidOutput(
                    f"{self._declared.method} is annotated to return {_shown(self._declared)} for each item, not arrays"
                )
            return
        spec = self._specs.get(name)
        place = f"`{name}`: " if name else ""
        if spec is None:
            names = ", ".join(self._specs)
            declared = f"the arrays {names}" if names else "one array"
            raise InvalidOutput(f"{place}{self._declared.method} is annotated to return {declared} for each item")
        if spec.dtype not in (ANY_DTYPE, dtype) or not spec.fits(shape):
            raise InvalidOutput(
                f"{place}{self._declared.method} is annotated to return {spec.show()} for each item, but returned "
                f"{dtype} of shape {tuple(map(int, shape))}"
            )


def validate(declared: Output, answers: Sequence[Any]) -> None:
    """Raise InvalidOutput unless each answer is one of the declared type; exceptions are separate outcomes."""
    if declared.kind != "object":
        return
    convert = _converter(declared.item)
    for answer in answers:
        if isinstance(answer, BaseException):
            continue
        try:
            convert(answer)
        except (InvalidOutput, TypeError, RecursionError):
            continue  # no schema can describe this type, or encoding will say what is wrong with the answer
        except Exception as error:
            raise InvalidOutput(
                f"{declared.method} is annotated to return {_shown(declared)} for each item, but returned "
                f"a {cast('type[Any]', type(answer)).__qualname__}: {refusal(error).message}{whole_hint(declared)}"
            ) from None


def whole_hint(declared: Output) -> str:
    """Say where the whole answer of a model in parts comes from; empty of other models."""
    return "" if declared.part is None else "; without jitney.End(answer=…) the answer is the parts put together"


def _converter(item: Any) -> Callable[[Any], object]:
    if is_pydantic(strip(item)):
        from jitney.signature.pydantic.adapter import Adapter  # noqa: PLC0415 -- it imports pydantic

        return Adapter(item).validate_python

    if by_pydantic(item) or not of_answer(item) or holds(item, _has_no_decoder):
        return _taken  # cannot be read back
    hook = raw_hook if holds(item, is_array_type) else plain_hook

    def convert(answer: Any) -> object:
        return msgspec.convert(
            msgspec.to_builtins(answer, builtin_types=_KEPT, enc_hook=hook), item, dec_hook=media_hook(None)
        )

    return settling(convert, item, any_dtype=True)


def _has_no_decoder(annotation: Any) -> bool:
    """Whether this is `object`, an array of another library than numpy, or an image of Pillow's."""
    return (
        annotation is object
        or is_pillow_class(annotation)
        or (is_array_type(annotation) and fault_of_array(annotation) is not None)
    )


def _taken(answer: Any) -> object:
    return answer


def _shown(declared: Output) -> str:
    return declared.kind if declared.item is None else show(declared.item)
