"""What notebooks show of models and formulas: HTML without styles of its own or scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def escape(text: str) -> str:
    """Between tags. The library's own module `html` would cost every import its table of names."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code(text: str) -> str:
    """A name, or a line that is one."""
    return f"<code>{escape(text)}</code>"


def block(text: str) -> str:
    """Lines as they are."""
    return f"<pre>{escape(text)}</pre>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are text, aligned to the left, as notebooks do not by themselves."""

    def line(tag: str, cells: Sequence[str]) -> str:
        made = (f'<{tag} style="text-align: left">{escape(it)}</{tag}>' for it in cells)
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', head)}</thead><tbody>{body}</tbody></table>"


def folded(head: str, inside: Sequence[str], is_open: bool) -> str:
    """HTML that a click on the head shows and hides; the head alone where nothing is inside."""
    if not inside:
        return f"<div>{head}</div>"
    shown = "".join(f'<div style="margin-left: 1.5em">{it}</div>' for it in inside)
    return f"<details{' open' * is_open}><summary>{head}</summary>{shown}</details>"
