"""Text to speech in parts: a client plays the beginning while the rest is made.

    pip install espeakng-loader
    jitney serve examples/speech.py
    curl -sN 127.0.0.1:8000/speech -H 'accept: application/octet-stream' -d '"A jitney is a small bus."' |
      aplay -f S16_LE -r 22050

The parts are bytes: samples of 16 bits, 22,050 a second, one channel. Each is sent when it is made. The voice is
eSpeak NG, a C library. It has one voice for each process, so `batched=False`: more replicas speak at the same time.
"""

import ctypes
import importlib
import queue
import threading
from collections.abc import Iterator
from typing import Any

import jitney

RATE = 22_050
"""Samples a second, as the library says when it starts."""
SYNCHRONOUS, UTF8 = 2, 1
PIECE_MS = 200
MOST_PIECES = 16
"""So many wait for a client that is slow; then the voice waits."""
Listener = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


@jitney.deployment(batched=False, examples=["A jitney is a small bus."])
class Speech:
    """Speaks English."""

    def __init__(self) -> None:
        loader: Any = importlib.import_module("espeakng_loader")
        self.library = ctypes.CDLL(loader.get_library_path())
        rate = self.library.espeak_Initialize(SYNCHRONOUS, PIECE_MS, str(loader.get_data_path()).encode(), 0)
        if rate != RATE:
            raise RuntimeError(f"eSpeak NG has a rate of {rate} samples a second, not {RATE}")
        self.library.espeak_SetVoiceByName(b"en")
        self.listener = Listener(self.listen)  # the library keeps its address, so it must live as long
        self.library.espeak_SetSynthCallback(self.listener)
        self.parts: queue.Queue[bytes | None] = queue.Queue(MOST_PIECES)
        self.is_wanted = True

    def listen(self, samples: Any, count: int, _events: Any) -> int:
        """Take samples from the library; what it returns says whether to stop."""
        if samples and count:
            self.parts.put(ctypes.string_at(samples, 2 * count))
        return int(not self.is_wanted)

    def speak(self, text: str) -> None:
        """Make the samples of a text, which go to `listen`."""
        code = text.encode() + b"\0"
        self.library.espeak_Synth(code, len(code), 0, 0, 0, UTF8, None, None)
        self.parts.put(None)

    def predict(self, text: str) -> Iterator[jitney.Step[bytes]]:
        self.is_wanted = True
        thread = threading.Thread(target=self.speak, args=(text,))
        thread.start()
        pieces = iter(self.parts.get, None)
        try:
            yield from pieces
        finally:
            self.is_wanted = False  # the client may have left in the middle of a sentence
            for _ in pieces:
                pass
            thread.join()
