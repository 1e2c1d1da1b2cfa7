"""Numbers with their units, as a person reads them, and round numbers for an axis."""

import math

SECONDS = [(60.0, "min", 60.0), (1.0, "s", 1.0), (1e-3, "ms", 1e-3), (1e-6, "µs", 1e-6)]
THOUSANDS = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]
BYTES = [(2.0**30, " GiB"), (2.0**20, " MiB"), (2.0**10, " KiB"), (1.0, " B")]
SUFFIXES = {
    "Bps": "B/s",
    "reqps": " req/s",
    "ops": " /s",
    "percent": " %",
    "watt": " W",
    "celsius": " °C",
    "joule": " J",
}


def rounded(number: float) -> str:
    """Return three digits at most."""
    if number == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(number))))
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def shown(number: float, unit: str) -> str:
    """Return a number with its unit."""
    if unit == "percentunit":
        return f"{rounded(number * 100)} %"
    if unit == "s":
        least, name, factor = next((row for row in SECONDS if abs(number) >= row[0]), SECONDS[-1])
        return f"{rounded(number / factor)} {name}" if number and least else "0 s"
    if unit == "bytes":
        size, name = next((row for row in BYTES if abs(number) >= row[0]), BYTES[-1])
        return rounded(number / size) + name
    size, name = next((row for row in THOUSANDS if abs(number) >= row[0]), THOUSANDS[-1])
    return rounded(number / size) + name + SUFFIXES.get(unit, "")


def ticks(most: float, unit: str) -> list[float]:
    """Return round numbers from 0 to at least the largest value."""
    if most <= 0:
        return [0.0, 1.0]
    base = 2.0 if unit == "bytes" else 10.0
    rough = most / 4
    scale = base ** math.floor(math.log(rough, base))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor >= rough)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]
