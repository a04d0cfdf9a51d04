#!/usr/bin/env python3
"""Writes the chapters of the guide as a code host shows them: docs/guide/*.md, from src/guide/*.md.

    scripts/guide.py            writes docs/guide, and docs/SUMMARY.md, the table of contents of the site
    scripts/guide.py --check    writes nothing: fails if a file differs, or if a link of README.md or docs leads nowhere
    scripts/guide.py --site API DOCS
                                writes the chapters into DOCS, a copy of docs, with links to items of the crate, which are
                                taken from rustdoc's pages in the folder API; DOCS/../api is where the site has them

The chapters in src/guide are for rustdoc, which compiles their examples and resolves their links to items of the crate. Here a
chapter gets a title, its sections move down a level, hidden lines of examples are left out, links between chapters are relative,
and links to items become code. A comment `<!-- picture: FILE TEXT -->` becomes a picture, which rustdoc's pages cannot have: their
folder is made by rustdoc alone. `scripts/site.sh` makes the site.
"""

import posixpath
import re
import sys
from html import unescape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TARGET = ROOT / "src/guide", ROOT / "docs/guide"
NOTE = "<!-- Written by scripts/guide.py from {name}: edit that file. -->\n\n"

# The words of rustdoc behind three backticks; without any, an example is Rust, too.
RUSTDOC = {"", "no_run", "standalone_crate", "compile_fail", "ignore", "should_panic", "rust"}
FENCE = re.compile(r"^( *)```(.*)$")
HIDDEN = re.compile(r"^ *#( |$)")
# `[text](target)`, with one pair of brackets or parentheses inside of each.
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(((?:[^()\s]|\([^()]*\))*)\)")
# On the first page, what the site has instead is a link.
API = "documentation of the API (`cargo doc --open`)"
PICTURE = re.compile(r"^<!-- picture: (\S+) (.*) -->$")
# `[`name`]`, which rustdoc resolves.
SHORT = re.compile(r"\[(`[^`\]]+`)\](?![\[(])")


def chapters():
    """(file, title, about) of each chapter, by the table of src/guide.rs."""
    text = (ROOT / "src/guide.rs").read_text(encoding="utf-8")
    about = dict(re.findall(r"^//! \| \[`(\w+)`\] \| (.*) \|$", text, re.MULTILINE))
    files = re.findall(r'^    (\w+) "([\w-]+\.md)"$', text, re.MULTILINE)
    found = []
    for name, file in files:
        title = name.replace("_", " ")
        for word, right in (("cuda", "CUDA"), ("gpu", "GPU")):
            title = re.sub(rf"\b{word}\b", right, title)
        found.append((file, title[0].upper() + title[1:], about.get(name, "")))
    return found


def plain(text):
    """A piece of Markdown without its marks."""
    return " ".join(re.sub(r"[`*\\]", "", text).split())


