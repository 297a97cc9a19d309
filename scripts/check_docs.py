"""Build the documentation site without warnings and check every link in it: `python scripts/check_docs.py [FOLDER]`.

Links within the site must lead to a file and, after #, to an element. Links to files of the repository must lead to
files that exist. Other addresses are not opened. Pages may load no script, style, font or image from elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/genpr/genpr"
SITE = "https://genpr.github.io/genpr/"
_LOADED = {("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src"), ("link", "href")}
_NOT_LOADED = {
    "canonical",
    "next",
    "prev",
    "alternate",
    "edit",
}  # relations of <link> that a browser does not fetch


class Page(HTMLParser):
    """The links, loaded resources and element ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See HTMLParser."""
        found = dict(attrs)
        self.ids.update(filter(None, (found.get("id"), found.get("name"))))
        for name in ("href", "src"):
            address = found.get(name)
            if address is None:
                continue
            if (tag, name) in _LOADED and found.get("rel") not in _NOT_LOADED:
                self.loaded.append(address)
            elif tag != "link":
                self.links.append(address)


def problems(site: Path, base: str, root: Path = ROOT) -> Iterator[str]:
    """A line for each broken link and each resource from another server, of a site published at the address `base`."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    site, prefix = site.resolve(), urlparse(base).path
    for path, page in pages.items():
        name = path.relative_to(site)
        for address in page.loaded:
            if urlparse(address).netloc:
                yield f"{name}: loads {address}"
        for address in [*page.links, *page.loaded]:
            bare, anchor = urldefrag(address.removeprefix(base))
            place = urlparse(bare)
            if address.startswith((f"{REPOSITORY}/blob/main/", f"{REPOSITORY}/tree/main/")):
                if not (root / bare.split("/main/")[1]).exists():
                    yield f"{name}: {address} is not in the repository"
                continue
            if place.scheme or place.netloc:
                continue
            there = unquote(place.path)
            folder = site if there.startswith("/") or address.startswith(base) else path.parent
            target = (folder / there.removeprefix(prefix).lstrip("/")).resolve() if there else path
            if address == base:
                target = site
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{name}: {address} does not exist"
            elif anchor and target in pages and unquote(anchor) not in pages[target].ids:
                yield f"{name}: {address} has no such anchor"


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site into a folder; warnings are errors. Not with --quiet, which would hide them."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def main(folder: Path) -> int:
    """Build, check, and print what is wrong; the exit code."""
    built = build(folder)
    if built.returncode:
        print(built.stdout + built.stderr, end="")
        return 1
    found = list(problems(folder, SITE))
    print("\n".join([*found, f"{len(found)} broken links"]))
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(temporary)))
