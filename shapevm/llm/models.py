"""Decoders as modules of `shapevm.nn`: one class for all architectures, described by a `Config`.

A call takes new tokens of any number of sequences, packed: those of a prompt, of a part of one, or one token
of each sequence. Keys and values are written to slots of a pool of pages, in place.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from .. import nn
from ..nn.tensor import call
from .config import ACTIVATIONS, Config
from .drawing import drawn
from .pages import PAGE, Room
from .rotary import Rotary

_MOST, _LEAST = 127.0, float(np.finfo(np.float32).tiny)  # of a number in int8; of a divisor
Angles = tuple[Any, Any]  # cosines and sines of positions, f32[tokens, 1, rotated size]


class Places:
    """Where the new tokens of a call are: inputs of `Decoder.forward`, and the angles of each rotation."""

    def __init__(self, slots: Any, offsets: Any, lengths: Any, table: Any) -> None:
        self.slots, self.offsets, self.lengths, self.table = slots, offsets, lengths, table
        self.angles: dict[Rotary, Angles] = {}


class Decoder(nn.Module):
    """A language model with a cache in `room`."""

    def __init__(self, config: Config, room: Room) -> None:
        width, traits = config.width, config.traits
        self.config = config
        self.stop_at(())
        self.embedding = nn.Embedding(config.vocabulary, width)
        self.positions = nn.Embedding(config.length, width) if "positions" in traits else None
        self.layers = nn.ModuleList([Layer(config, i, room) for i in range(config.n_layers)])
        self.norm = _norm(config, width)
        self.head = None if "tied" in traits else nn.Linear(width, config.vocabulary, "head" in config.biases)
        self.rotations = nn.ModuleList([Rotation(each) for each in self._rotaries()])

    def stop_at(self, tokens: Collection[int]) -> None:
        """Let these tokens end a text."""
        self.stop_tokens = nn.Parameter((len(tokens),), "i64")
        self.stop_tokens.array = np.array(sorted(tokens), np.int64)

    def _rotaries(self) -> list[Rotary]:
        return list(dict.fromkeys(each for each in self.config.attention.rotaries if each is not None))

    def forward(
        self, ids: Any, positions: Any, slots: Any, offsets: Any, lengths: Any, table: Any, last: Any
    ) -> dict[str, Any]:
        """Return the logits after the tokens `last` i64[sequences], f32[sequences, vocabulary], and the
        greatest one's token, "next".

        `ids`, `positions`, `slots` i64[tokens]: each new token, its position, and page * PAGE + offset where
        its keys are kept. `offsets` i64[sequences + 1]: the first token of each sequence. `lengths`
        i64[sequences]: the positions of each, these tokens included. `table` i32[sequences, pages]: the pages
        of each in order.
        """
        config = self.config
        x = self.embedding(ids)
        if "scaled" in config.traits:
            x = x * float(np.float32(config.width**0.5))
        if self.positions is not None:
            x = x + self.positions(positions)
        places = Places(slots, offsets, lengths, table)
        for rotary, each in zip(self._rotaries(), self.rotations, strict=True):
            places.angles[rotary] = each(positions)
        for layer in self.layers:
            x = layer(x, places)
        x = self.norm(call("aten.index_select.default", x, 0, last))
        head = self.head
        logits = head(x) if head is not None else call("aten.linear.default", x, self.embedding.weight)
        logits = soft_capped(logits, config.soft_cap)
        return {"logits": logits, "next": nn.argmax(logits, -1)}

    def sample(self, logits: Any, tokens: Any, numbers: Any, integers: Any, mask: Any) -> dict[str, Any]:
        """Return the "token" after `tokens`, i64[1]. The arguments are those of `artifact.arguments_of`."""
        return {"token": drawn(logits, tokens, numbers, integers, mask)}

    def ends(self, token: Any) -> dict[str, Any]:
        """Return whether a token i64[1] ends a text: "is_stop", i64[1]."""
        is_equal = call("aten.eq.Tensor", token, self.stop_tokens).to("i64")
        return {"is_stop": call("aten.sum.dim_IntList", is_equal, [0], True)}


class Layer(nn.Module):
    """Attention and an MLP, each added to its input."""

    def __init__(self, config: Config, index: int, room: Room) -> None:
        width, traits = config.width, config.traits
        has_after = "after_norms" in traits
        self.before_attention = _norm(config, width)
        self.attention = Attention(config, index, room)
        self.after_attention = _norm(config, width) if has_after else None
        self.before_feed = None if "parallel" in traits else _norm(config, width)
        self.feed = Feed(config)
        self.after_feed = _norm(config, width) if has_after else None

    def forward(self, x: Any, places: Places) -> Any:
        """Return the layer's result."""
        normed = self.before_attention(x)
        read = self.attention(normed, places)
        if self.after_attention is not None:
            read = self.after_attention(read)
        if self.before_feed is None:
            return x + read + self.feed(normed)
        x = x + read
        made = self.feed(self.before_feed(x))
        return x + (made if self.after_feed is None else self.after_feed(made))


