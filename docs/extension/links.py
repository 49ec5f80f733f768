"""Checks a built site: every link inside of it leads to a page, and to a place on that page.

``python docs/extension/links.py site`` prints what leads nowhere; links to other sites are not
followed. Pages must be complete in themselves: scripts, styles and pictures of other sites are
reported, too.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes that make the browser fetch something at once.
FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}


class Page(HTMLParser):
    """The places of a page, and where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: set[tuple[str, str]] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser for each tag."""
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            if value and name in ("href", "src"):
                self.links.add((tag, value))


def broken(site: Path) -> list[str]:
    """What leads nowhere, one line each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    return sorted(
        f"{path.relative_to(site)}: {link}: {complaint}"
        for path, page in pages.items()
        for tag, link in page.links
        if (complaint := _complaint(path, tag, link, pages))
    )


def _complaint(path: Path, tag: str, link: str, pages: dict[Path, Page]) -> str:
    """What is wrong with a link of a page; empty when nothing is."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        outside = parts.scheme != "data" and (tag, "src" if tag != "link" else "href") in FETCHED
        return "is fetched from another site" if outside else ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.exists():
        return "there is no such file"
    if not parts.fragment or target not in pages:
        return ""
    return "" if unquote(parts.fragment) in pages[target].places else "there is no such place"


if __name__ == "__main__":
    complaints = broken(Path(sys.argv[1]).resolve())
    print("\n".join(complaints))
    sys.exit(bool(complaints))
