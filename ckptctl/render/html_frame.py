"""The frame of a page that is one file: nothing is loaded from anywhere, nothing runs, and what came from files is text.

The content security policy allows one style sheet, named by its digest, and nothing else: no script, no font, no image, no form.
Colours come in two sets, light and dark, by what the reader's system prefers; every colour has a sign or a word beside it, so
that the page reads without colour and on paper.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable

from ckptctl.domain.finding import VerdictName
from ckptctl.domain.safe_text import safe

MOST_COLUMNS = 4
"""A table of more does not fit the narrowest screens."""
VERDICT_SIGNS: dict[VerdictName, str] = {"valid": "✓", "incomplete": "?", "incompatible": "≠", "invalid": "✗"}
STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1b1f24; --quiet: #57606a; --line: #d0d7de; --band: #f6f8fa;
  --good: #116329; --warn: #7d4e00; --bad: #a40e26; --other: #6639ba; --asked: #ffffff; --own: #0a5bc4; --node: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --ink: #e6edf3; --quiet: #9aa4af; --line: #3d444d;
  --band: #161b22; --good: #56d364; --warn: #e3b341; --bad: #ff7b72; --other: #d2a8ff; --asked: #0d1117; --own: #6cb6ff;
  --node: #161b22; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .25rem 0; }
code, .mono { font-family: ui-monospace, monospace; font-size: .87em; }
.quiet { color: var(--quiet); }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); } .other { color: var(--other); }
.sign { font-weight: 700; }
.facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .1rem 1rem; margin: .5rem 0; }
.facts dt { color: var(--quiet); } .facts dd { margin: 0; }
.wide { overflow-x: auto; margin: .5rem 0; background: linear-gradient(to right, var(--page) 40%, transparent) left,
  linear-gradient(to left, var(--page) 40%, transparent) right, linear-gradient(to right, var(--line), transparent) left,
  linear-gradient(to left, var(--line), transparent) right; background-repeat: no-repeat;
  background-size: 2.5rem 100%, 2.5rem 100%, .6rem 100%, .6rem 100%; background-attachment: local, local, scroll, scroll; }
.wide:focus-visible { outline: 2px solid var(--own); }
table { border-collapse: collapse; font-size: .92em; }
.full { width: 100%; }
caption { text-align: left; color: var(--quiet); padding-bottom: .25rem; }
th, td { text-align: left; padding: .2rem .6rem .2rem 0; vertical-align: top; border-bottom: 1px solid var(--line);
  overflow-wrap: normal; }
th { font-weight: 600; }
.num { text-align: right; white-space: nowrap; }
.name { white-space: nowrap; }
.text { overflow-wrap: anywhere; min-width: 12rem; }
.bar { width: 100%; min-width: 6rem; padding-right: .6rem; }
.bar svg { display: block; width: 100%; height: .9rem; margin-top: .3rem; overflow: visible; }
.track { fill: var(--band); }
.asked { fill: var(--asked); stroke: var(--own); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.window { fill: none; stroke: var(--ink); stroke-width: 2; vector-effect: non-scaling-stroke; }
.own { fill: var(--own); stroke: var(--own); vector-effect: non-scaling-stroke; }
.failed { fill: var(--bad); stroke: var(--bad); vector-effect: non-scaling-stroke; }
.key { display: inline-block; width: 1.6rem; height: .8rem; border: 1.5px solid var(--own); margin: 0 .3rem 0 0; }
.key.solid { background: var(--own); }
.matrix th, .matrix td { border: 1px solid var(--line); padding: .25rem .4rem; text-align: center; min-width: 3.4rem; }
.matrix thead th { vertical-align: bottom; font-size: .85em; overflow-wrap: normal; }
.matrix tbody th { text-align: left; white-space: nowrap; }
.matrix tbody th { position: sticky; left: 0; background: var(--page); }
.matrix .none { background: var(--band); }
.matrix .differs { outline: 3px solid var(--bad); outline-offset: -3px; }
.matrix .doubtful { outline: 2px dashed var(--warn); outline-offset: -2px; }
.matrix .unknown { outline: 2px dotted var(--warn); outline-offset: -2px; }
.matrix small { display: block; line-height: 1.2; }
.finding { border-left: 4px solid var(--line); padding: .1rem 0 .1rem .75rem; margin: .6rem 0; }
.finding.error { border-color: var(--bad); } .finding.warning { border-color: var(--warn); border-left-style: double; }
.picture { display: block; max-width: none; }
.picture text { font: 12px ui-monospace, monospace; fill: var(--ink); }
.picture .small { font-size: 11px; fill: var(--quiet); }
.picture .lane { font: 600 12px system-ui, sans-serif; }
.node { fill: var(--node); stroke: var(--ink); stroke-width: 1.2; }
.node.lost { stroke: var(--bad); stroke-width: 2; stroke-dasharray: 2 3; }
.node.bare { stroke: var(--quiet); stroke-dasharray: 5 3; }
.node.point { stroke: var(--good); stroke-width: 2.5; }
.node.next { stroke: var(--other); stroke-width: 2; stroke-dasharray: 6 3; }
.edge { fill: none; stroke: var(--quiet); stroke-width: 1.3; }
.head { fill: var(--quiet); }
footer { margin-top: 3rem; color: var(--quiet); font-size: .87em; border-top: 1px solid var(--line); padding-top: .5rem; }
@media (max-width: 34rem) { .facts { display: block; } .facts dt, .facts dd { display: inline; }
  .facts dt::after { content: ": "; } .facts dd::after { content: "\\A"; white-space: pre; }
  .rows thead { display: none; } .rows tr, .rows .bar { display: block; } .rows tr { border-bottom: 1px solid var(--line); }
  .rows td { display: inline-block; border: 0; padding: .1rem .8rem .1rem 0; min-width: 0; white-space: normal; }
  .rows td[data-title]::before { content: attr(data-title) " "; color: var(--quiet); }
  .matrix thead th { writing-mode: vertical-rl; text-align: left; } .matrix tbody th { white-space: normal; }
  .matrix th, .matrix td, .matrix thead th { min-width: 0; padding: .1rem; font-size: .75rem; }
  .matrix small { writing-mode: vertical-rl; margin: 0 auto; }
  .matrix :not(.differs, .doubtful, .unknown) > small { display: none; } }
@media print { :root { color-scheme: light; --page: #fff; --ink: #000; --quiet: #333; --line: #999; --band: #eee;
  --good: #000; --warn: #000; --bad: #000; --other: #000; --asked: #fff; --own: #444; --node: #fff; }
  body { max-width: none; padding: 0; font-size: 10pt; } .wide { overflow: visible; background: none; }
  .own, .key.solid { print-color-adjust: exact; } h2, h3 { break-after: avoid; }
  tr, .finding, .picture, .matrix { break-inside: avoid; } .matrix { font-size: 7pt; } .matrix th, .matrix td { min-width: 0; } }
"""


