"""Images: nothing is decoded before its size is known, and what is corrupted says so."""

import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from fake_core import FakeBatch, FakeResults, Value
from jitney import Image, InvalidInput
from jitney.codecs import Codec, Decoded, tags
from jitney.config.layers import DeploymentOptions
from jitney.errors import InvalidOutput
from jitney.signature.annotations import read_signature
from PIL import Image as Pillow


def png(width: int = 4, height: int = 3, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Pillow.new("RGB", (width, height), (255, 0, 0)).save(buffer, format=kind)
    return buffer.getvalue()


def images(inputs: list[Image]) -> list[Image]: ...


def codec(predict: Callable[..., Any] = images, **options: Any) -> Codec:
    return Codec(read_signature(predict), DeploymentOptions(**options))


def test_an_image_is_read_lazily() -> None:
    data = png(400, 300, "JPEG")
    image = Image(data[: len(data) - 200])
    assert (image.width, image.height, image.media_type) == (400, 300, "image/jpeg")
    with pytest.raises(InvalidInput, match="the image is corrupted"):
        image.to_pil()


def test_an_image_becomes_pixels() -> None:
    image = Image(png())
    assert image.to_numpy().shape == (3, 4, 3)
    assert image.to_numpy()[0, 0].tolist() == [255, 0, 0]
    assert image.to_numpy("L").shape == (3, 4)
    assert image.to_pil("L").mode == "L"


def test_a_decoded_webp_has_no_decoder_which_would_keep_its_canvases() -> None:
    image = Image(png(kind="WEBP"))
    pixels = image.to_pil()
    assert (type(pixels), pixels.format, image.media_type) == (Pillow.Image, "WEBP", "image/webp")
    assert image.to_pil() is pixels
    assert (image.width, image.height, image.to_numpy().shape) == (4, 3, (3, 4, 3))


def test_grey_of_16_bits_is_scaled_to_8() -> None:
    buffer = io.BytesIO()
    Pillow.fromarray(np.array([[0, 255, 256, 32768, 65535]], np.uint16)).save(buffer, format="PNG")
    image = Image(buffer.getvalue())
    assert image.to_numpy("L").tolist() == [[0, 0, 1, 128, 255]]
    assert image.to_numpy()[0, :, 1].tolist() == [0, 0, 1, 128, 255]
    assert np.asarray(image.to_pil()).tolist() == [[0, 255, 256, 32768, 65535]]
    assert np.asarray(image.to_pil("I")).tolist() == [[0, 255, 256, 32768, 65535]]


def test_what_is_no_image_is_an_invalid_input() -> None:
    with pytest.raises(InvalidInput, match="these 3 bytes are not an image"):
        Image(b"abc").check()
    with pytest.raises(TypeError, match="not int"):
        Image(3)  # pyright: ignore[reportArgumentType]


def test_pixels_are_limited_before_they_are_decoded() -> None:
    # A header that claims 60000 x 60000 and no pixels behind it: decoding would fail in another way.
    claims = bytearray(png())
    claims[16:24] = (60000).to_bytes(4, "big") * 2
    claims[29:33] = zlib.crc32(claims[12:29]).to_bytes(4, "big")
    with pytest.raises(InvalidInput) as caught:
        Image(bytes(claims), max_pixels=100).to_pil()
    assert caught.value.status == 413
    with pytest.raises(InvalidInput, match=r"20 x 20 = 400 pixels, allowed are 100 \(option `max_pixels`\)"):
        Image(png(20, 20), max_pixels=100).to_pil()


def test_max_pixels_may_be_more_than_pillow_allows_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pillow, "MAX_IMAGE_PIXELS", 100)
    items = [(tags.BYTES, png(20, 20)), (tags.BYTES, png(20, 21))]
    decoded = codec(max_pixels=400).decode(FakeBatch(items).core)
    assert decoded.indices == [0]
    assert [error.status for _, error in decoded.errors] == [413]
    assert codec(max_pixels=50).decode(FakeBatch([(tags.BYTES, png(9, 9))]).core).errors
    assert Pillow.MAX_IMAGE_PIXELS == 400


def test_a_png_of_a_great_many_tiny_chunks_is_refused() -> None:
    whole = png()
    header = whole[:33]
    chunk = b"\0\0\0\0teSt" + zlib.crc32(b"teSt").to_bytes(4, "big")
    assert Image(header + chunk * 100 + whole[33:]).to_numpy().shape[2] == 3
    with pytest.raises(InvalidInput, match="a great many tiny chunks") as caught:
        Image(header + chunk * 10_000 + whole[33:]).check()
    assert caught.value.status == 413


