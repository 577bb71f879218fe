"""Computes where the boxes of a graph go, in layers from left to right.

A connection gets a slot in each layer that it crosses, so that it never runs behind a box.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Key = tuple[str, ...]
"""Identifies a box as (name,) or a slot as (source, target, layer)."""

SWEEPS = 12
GAP, SLOT_GAP, SLOT_HEIGHT = 30.0, 10.0, 8.0


@dataclass(slots=True)
class BoxLayout:
    """The layout of a graph, in pixels: the top of each box and slot, and the left edge and width of each layer."""

    layer_of: dict[str, int]
    top: dict[Key, float]
    left: list[float]
    widths: list[float]
    height: float

    def slots(self, source: str, target: str) -> list[tuple[float, float, float]]:
        """Return the slots that a connection crosses, left to right, as (left edge, right edge, centre y)."""
        found = []
        for layer in range(self.layer_of[source] + 1, self.layer_of[target]):
            y = self.top[(source, target, str(layer))] + SLOT_HEIGHT / 2
            found.append((self.left[layer], self.left[layer] + self.widths[layer], y))
        return found


@dataclass(slots=True)
class _LayoutDraft:
    heights: dict[Key, float]
    layers: list[list[Key]]
    near: dict[Key, list[Key]] = field(default_factory=dict)


def lay_out_boxes(
    sizes: Mapping[str, tuple[float, float]], ways: Iterable[tuple[str, str]], between: float
) -> BoxLayout:
    """Arrange boxes in layers, so that each box is to the right of its sources.

    `sizes` maps a box's name to its (width, height), `ways` are acyclic (source, target) pairs, and `between` is the
    space between two layers. All lengths are in pixels.
    """
    pairs = list(dict.fromkeys(ways))
    layer_of = _layers(list(sizes), pairs)
    count = max(layer_of.values(), default=0) + 1
    draft = _LayoutDraft({(name,): size[1] for name, size in sizes.items()}, [[] for _ in range(count)])
    for name in sizes:
        draft.layers[layer_of[name]].append((name,))
    for source, target in pairs:
        chain: list[Key] = [(source,)]
        for layer in range(layer_of[source] + 1, layer_of[target]):
            slot = (source, target, str(layer))
            draft.layers[layer].append(slot)
            draft.heights[slot] = SLOT_HEIGHT
            chain.append(slot)
        for here, following in zip(chain, [*chain[1:], (target,)], strict=True):
            draft.near.setdefault(here, []).append(following)
            draft.near.setdefault(following, []).append(here)
    top = _placed(draft)
    widths = [max((sizes[key[0]][0] for key in layer if len(key) == 1), default=0.0) for layer in draft.layers]
    left = [sum(widths[:at]) + between * at for at in range(count)]
    height = max((top[key] + draft.heights[key] for key in top), default=0.0)
    return BoxLayout(layer_of, top, left, widths, height)


def _layers(names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Put a box just right of its rightmost source. A box without sources goes just left of its leftmost target."""
    above: dict[str, list[str]] = {name: [] for name in names}
    below: dict[str, list[str]] = {name: [] for name in names}
    for source, target in pairs:
        above[target].append(source)
        below[source].append(target)
    left = {name: len(found) for name, found in above.items()}
    ready = [name for name in names if not left[name]]
    layer_of = dict.fromkeys(names, 0)
    for name in ready:
        for target in below[name]:
            layer_of[target] = max(layer_of[target], layer_of[name] + 1)
            left[target] -= 1
            if not left[target]:
                ready.append(target)
    for name in names:
        if not above[name] and below[name]:
            layer_of[name] = min(layer_of[target] for target in below[name]) - 1
    return layer_of


def _placed(draft: _LayoutDraft) -> dict[Key, float]:
    top: dict[Key, float] = {}
    for layer in draft.layers:
        _stack(layer, draft, top)
    for sweep in range(SWEEPS):
        layers = draft.layers if sweep % 2 == 0 else list(reversed(draft.layers))
        for layer in layers:
            wanted = {key: _wanted(key, draft, top) for key in layer}
            if sweep < SWEEPS - 4:
                layer.sort(key=lambda key: wanted[key] + draft.heights[key] / 2)
            _settle(layer, wanted, draft, top)
    first = min(top.values(), default=0.0)
    return {key: y - first for key, y in top.items()}


def _wanted(key: Key, draft: _LayoutDraft, top: Mapping[Key, float]) -> float:
    """Return the top position at which the box or slot would be centred on its neighbours."""
    near = draft.near.get(key, ())
    if not near:
        return top[key]
    return sum(top[each] + draft.heights[each] / 2 for each in near) / len(near) - draft.heights[key] / 2


def _stack(layer: Sequence[Key], draft: _LayoutDraft, top: dict[Key, float]) -> None:
    y = 0.0
    for key in layer:
        top[key] = y
        y += draft.heights[key] + _gap(key)


def _settle(layer: Sequence[Key], wanted: Mapping[Key, float], draft: _LayoutDraft, top: dict[Key, float]) -> None:
    """Place the boxes of a layer in order, each as near to its `wanted` top as possible without overlapping."""
    runs: list[tuple[list[Key], float, float]] = []
    for key in layer:
        run: list[Key] = [key]
        start, length = wanted[key], draft.heights[key] + _gap(key)
        while runs and runs[-1][1] + runs[-1][2] > start:
            before, at, size = runs.pop()
            start = (at * len(before) + (start - size) * len(run)) / (len(before) + len(run))
            run, length = [*before, *run], size + length
        runs.append((run, start, length))
    for run, start, _ in runs:
        y = start
        for key in run:
            top[key] = y
            y += draft.heights[key] + _gap(key)


def _gap(key: Key) -> float:
    return GAP if len(key) == 1 else SLOT_GAP
