"""Find words that make a reader stop: `make lint` runs this over pages, comments and messages.

Each entry of WORDS is a pattern and the plain alternative. BUDGETS says how many findings each root may still have. A
root with too many fails. Lower a budget when you have mended some: `scripts/words.py --lower` does it. The rules behind
the list are in docs/contributing/style.md.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = {
    r"unless told( otherwise)?|unless given|unless said": "by default",
    r"who(so)?ever": "name the subject: clients that …",
    r"(those|he|they) who|(?<!\w )Who (?!is\b|are\b)[a-z]+s\b[^?]*$": "name the subject: clients that …",
    r"nobody('s)?|everybody('s)?|anybody('s)?": "name the subject: no client, all clients, other requests",
    r"(?<!there )(is|are) no (?!longer|more|less|fewer|later|better|worse|slower|faster)": "is not a",
    r"a (clear )?word (for|of|that|about|to)|clear word": "an error, a name",
    r"guilty|innocent|convict\w*|culprits?|crimes?|blamed?|acquit\w*|poison\w*": "the failing item, the cause",
    r"rid(es?|ing|den)|rode|riders?": "is batched with, is in the batch",
    r"doors?": "protocol, admission",
    r"strangers?": "independent clients",
    r"what (is|was|came|comes|goes|leaves) in": "in-flight requests",
    r"(?<!batched )(?<!Batched )by hand": "manually",
    r"let in": "admitted",
    r"for ever": "without end",
    r"at the (most|least)": "at most, at least",
    r"of (its|their|his|her|your|our) own(?! capacity)": "its own …",
    r"in vain": "without success",
    r"tell(s|ing)?|told": "say, report, configure, tell apart: which one?",
    r"under way": "in progress, in flight",
    r"where(of|by|upon|in)|there(of|by|in)|hence": "start a new sentence",
    r"mere(ly)?": "only",
    r"(?<!soon )as (it|they) (came|comes?|is|are)": "unchanged",
    r"(is|are|was|were|has|have|be) gone": "no longer exists, has disconnected",
    r"lately": "recently",
    r"the (latter|former)": "repeat the noun",
    r"in the mean": "on average",
    r"besides?": "next to, with, compared with, also",
    r"(quiet|noisy|slower|busy|quick) hour": "say what the machine did",
    r"now mended|mend(ed|s|ing)?": "fix; and a page tells the present state, not its history",
    r"alike": "similar, the same",
    r"shall": "must, will",
    r"take (one|it|them) away": "remove",
    r"the place of": "the path of, the address of",
    r"gets? out of the way": "leaves room",
    r"(stands?|stood) still": "is idle, stops",
    r"is worth (a|its)": "say the figure",
    r"has (no|its) place": "does not belong, is not allowed",
    r"(is|are) known of": "is known about",
    r"asks? for a word": "needs an explanation",
    r"as (it|they) (likes?|wants?)": "freely",
    r"nothing of": "nothing about, no part of",
    r"so does|so do(?! not)|so is|so are|nor does|nor do|nor is|nor are": "repeat the verb",
    r"(comes?|came) of": "results from",
    r"an own": "its own",
}
PATTERN = re.compile("|".join(f"(?P<w{i}>\\b(?:{word})\\b)" for i, word in enumerate(WORDS)), re.IGNORECASE)
# Findings of a root that are printed without `--all`.
MOST_SHOWN = 40
# The files that list the words themselves.
LISTS = {"scripts/words.py", "tests/contract/test_words.py"}
NAMES = "names of measured cases, which the files of results contain"
# (file, phrase) → why it may stay.
ALLOWED: dict[tuple[str, str], str] = {
    ("benchmarks/page/stories.py", "beside"): NAMES,
    ("benchmarks/policies.py", "strangers"): NAMES,
    ("benchmarks/scenarios.py", "beside"): NAMES,
    ("benchmarks/stories/beside.py", "beside"): NAMES,
    ("tests/unit/benchmarks/test_results_page.py", "beside"): NAMES,
    ("crates/core/tests/batching/stories.rs", "strangers"): "names of the cases of benchmarks/policies.py",
    ("benchmarks/peers/loads.py", "nobody"): "a text that is sent to every server",
    ("benchmarks/peers/loads.py", "those who"): "a text that is sent to every server",
}
# Root → findings that it may still have. A file counts for the longest root that it is below.
BUDGETS = {
    "README.md": 0,
    "CHANGELOG.md": 0,
    "docs": 0,
    "examples": 0,
    "benchmarks": 0,
    "bench": 0,
    "scripts": 0,
    "python": 0,
    "crates": 0,
    "tests": 0,
}
SUFFIXES = {".md", ".py", ".rs"}
CODE = re.compile(r"`[^`]*`|\{[^{}\n]*\}")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Every passage of a file that a person reads, with the number of its first line."""
    text = path.read_text()
    if path.suffix == ".md":
        blanked = re.sub(
            r"^ *```.*?^ *```$|<!--.*?-->", lambda m: "\n" * m.group().count("\n"), text, flags=re.M | re.S
        )
        yield from enumerate((re.sub(r"`[^`]*`|\]\([^)]*\)", "`", line) for line in blanked.splitlines()), 1)
    elif path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            name = tokenize.tok_name[token.type]
            if name == "COMMENT" or (name in ("STRING", "FSTRING_MIDDLE") and token.string.count(" ") > 1):
                yield token.start[0], CODE.sub("`", token.string)
    else:
        for found in re.finditer(r"'(?:\\.|[^'\\])'|\"(?:\\.|[^\"\\])*\"|//[^\n]*", text):
            if found.group().startswith("//") or found.group().count(" ") > 1:
                yield text.count("\n", 0, found.start()) + 1, CODE.sub("`", found.group())