def test_images_come_raw_as_base64_and_as_msgpack_and_bad_ones_fail_alone() -> None:
    good = png(kind="JPEG")
    items = [
        (tags.BYTES, good),
        (tags.JSON, msgspec.json.encode(good)),
        (tags.MSGPACK, msgspec.msgpack.encode(good)),
        (tags.JSON, b'"data:image/jpeg;base64,' + msgspec.json.encode(good)[1:]),
        (tags.BYTES, good[: len(good) // 2]),
        (tags.JSON, b'"not base64!"'),
        (tags.BYTES, png(40, 40)),
        (tags.TEXT, "x"),
    ]
    decoded = codec(max_pixels=1000).decode(FakeBatch(items).core)
    assert decoded.indices == [0, 1, 2, 3]
    assert [error.status for _, error in decoded.errors] == [422, 400, 413, 415]
    assert decoded.columns[0][0].media_type == "image/jpeg"


def test_images_leave_with_their_media_type() -> None:
    jpeg = png(kind="JPEG")
    answers = [
        Image(jpeg),
        Image(b"RIFF0000WEBPrest"),
        Image(b"data", media_type="image/avif"),
        Image(np.zeros((2, 2, 3), np.uint8)),
        Image(Pillow.new("RGB", (2, 2)), format="JPEG"),
        Pillow.new("RGB", (2, 2)),
    ]
    batch, results = FakeBatch([(tags.BYTES, jpeg)] * 6), FakeResults()
    codec().encode(answers, Decoded(list(range(6)), [[]]), None, batch.core, results.core)
    assert results.outcomes[0] == Value(tags.BYTES, jpeg, "image/jpeg")
    media_types = [results.outcomes[index].media_type for index in range(1, 6)]
    assert media_types == ["image/webp", "image/avif", "image/png", "image/jpeg", "image/png"]
    assert Image(results.outcomes[3].data).width == 2


def test_pixels_that_cannot_be_encoded_fail_alone() -> None:
    batch, results = FakeBatch([(tags.BYTES, b"")] * 2), FakeResults()
    answers = [Image(np.zeros((2, 2), np.float32)), Image(Pillow.new("RGBA", (2, 2)), format="JPEG")]
    codec().encode(answers, Decoded([0, 1], [[]]), None, batch.core, results.core)
    assert "not float32 of shape (2, 2)" in results.outcomes[0].detail
    assert "cannot be encoded as JPEG" in results.outcomes[1].detail
    with pytest.raises(InvalidOutput):
        answers[0].encode()


class OnDevice:
    """A torch tensor on a device, or one that has a gradient, as far as an image looks at it."""

    def __init__(self, pixels: Any) -> None:
        self.pixels, self.shape, self.dtype = pixels, pixels.shape, pixels.dtype

    def __array__(self) -> Any:
        raise TypeError("on a device")

    def detach(self) -> "OnDevice":
        return OnDevice(self.pixels)

    def cpu(self) -> "OnDevice":
        return OnHost(self.pixels)

    def clone(self) -> "OnDevice":
        return OnDevice(self.pixels.copy())


class OnHost(OnDevice):
    def numpy(self) -> Any:
        return self.pixels


def test_tensors_on_a_device_are_pixels_too() -> None:
    pixels = np.full((2, 3, 3), 7, np.uint8)
    image = Image(OnDevice(pixels)).own()  # pyright: ignore[reportArgumentType]
    assert (image.width, image.height) == (3, 2)
    assert Image(image.encode()).to_numpy().tolist() == pixels.tolist()
    with pytest.raises(InvalidOutput, match=r"not float32 of shape \(2, 3\)"):
        Image(OnDevice(np.zeros((2, 3), np.float32))).encode()  # pyright: ignore[reportArgumentType]


def test_pixels_of_an_own_image_are_not_shared() -> None:
    pixels = np.zeros((2, 2), np.uint8)
    shared, own = Image(pixels), Image(pixels).own()
    pixels[:] = 9
    assert shared.to_numpy("L").max() == 9
    assert own.to_numpy("L").max() == 0
    picture = Pillow.new("L", (2, 2))
    own = Image(picture, format="BMP").own()
    picture.putpixel((0, 0), 7)
    assert (own.to_numpy("L").max(), own.media_type) == (0, "image/bmp")
    assert Image(pixels, "image/x", format="BMP").own().media_type == "image/x"


@pytest.mark.parametrize("name", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_these_formats_are_read(name: str) -> None:
    assert Image(png(2, 2, name)).to_pil("RGB").size == (2, 2)


def test_a_picture_of_several_frames_is_its_first() -> None:
    buffer = io.BytesIO()
    Pillow.new("RGB", (2, 2)).save(buffer, "MPO", save_all=True, append_images=[Pillow.new("RGB", (3, 3))])
    assert Image(buffer.getvalue()).to_pil().size == (2, 2)


@pytest.mark.parametrize("name", ["EPS", "PPM", "TGA", "PCX", "ICNS"])
def test_no_other_decoder_of_pillow_can_be_reached(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"not an image that can be read here: PNG, JPEG, WEBP, GIF, BMP, TIFF"):
        Image(png(2, 2, name)).check()


def test_examples_of_images_may_be_given_in_many_forms() -> None:
    values = [png(), Image(png()), Pillow.new("RGB", (2, 2)), np.zeros((2, 2, 3), np.uint8), 3]
    decoded = codec().from_python(values)
    assert decoded.indices == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["cat.png", Path("cat.png")])
def test_an_image_of_a_path_says_to_read_the_file(name: Any) -> None:
    with pytest.raises(TypeError, match=r"read the file: jitney\.Image\(Path\('cat\.png'\)\.read_bytes\(\)\)"):
        Image(name)


@pytest.mark.parametrize("body", [b'"aGVsbG8="', b'{"image": "aGVsbG8="}'])
def test_json_in_place_of_an_image_is_told_how_to_be_sent(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="they look like JSON: send content-type: application/json"):
        Image(body).check()


def test_numpy_does_not_make_an_object_of_an_image() -> None:
    for make in (np.asarray, np.array):
        with pytest.raises(TypeError, match=r"write image\.to_numpy\(\) in place of np\.asarray\(image\)"):
            make(Image(png()))


def test_a_path_as_an_example_is_led_to_the_bytes_of_its_file() -> None:
    decoded = codec().from_python(["cat.png", png()])
    assert decoded.indices == [1]
    [(_, error)] = decoded.errors
    assert str(error) == (
        "a string is an image as base64, and 'cat.png' is not; give the bytes of the file: Path(…).read_bytes()"
    )
