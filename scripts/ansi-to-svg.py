"""Turns terminal output with colours (standard input) into an SVG picture (standard output)."""

import html
import re
import sys

FONT, WIDTH, HEIGHT, MARGIN = 13, 7.83, 18, 16
COLOURS = {
    "30": "#484f58", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff",
    "35": "#d2a8ff", "36": "#76e3ea", "37": "#e6edf3", "90": "#8b949e",
}


def spans(line):
    """The line as (text, colour, bold, dim)."""
    colour, bold, dim = None, False, False
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if not code:
            if part:
                yield part, colour, bold, dim
            continue
        for number in code.group(1).split(";"):
            if number in ("", "0"):
                colour, bold, dim = None, False, False
            elif number == "1":
                bold = True
            elif number == "2":
                dim = True
            elif number == "22":
                bold = dim = False
            elif number == "39":
                colour = None
            elif number in COLOURS:
                colour = COLOURS[number]


def main():
    lines = [line.rstrip("\n").expandtabs() for line in sys.stdin]
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    width = round(max(map(len, plain)) * WIDTH + 2 * MARGIN)
    height = len(lines) * HEIGHT + 2 * MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
          f'viewBox="0 0 {width} {height}" role="img" aria-label="A leak report">')
    print(f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>')
    print(f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
          f'font-size="{FONT}" fill="#e6edf3">')
    for number, line in enumerate(lines):
        y = MARGIN + (number + 1) * HEIGHT - 5
        column, pieces = 0, []
        for text, colour, bold, dim in spans(line):
            style = f' x="{MARGIN + column * WIDTH:.1f}"'
            style += f' fill="{colour}"' if colour else ""
            style += ' font-weight="bold"' if bold else ""
            style += ' opacity="0.65"' if dim else ""
            pieces.append(f"<tspan{style}>{html.escape(text)}</tspan>")
            column += len(text)
        if pieces:
            # On each element: Chromium does not inherit it from the group. The attribute is for
            # renderers that know no `white-space`.
            print(f'<text y="{y}" xml:space="preserve" style="white-space: pre">{"".join(pieces)}</text>')
    print("</g></svg>")


main()