def findings(path: Path, name: str) -> list[str]:
    """Say where a file has a listed word, and what to write in its place."""
    found: list[str] = []
    for first, passage in prose(path):
        for match in PATTERN.finditer(passage):
            if (name, match.group().lower()) in ALLOWED:
                continue
            advice = list(WORDS.values())[int(str(match.lastgroup)[1:])]
            found.append(f"{name}:{first + passage.count(chr(10), 0, match.start())}: {match.group()!r}: {advice}")
    return found


def by_root(root: Path, budgets: dict[str, int]) -> dict[str, list[str]]:
    """List the findings of every root, those of a file at the longest root only."""
    found: dict[str, list[str]] = {name: [] for name in budgets}
    missing = [name for name in budgets if not (root / name).exists()]
    if missing:
        raise SystemExit(f"scripts/words.py: there is no {', '.join(missing)}: correct BUDGETS")
    for path in files(root):
        name = path.relative_to(root).as_posix()
        owners = [each for each in budgets if name == each or name.startswith(f"{each}/")]
        if owners and name not in LISTS:
            found[max(owners, key=len)] += findings(path, name)
    return found


def files(root: Path) -> list[Path]:
    """Every page and source of a tree, without what git ignores."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    paths = [root / name for name in listing.stdout.splitlines()] if listing.returncode == 0 else root.rglob("*")
    return sorted(path for path in paths if path.suffix in SUFFIXES and path.is_file())


def main() -> int:
    counts = by_root(ROOT, BUDGETS)
    over = {name: found for name, found in counts.items() if len(found) > BUDGETS[name]}
    for name, found in (counts if "--all" in sys.argv else over).items():
        print("\n".join(found if "--all" in sys.argv else found[:MOST_SHOWN]))
        print(f"{name}: {len(found)} findings, {BUDGETS[name]} are allowed; `scripts/words.py --all` lists all of them")
    below = {name: len(found) for name, found in counts.items() if len(found) < BUDGETS[name]}
    if below and "--lower" in sys.argv:
        source = Path(__file__).read_text()
        for name, count in below.items():
            source = source.replace(f'"{name}": {BUDGETS[name]},', f'"{name}": {count},')
        Path(__file__).write_text(source)
    elif below:
        print(f"budgets that can be lowered: {', '.join(f'{name} to {count}' for name, count in below.items())}")
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