def shown(text):
    """What rustdoc makes of it, which also has other quotes."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", text)).replace("’", "'").replace("*", "").split())


class Items:
    """The items of the crate that a chapter refers to, as rustdoc found them."""

    def __init__(self, api, name):
        page = (api / f"cuguard/guide/{name}/index.html").read_text(encoding="utf-8")
        self.name, self.missing, self.addresses = name, [], {}
        # Not the links of the bar beside the chapter.
        for address, text in re.findall(r'<a href="([^"]+)"[^>]*>(.*?)</a>', page[page.index('class="docblock"') :], re.DOTALL):
            self.addresses.setdefault(shown(text), []).append(unescape(address))

    def link(self, text):
        # The same text may lead to several items: they come in the order of the chapter.
        addresses = self.addresses.get(plain(text), [])
        if not addresses:
            self.missing.append(text)
            return text
        address = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        if not re.match(r"https?:", address):
            address = "../api/" + posixpath.normpath(f"cuguard/guide/{self.name}/{address}")
        return f"[{text}]({address})"


def link(match, item):
    text, target = match[1], match[2]
    if re.match(r"https?:|#|\.", target):
        return match[0]
    chapter = re.fullmatch(r"(crate::guide::|super::|)(\w+)(#[\w-]+)?", target)
    if chapter and (file := chapter[2].replace("_", "-") + ".md") in {path.name for path in SOURCE.glob("*.md")}:
        return f"[{text}]({file}{chapter[3] or ''})"
    return item(text)


def prose(line, item=lambda text: text):
    """A paragraph with the links of a code host. `item` is what becomes of the text of a link to an item."""
    return SHORT.sub(lambda match: item(match[1]), LINK.sub(lambda match: link(match, item), line))


def paragraphs(lines, item):
    """Links may go over the end of a line: each paragraph is changed as a whole."""
    text = prose("\n".join(lines), item)
    # A link to an item and what follows are one piece of code.
    return re.sub(r"(`[^`\n]+)``([^`\n]+`)", r"\1\2", text).split("\n")


def chapter(file, title, item=lambda text: text):
    source = (SOURCE / file).read_text(encoding="utf-8").split("\n")
    page, waiting, rust, inside = [], [], False, False
    for line in source:
        line = PICTURE.sub(r"![\2](\1)", line)
        fence = FENCE.match(line)
        if fence is None and not inside and line.strip():
            waiting.append(f"#{line}" if re.match(r"#+ ", line) else line)
            continue
        page += paragraphs(waiting, item) if waiting else []
        waiting = []
        if fence:
            words = {word.split("=")[0] for word in fence[2].split(",")}
            if not inside:
                rust = words <= RUSTDOC or any(re.fullmatch(r"E\d{4}", word) for word in words)
                page.append(f"{fence[1]}```rust" if rust else line)
            else:
                page.append(line)
            inside = not inside
        elif inside and rust and HIDDEN.match(line):
            continue
        elif inside and rust:
            page.append(re.sub(r"^( *)##", r"\1#", line))
        else:
            page.append(line)
    page += paragraphs(waiting, item) if waiting else []
    text = "\n".join(page).rstrip() + "\n"
    # What hidden lines left at the beginning of an example.
    text = re.sub(r"```rust\n\n+", "```rust\n", text)
    return NOTE.format(name=f"src/guide/{file}") + f"# {title}\n\n{text}"


def contents():
    rows = [f"- [{title}]({file}): {prose(about)}" for file, title, about in chapters()]
    return NOTE.format(name="src/guide.rs") + "# The guide\n\n" + "\n".join(rows) + "\n"


def summary():
    """The table of contents of the site: the guide, then the other documents."""
    guide = [f"- [{title}](guide/{file})" for file, title, _ in chapters()]
    others = sorted(path for path in TARGET.parent.glob("*.md") if path.name not in ("README.md", "SUMMARY.md"))
    others.append(TARGET.parent / "gallery/README.md")
    titles = {path: re.search(r"^# (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)[1] for path in others}
    rows = [f"- [{title}]({path.relative_to(TARGET.parent)})" for path, title in sorted(titles.items(), key=lambda row: row[1].lower())]
    parts = ["# Summary", "[cuguard](README.md)", "# The guide", "- [All chapters](guide/README.md)\n" + "\n".join(guide)]
    parts += ["# Reference", "\n".join(rows)]
    return NOTE.format(name="src/guide.rs") + "\n\n".join(parts) + "\n"


def pages():
    written = {"README.md": contents(), "../SUMMARY.md": summary()}
    return written | {file: chapter(file, title) for file, title, _ in chapters()}


def write_site(api, docs):
    """Chapters with links to items of the crate. Returns what rustdoc does not have."""
    missing = []
    for file, title, _ in chapters():
        items = Items(api, file.removesuffix(".md").replace("-", "_"))
        (docs / "guide" / file).write_text(chapter(file, title, items.link), encoding="utf-8")
        missing += [f"{file}: rustdoc has no link {text}" for text in items.missing]
    front = docs / "README.md"
    text = front.read_text(encoding="utf-8")
    if API not in text:
        missing.append(f"docs/README.md does not have {API}")
    front.write_text(text.replace(API, "[documentation of the API](api/cuguard/index.html)"), encoding="utf-8")
    # mdBook makes a README.md the index of its folder, and leaves the links to it.
    for path in docs.rglob("*.md"):
        if path.name != "SUMMARY.md":
            text = path.read_text(encoding="utf-8")
            path.write_text(re.sub(r"(\]\((?:[\w./-]*/)?)README\.md", r"\1index.md", text), encoding="utf-8")
    return missing


def anchors(text):
    """The anchors of a page, as code hosts make them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = sum(1 for known in found if re.fullmatch(rf"{re.escape(words)}(-\d+)?", known))
        found.add(f"{words}-{number}" if number else words)
    return found


def broken_links():
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    for path in sorted(files):
        text = path.read_text(encoding="utf-8")
        prose_only = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
        prose_only = re.sub(r"`[^`\n]*`", "", prose_only)
        for left in re.findall(r"\[`[^`\]]*`\](?!\()", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)):
            if path.parent == TARGET:
                yield f"{path.relative_to(ROOT)}: {left}: a link of rustdoc is left"
        for _, target in LINK.findall(prose_only):
            file, _, anchor = target.partition("#")
            if re.match(r"https?:|mailto:", target):
                continue
            to = (path.parent / file).resolve() if file else path
            if not to.exists():
                yield f"{path.relative_to(ROOT)}: {target}: there is no such file"
            elif anchor and to.suffix == ".md" and anchor not in anchors(to.read_text(encoding="utf-8")):
                yield f"{path.relative_to(ROOT)}: {target}: there is no such section"


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 3 and arguments[0] == "--site":
        missing = write_site(Path(arguments[1]), Path(arguments[2]))
        print("\n".join(missing), file=sys.stderr)
        return bool(missing)
    if arguments not in ([], ["--check"]):
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    problems = []
    sources = {path.name for path in SOURCE.glob("*.md")}
    problems += [f"src/guide/{name}: src/guide.rs does not have it" for name in sorted(sources - pages().keys())]
    if not arguments:
        TARGET.mkdir(exist_ok=True)
        for name, text in pages().items():
            (TARGET / name).write_text(text, encoding="utf-8")
    for name, text in pages().items():
        path = TARGET / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            problems.append(f"docs/guide/{name}: differs from src/guide: run scripts/guide.py")
    known = pages().keys()
    problems += [f"docs/guide/{path.name}: no chapter" for path in TARGET.glob("*.md") if path.name not in known]
    problems += broken_links()
    print("\n".join(problems) if problems else f"{len(known)} pages of the guide and its contents, all links lead somewhere")
    return bool(problems)


sys.exit(main())