def t(text: object) -> str:
    """Any value as the text of an element or of an attribute: no control character, no markup."""
    return html.escape(safe(str(text)), quote=True)


def prose(text: object) -> str:
    """A sentence as the content of an element: what stands in backquotes is set apart."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", t(text))


def page(title: str, body: Iterable[str], *, footer: str) -> str:
    """The whole document. `title` and `footer` are texts, `body` is made of pieces of this package."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="robots" content="noindex">',
            f"<title>{t(title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            f"<footer>{t(footer)}</footer>",
            "</body>",
            "</html>",
            "",
        )
    )


def verdict(name: VerdictName, words: str | None = None) -> str:
    """A verdict with its sign."""
    style = {"valid": "good", "incomplete": "warn", "incompatible": "other", "invalid": "bad"}[name]
    return f'<span class="{style}"><span class="sign">{VERDICT_SIGNS[name]}</span> {t(words or name)}</span>'


def facts(*pairs: tuple[str, object]) -> str:
    """A list of facts; those that are None are left out."""
    rows = "".join(f"<dt>{t(name)}</dt><dd>{t(value)}</dd>" for name, value in pairs if value is not None)
    return f'<dl class="facts">{rows}</dl>'


def table(
    caption: str, heads: Iterable[tuple[str, str]], rows: Iterable[Iterable[str]], *, is_full: bool = False
) -> str:
    """A table that scrolls by itself where it is too wide. `heads`: title and class of each column; cells are markup already."""
    columns = tuple(heads)
    styles = (
        "full rows" if is_full else "rows" if len(columns) > MOST_COLUMNS or "text" in dict(columns).values() else ""
    )
    head = "".join(f'<th scope="col" class="{style}">{t(title)}</th>' for title, style in columns)
    body = "".join(f"<tr>{_cells(row, columns)}</tr>" for row in rows)
    return scroll(
        f'<table class="{styles}"><caption>{t(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>",
        caption,
    )


def _cells(row: Iterable[str], columns: tuple[tuple[str, str], ...]) -> str:
    """On a narrow screen rows become blocks, in which each cell but the first and the bars has the title of its column."""
    drawn = []
    for place, (cell, (title, style)) in enumerate(zip(row, columns, strict=True)):
        titled = f' data-title="{t(title)}"' if place and title and cell and style != "bar" else ""
        drawn.append(f'<td class="{style}"{titled}>{cell}</td>')
    return "".join(drawn)


def scroll(inner: str, label: str) -> str:
    """Something wide, in a box that scrolls and can be reached by keyboard."""
    return f'<div class="wide" tabindex="0" role="region" aria-label="{t(label)}">{inner}</div>'


def section(title: str, *pieces: str) -> str:
    """A part of the page under a heading."""
    return f"<section><h2>{t(title)}</h2>{''.join(pieces)}</section>"


def bar(*parts: tuple[str, float, float], label: str) -> str:
    """A bar whose parts (class, beginning and length as shares of one) lie where they belong; `label` says it in words."""
    drawn = "".join(
        f'<rect class="{style}" x="{1000 * begin:.1f}" y="1" width="{max(3.0, 1000 * length):.1f}" height="10"/>'
        for style, begin, length in parts
    )
    return (
        f'<svg viewBox="0 0 1000 12" preserveAspectRatio="none" role="img" aria-label="{t(label)}">'
        f'<rect class="track" x="0" y="0" width="1000" height="12"/>{drawn}</svg>'
    )
