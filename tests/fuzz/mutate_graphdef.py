# SPDX-License-Identifier: Apache-2.0
"""Changes of GraphDefs that keep them readable: nodes, names, inputs, attributes, and any number in them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.graph_pb2 import GraphDef

from onedispatch.dispatch.tensorflow.signatures import signatures
from tests.fuzz.mutate import raw

_NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    64,
    4096,
    1 << 20,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 40,
    (1 << 63) - 1,
    -(1 << 63),
)
_TEXTS = ("", "x", "x:0", "x:1", "^x", "a/b", "SAME", "NCHW", ":", "^", "y:99999999999", "\u00b2:\u00b2", "N")


def message(data: bytes, limit: int, rng: random.Random) -> bytes:
    """A GraphDef with up to three changes; now and then any bytes."""
    made = GraphDef()
    try:
        made.ParseFromString(data)
    except DecodeError:
        return raw(data, limit, rng)
    if not made.node or not rng.randrange(8):
        return raw(data, limit, rng)
    for _ in range(1 + rng.randrange(3)):
        rng.choice((_nodes, _name, _input, _attribute, _scalar, _scalar))(made, rng)
    changed = bytes(made.SerializeToString(deterministic=True))
    return changed if len(changed) <= limit else raw(data, limit, rng)


def _nodes(made: Any, rng: random.Random) -> None:
    """A node left out, doubled or put elsewhere."""
    if not made.node:
        return
    one = GraphDef.FromString(made.SerializeToString()).node[rng.randrange(len(made.node))]
    how = rng.randrange(3)
    if how != 1:
        del made.node[[node.name for node in made.node].index(one.name)]
    if how:
        made.node.insert(rng.randint(0, len(made.node)), one)
        if how == 1 and rng.randrange(4):
            one.name += "_"


def _name(made: Any, rng: random.Random) -> None:
    """Another name, or another operator."""
    for node in rng.sample(list(made.node), min(1, len(made.node))):
        if rng.randrange(3):
            node.op = rng.choice([*signatures(), rng.choice(made.node).op, *_TEXTS])
        else:
            node.name = rng.choice([rng.choice(made.node).name, *_TEXTS])


def _input(made: Any, rng: random.Random) -> None:
    """Another input, one more, or one less."""
    for node in rng.sample(list(made.node), min(1, len(made.node))):
        source = rng.choice(made.node).name
        name = rng.choice([source, f"{source}:{rng.choice(_NUMBERS)}", f"^{source}", f"{source}:1", *_TEXTS])
        inputs = list(node.input)
        if inputs and rng.randrange(3):
            inputs[rng.randrange(len(inputs))] = name
        elif inputs and rng.randrange(2):
            inputs.pop(rng.randrange(len(inputs)))
        else:
            inputs.append(name)
        node.input[:] = inputs


def _attribute(made: Any, rng: random.Random) -> None:
    """An attribute left out, or with the value of another one."""
    holders = [node for node in made.node if node.attr]
    if not holders:
        return
    node, other = rng.choice(holders), rng.choice(holders)
    key = rng.choice(sorted(node.attr))
    value = other.attr[rng.choice(sorted(other.attr))]
    if rng.randrange(4):
        node.attr[key].CopyFrom(value)
    else:
        del node.attr[key]


def _scalar(made: Any, rng: random.Random) -> None:
    """One number, text or truth value of the whole message, or one entry of a list."""
    places = list(_places(made))
    if not places:
        return
    holder, descriptor = rng.choice(places)
    value = _value(descriptor, rng)
    entries = getattr(holder, descriptor.name)
    if not _is_list(entries):
        setattr(holder, descriptor.name, value)
        return
    how = rng.randrange(3)
    if how == 0:
        del entries[rng.randrange(len(entries))]
    elif how == 1:
        entries.append(value)
    else:
        entries[rng.randrange(len(entries))] = value


def _places(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Fields that are set and no messages, with the messages that hold them."""
    for descriptor, value in holder.ListFields():
        if descriptor.type != FieldDescriptor.TYPE_MESSAGE:
            yield holder, descriptor
        elif descriptor.message_type.GetOptions().map_entry:
            for key in sorted(value):
                if hasattr(value[key], "ListFields"):
                    yield from _places(value[key])
        else:
            for one in value if _is_list(value) else [value]:
                yield from _places(one)


def _is_list(value: Any) -> bool:
    return hasattr(value, "extend")


def _value(descriptor: Any, rng: random.Random) -> Any:
    """A value that the field takes."""
    number = rng.choice(_NUMBERS)
    match descriptor.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = rng.choice(_TEXTS)
            return rng.randbytes(rng.randrange(9)) if descriptor.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_BOOL:
            return bool(rng.randrange(2))
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice((rng.randrange(140), (1 << 31) - 1, -1))
        case FieldDescriptor.CPPTYPE_INT32:
            return (number + (1 << 31)) % (1 << 32) - (1 << 31)
        case FieldDescriptor.CPPTYPE_UINT32:
            return number % (1 << 32)
        case FieldDescriptor.CPPTYPE_UINT64:
            return number % (1 << 64)
    return number
