"""The life of an item: through the front, to a worker, and back."""

from site_pictures.svg import Picture

FRONT = [
    ("Received", "limits of size and time"),
    ("Parsed", "JSON and bytes stay unchanged"),
    ("Admitted", "or refused: 429, 503, 504"),
    ("Queued", "in the lane of its group key"),
    ("Launched", "in a batch, when it pays"),
]
WORKER = [
    ("Encoded", "arrays stay buffers"),
    ("predict(batch)", "your code"),
    ("Decoded", "a bad item fails alone: 422"),
]
WIDTH, HEIGHT, GAP = 206, 44, 20
LEFT, RIGHT, TOP = 16, 264, 78


def draw() -> str:
    """Draw the steps of the front on the left, those of the worker on the right."""
    picture = Picture("The life of an item", 486, 420)
    bottom = TOP + 5 * (HEIGHT + GAP) - GAP
    split, middle = TOP + 2 * (HEIGHT + GAP) - 14, 243
    picture.area([(4, 46), (482, 46), (482, split - 6), (middle, split - 6), (middle, bottom + 12), (4, bottom + 12)])
    picture.area([(middle + 8, split + 4), (482, split + 4), (482, bottom + 12), (middle + 8, bottom + 12)])
    picture.text(LEFT + WIDTH / 2 + 12, 66, "The front: one process, Rust", "small")
    picture.text(RIGHT, bottom + 28, "A worker for each replica, Python", "small")
    for row, (title, detail) in enumerate(FRONT):
        y = TOP + row * (HEIGHT + GAP)
        picture.box((LEFT, y, WIDTH, HEIGHT), title, detail)
        if row:
            picture.arrow((LEFT + WIDTH / 2, y - GAP), (LEFT + WIDTH / 2, y))
    for row, (title, detail) in enumerate(WORKER, 2):
        y = TOP + row * (HEIGHT + GAP)
        picture.box((RIGHT, y, WIDTH, HEIGHT), title, detail, style="other")
        if row > 2:
            picture.arrow((RIGHT + WIDTH / 2, y), (RIGHT + WIDTH / 2, y - GAP))
    picture.box((RIGHT, TOP, WIDTH, HEIGHT), "Answered", "in the form that the client accepts")
    picture.arrow((RIGHT + WIDTH / 2, TOP + 2 * (HEIGHT + GAP)), (RIGHT + WIDTH / 2, TOP + HEIGHT))
    across = TOP + 4 * (HEIGHT + GAP) + HEIGHT / 2
    picture.arrow((LEFT + WIDTH, across), (RIGHT, across))
    picture.box((LEFT, 4, WIDTH, 30), "request of a client", style="area")
    picture.box((RIGHT, 4, WIDTH, 30), "answer", style="area")
    picture.arrow((LEFT + WIDTH / 2, 34), (LEFT + WIDTH / 2, TOP))
    picture.arrow((RIGHT + WIDTH / 2, TOP), (RIGHT + WIDTH / 2, 34))
    return picture.svg()
