#!/usr/bin/env python3
"""Checks the links of finished HTML pages, without the network: each file and each anchor that a page refers to exists.

    scripts/check-links.py FOLDER...

Addresses of other sites are not opened.
"""

import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

# `id="here"` and `href="there"` of a tag; quoted `>` are inside of the attributes. Not in text, where `<` is `&lt;`.
TAG = re.compile(r"""<[a-zA-Z][\w-]*((?:\s+[\w:-]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'>]+))?)*)\s*/?>""")
ATTRIBUTE = re.compile(r"""([\w:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
# What is in a script or a style sheet is no page.
SCRIPT = re.compile(r"(<(script|style)\b[^>]*>).*?</\2>|<!--.*?-->", re.DOTALL)
ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:|//")


class Page:
    """The anchors of a page, and what it refers to."""

    def __init__(self, path):
        self.anchors, self.links = {"", "top"}, set()
        text = SCRIPT.sub(r"\1", path.read_text(encoding="utf-8"))
        for tag in TAG.finditer(text):
            for match in ATTRIBUTE.finditer(tag[1]):
                name, value = match[1].lower(), unescape(match[2] or match[3] or match[4] or "")
                if name in ("id", "name"):
                    self.anchors.add(value)
                elif name in ("href", "src"):
                    self.links.add(value)


def problems(folder):
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        yield f"{folder}: no pages"
    for path, page in pages.items():
        where = path.relative_to(folder.resolve())
        for link in sorted(page.links):
            if ELSEWHERE.match(link):
                continue
            file, _, anchor = link.partition("#")
            file = unquote(file.partition("?")[0])
            to = (path.parent / file).resolve() if file else path
            if to.is_dir():
                to /= "index.html"
            if not to.is_file():
                yield f"{where}: {link}: there is no such file"
            # rustdoc marks ranges of lines by a script.
            elif to in pages and not ({anchor, unquote(anchor)} & pages[to].anchors or re.fullmatch(r"\d+-\d+", anchor)):
                yield f"{where}: {link}: there is no such anchor"


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    found = [problem for folder in arguments for problem in problems(Path(folder))]
    print("\n".join(found) if found else f"all links of {', '.join(arguments)} lead somewhere")
    return bool(found)


sys.exit(main())