class Attention(nn.Module):
    """Causal attention of packed sequences over the pages of a cache."""

    def __init__(self, config: Config, index: int, room: Room) -> None:
        how, biases = config.attention, config.biases
        n_queries, n_keys, is_biased = how.n_heads * how.size, how.n_keys * how.size, "qkv" in biases
        self.query = nn.Linear(config.width, n_queries, is_biased)
        self.key, self.value = (nn.Linear(config.width, n_keys, is_biased) for _ in range(2))
        self.out = nn.Linear(n_queries, config.width, "out" in biases)
        has_norms = "qk_norm" in config.traits
        self.query_norm, self.key_norm = (_norm(config, how.size) if has_norms else None for _ in range(2))
        self.pages = Pages(room, how.n_keys, how.size)
        self.how, self.window, self.rotary = how, how.windows[index], how.rotaries[index]

    def forward(self, x: Any, places: Places) -> Any:
        """Write keys and values of the new tokens; return what their queries read."""
        n, size = x.shape[0], self.how.size
        query, key, value = (made(x).reshape(n, -1, size) for made in (self.query, self.key, self.value))
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.rotary is not None:
            query, key = (rotated(each, places.angles[self.rotary]) for each in (query, key))
        pages = self.pages
        pages.write(places.slots, key, value)
        read = nn.paged_attention(
            query, pages.keys, pages.values, places.table, places.offsets, places.lengths, self.how.scale,
            window=self.window, soft_cap=self.how.soft_cap, scales=pages.scales,
        )  # fmt: skip
        return self.out(read.reshape(n, self.how.n_heads * size))


class Pages(nn.Module):
    """The keys and values of a layer in the pages of a cache, and the `scales` of integers: those of the keys
    and of the values of each slot and head."""

    def __init__(self, room: Room, n_keys: int, size: int) -> None:
        shape = (room.n_pages * PAGE, n_keys)
        self.keys, self.values = (nn.Buffer((*shape, size), room.dtype, in_place=True) for _ in range(2))
        self.scales = nn.Buffer((*shape, 2), in_place=True) if room.dtype == "i8" else None

    def write(self, slots: Any, key: Any, value: Any) -> None:
        """Write the keys and values of new tokens, f32[tokens, heads, size], to their slots."""
        new: tuple[Any, ...] = (key, value)
        if self.scales is not None:
            new, scales = zip(*map(_rounded, new), strict=True)
            self.scales.update(nn.index_copy(self.scales, 0, slots, nn.cat(scales, -1)))
        for pages, each in zip((self.keys, self.values), new, strict=True):
            pages.update(nn.index_copy(pages, 0, slots, each.to(pages.dtype)))


def _rounded(x: Any) -> tuple[Any, Any]:
    """Return x in whole numbers from -`_MOST` to `_MOST`, and the scale of each of its rows."""
    scale = call("aten.amax.default", call("aten.abs.default", x), [-1], True) / _MOST
    return call("aten.round.default", x / call("aten.clamp_min.default", scale, _LEAST)), scale


class Feed(nn.Module):
    """The MLP: down(f(up(x))), or down(f(gate(x)) * up(x))."""

    def __init__(self, config: Config) -> None:
        width, inner, is_biased = config.width, config.inner, "feed" in config.biases
        self.gate = nn.Linear(width, inner, is_biased) if "gated" in config.traits else None
        self.up, self.down = nn.Linear(width, inner, is_biased), nn.Linear(inner, width, is_biased)
        self.activation = config.activation

    def forward(self, x: Any) -> Any:
        """Return the MLP's result."""
        name, how = ACTIVATIONS[self.activation]
        function = getattr(nn, name)
        if self.gate is None:
            return self.down(function(self.up(x), **how))
        return self.down(function(self.gate(x), **how) * self.up(x))


class Rotation(nn.Module):
    """The angles of positions."""

    def __init__(self, rotary: Rotary) -> None:
        self.frequencies = nn.Parameter((rotary.size // 2,))
        self.frequencies.array = rotary.frequencies()

    def forward(self, positions: Any) -> Angles:
        """Return the cosines and sines of positions i64[tokens]."""
        angles = positions.to("f32")[:, None, None] * self.frequencies[None, None, :]
        angles = nn.cat([angles, angles], -1)
        return call("aten.cos.default", angles), call("aten.sin.default", angles)


def rotated(x: Any, angles: Angles) -> Any:
    """Return x [tokens, heads, size] with its first numbers rotated, the first half of them with the second;
    the rest of a head stays."""
    cosines, sines = angles
    n = int(cosines.shape[-1])
    part = x if n == x.shape[-1] else x[..., :n]
    turned = nn.cat([-part[..., n // 2 :], part[..., : n // 2]], -1)
    made = part * cosines + turned * sines
    return made if part is x else nn.cat([made, x[..., n:]], -1)


def soft_capped(x: Any, cap: float) -> Any:
    """Return cap * tanh(x / cap); x for no cap."""
    return nn.tanh(x / cap) * cap if cap else x


def _norm(config: Config, width: int) -> nn.Module:
    return (nn.LayerNorm if config.kind.norm == "layer" else nn.RMSNorm)(width, config.eps)
