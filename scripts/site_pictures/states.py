"""The states of a replica, as `jitney_replicas` counts them."""

from site_pictures.svg import Picture

WIDTH, HEIGHT = 138, 46
# The state, the column and the row of its box, and what it means.
STATES = {
    "waiting": (0, 0, "for a place"),
    "starting": (0, 1, "until it connects"),
    "loading": (0, 2, "model, warm-up"),
    "ready": (0, 3, "answers batches"),
    "leaving": (0, 4, "last batches"),
    "backing_off": (1, 1, "250 ms to 30 s"),
    "dying": (1, 3, "killed or ended"),
    "away": (1, 4, "may come back: ready"),
    "awaiting_change": (2, 2, "until a file changes"),
    "given_up": (2, 3, "cannot be loaded"),
}
# From, to, what happens, and where it is written, next to the arrow: dx, dy from its middle.
CHANGES = [
    ("waiting", "starting", "a place is free", (4, 4)),
    ("starting", "loading", "connected", (4, 4)),
    ("loading", "ready", "warm", (4, 4)),
    ("ready", "leaving", "not needed", (4, 4)),
    ("ready", "dying", "lost", (-10, -5)),
    ("ready", "away", "", (0, 0)),
    ("dying", "backing_off", "ended", (4, 4)),
    ("backing_off", "starting", "", (0, 0)),
    ("loading", "dying", "fails", (2, -8)),
    ("dying", "awaiting_change", "", (0, 0)),
    ("dying", "given_up", "", (0, 0)),
]
LEFT, TOP, ACROSS, DOWN = 4, 6, 170, 78


def corner(state: str) -> tuple[float, float]:
    column, row, _ = STATES[state]
    return LEFT + column * ACROSS, TOP + row * DOWN


def draw() -> str:
    """Draw the way to `ready` on the left, and what happens to a lost worker on the right."""
    picture = Picture("The states of a replica", 490, TOP + 4 * DOWN + HEIGHT + 6)
    for source, target, words, (dx, dy) in CHANGES:
        (x1, y1), (x2, y2) = corner(source), corner(target)
        if x1 == x2:
            down = y2 > y1
            start = (x1 + WIDTH / 2, y1 + (HEIGHT if down else 0))
            end = (x2 + WIDTH / 2, y2 + (0 if down else HEIGHT))
        else:
            right = x2 > x1
            start = (x1 + (WIDTH if right else 0), y1 + HEIGHT / 2)
            end = (x2 + (0 if right else WIDTH), y2 + HEIGHT / 2)
        picture.arrow(start, end)
        if words:
            picture.text((start[0] + end[0]) / 2 + dx, (start[1] + end[1]) / 2 + dy, words, "small")
    for state, (_, _, words) in STATES.items():
        style = "other" if state in {"dying", "away", "given_up"} else "box"
        picture.box((*corner(state), WIDTH, HEIGHT), state, words, style=style)
    return picture.svg()
