"""The lineage of a rollout as a picture: a lane for each attempt, calls from top to bottom, boundaries, and what a restore does.

Inline SVG without style or script of its own; what a shape means is told by its outline and by words in it, not by its colour.
The same facts stand in words in the picture's description.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap

from ckptctl.domain.amounts import plural
from ckptctl.domain.rollout_story import RolloutStory, StoryAttempt, StoryCall, StoryRow
from ckptctl.render.html_frame import scroll, t
from ckptctl.render.rollout_text import unlisted

LANE, NODE_WIDTH, NODE_HEIGHT, GAP, TOP = 198, 174, 40, 32, 34
LINE_HEIGHT = 13
"""What a node whose detail takes a second line is higher; it comes out of the gap below it."""
MOST_NODES = 24
"""Calls of one attempt that are drawn, the newest ones."""
LABEL_CHARS = 21
FATES = {
    "continue": "continues",
    "restart": "restarts",
    "reuse": "result kept",
    "finished": "finished group kept",
    "nothing": "not dispatched",
    "refused": "not restored",
}
ROW_WORDS = {
    "stored": "✓ stored",
    "not_produced": "✗ not produced",
    "dangling": "✗ not stored",
    "missing": "✗ row missing",
    "not_known": "? row unread",
}


@dataclass(slots=True)
class _Node:
    lane: int
    place: int
    key: tuple[int, str]
    style: str
    title: str
    detail: str
    parent: str | None = None

    @property
    def left(self) -> int:
        return self.lane * LANE + 8

    @property
    def top(self) -> int:
        return TOP + self.place * (NODE_HEIGHT + GAP)

    @property
    def details(self) -> list[str]:
        """Its detail on as many lines as there is room for."""
        return wrap(self.detail, LABEL_CHARS + 2, max_lines=2, placeholder="\u2026", break_on_hyphens=False)

    @property
    def height(self) -> int:
        return NODE_HEIGHT + LINE_HEIGHT * (len(self.details) > 1)

    @property
    def middle(self) -> int:
        return self.left + NODE_WIDTH // 2


def lineage_picture(story: RolloutStory) -> str:
    """The picture of one rollout in one snapshot."""
    nodes: list[_Node] = []
    for lane, attempt in enumerate(story.attempts):
        nodes += _attempt_nodes(lane, attempt, len(nodes))
    lanes = [f"attempt {item.attempt_index}: {item.status or unlisted(story)}" for item in story.attempts]
    fate = _fate_node(story, nodes, len(lanes))
    nodes.append(fate)
    lanes += ["a restore"] if fate.lane == len(lanes) else []
    width = max(len(lanes), 1) * LANE + 8
    height = TOP + max(len(nodes), 1) * (NODE_HEIGHT + GAP)
    drawn = "".join((*(_lane(lane, text) for lane, text in enumerate(lanes)), *_edges(nodes), *map(_draw, nodes)))
    words = "; ".join(f"{node.title}, {node.detail}" for node in nodes)
    return scroll(
        f'<svg class="picture" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{t('lineage in ' + story.snapshot)}</title><desc>{t(words)}</desc>{drawn}</svg>",
        f"lineage in {story.snapshot}",
    )


def _attempt_nodes(lane: int, attempt: StoryAttempt, place: int) -> Iterator[_Node]:
    """Rows without a call first (older calls, of which only the staged row is left), then calls, then boundary and sessions."""
    rows = {row.key: row for row in attempt.rows}
    told = {call.staging_key for call in attempt.calls}
    bare = [row for row in attempt.rows if row.key not in told]
    hidden = len(bare) + len(attempt.calls) - MOST_NODES
    if hidden > 0:
        name = plural(hidden, "earlier call")
        yield _Node(lane, place, (attempt.attempt_index, ""), "bare", name, "not drawn")
        place += 1
    for row in bare[max(0, hidden) :]:
        call_id = row.key.partition("/")[2] or row.key
        needed = "needed" if row.needed_by else "not needed"
        yield _Node(
            lane,
            place,
            (attempt.attempt_index, call_id),
            _row_style(row, "bare"),
            call_id,
            f"{ROW_WORDS[row.state]}, {needed}",
        )
        place += 1
    for call in attempt.calls[max(0, hidden - len(bare)) :]:
        yield _call_node(lane, place, attempt.attempt_index, call, rows.get(call.staging_key or ""))
        place += 1
    last = attempt.calls[-1].model_call_id if attempt.calls else None
    yield from _saved_nodes(lane, place, attempt, last)


def _saved_nodes(lane: int, place: int, attempt: StoryAttempt, last: str | None) -> Iterator[_Node]:
    saved = attempt.boundary
    if saved is not None:
        detail = f"turn {saved.turn_index}, {saved.kind}"
        parent = saved.last_call or last
        yield _Node(
            lane,
            place,
            (attempt.attempt_index, "boundary"),
            "point",
            f"boundary {saved.boundary_index}",
            detail,
            parent,
        )
        place += 1
    for session in attempt.sessions:
        agrees = session.wanted_revision == session.revision
        fits = (
            "as needed"
            if agrees
            else "no boundary needs it"
            if session.wanted_revision is None
            else f"needed: {session.wanted_revision}"
        )
        sign = "✓" if agrees else "✗"
        detail = f"{sign} revision {session.revision}, {fits}"
        style = "" if agrees else "lost"
        yield _Node(
            lane,
            place,
            (attempt.attempt_index, f"session {session.server_name}"),
            style,
            f"session {session.server_name}",
            detail,
            "boundary",
        )
        place += 1


def _call_node(lane: int, place: int, attempt: int, call: StoryCall, row: StoryRow | None) -> _Node:
    if call.problem is not None:
        return _Node(
            lane,
            place,
            (attempt, call.model_call_id),
            "lost",
            call.model_call_id,
            f"✗ {call.problem}",
            call.parent_call_id,
        )
    told = "no staged row" if row is None else ROW_WORDS[row.state]
    tokens = "" if call.all_tokens is None else f"{call.all_tokens:,} tokens, "
    style = "" if row is None else _row_style(row, "")
    return _Node(
        lane, place, (attempt, call.model_call_id), style, call.model_call_id, f"{tokens}{told}", call.parent_call_id
    )


def _row_style(row: StoryRow, whole: str) -> str:
    return whole if row.state in {"stored", "not_known"} else "lost"


def _fate_node(story: RolloutStory, nodes: list[_Node], lanes: int) -> _Node:
    """What a restore makes of it: a node of its own, in the lane of the next attempt where there will be one."""
    fate, place = story.fate, len(nodes)
    words = FATES[fate.decision]
    if fate.decision not in {"continue", "restart"} or fate.replacement_attempt is None:
        return _Node(max(0, lanes - 1), place, (-1, "next"), "next", words, fate.reason)
    source = next((node.key[1] for node in reversed(nodes) if node.key[1] == "boundary"), None)
    parent = source if fate.decision == "continue" else None
    key = (fate.replacement_attempt, "next")
    return _Node(lanes, place, key, "next", f"attempt {fate.replacement_attempt} {words}", fate.reason, parent)


def _lane(lane: int, text: str) -> str:
    return f'<text class="lane" x="{lane * LANE + 8}" y="18"><title>{t(text)}</title>{t(_cut(text, 26))}</text>'


def _edges(nodes: list[_Node]) -> Iterator[str]:
    """An arrow from each parent; a parent of an earlier attempt is looked for there."""
    for place, node in enumerate(nodes):
        parent = next((item for item in reversed(nodes[:place]) if node.parent and item.key[1] == node.parent), None)
        if parent is not None:
            yield _arrow(parent, node)


def _arrow(parent: _Node, node: _Node) -> str:
    start, end = parent.top + parent.height, node.top - 5
    if parent.lane == node.lane and node.place == parent.place + 1:
        path = f"M{parent.middle} {start}V{end}"
    elif parent.lane == node.lane:
        side = parent.left + NODE_WIDTH
        path = f"M{side} {parent.top + NODE_HEIGHT // 2}h8V{end - 6}H{node.middle + 12}L{node.middle + 12} {end}"
        return f'<path class="edge" d="{path}"/>{_head(node.middle + 12, end)}'
    else:
        side, height = parent.left + NODE_WIDTH, parent.top + NODE_HEIGHT // 2
        path = f"M{side} {height}C{node.middle} {height} {node.middle} {height} {node.middle} {end}"
    return f'<path class="edge" d="{path}"/>{_head(node.middle, end)}'


def _head(x: int, y: int) -> str:
    return f'<path class="head" d="M{x - 4} {y - 2}h8l-4 7z"/>'


def _draw(node: _Node) -> str:
    left, top = node.left, node.top
    details = "".join(
        f'<text class="small" x="{left + 8}" y="{top + 32 + LINE_HEIGHT * line}">{t(text)}</text>'
        for line, text in enumerate(node.details)
    )
    return (
        f"<g><title>{t(f'{node.title}: {node.detail}')}</title>"
        f'<rect class="node {node.style}" x="{left}" y="{top}" width="{NODE_WIDTH}" height="{node.height}" rx="5"/>'
        f'<text x="{left + 8}" y="{top + 17}">{t(_cut(node.title, LABEL_CHARS))}</text>{details}</g>'
    )


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
