# SPDX-License-Identifier: Apache-2.0
"""From a layer's node to operators: a new name, tiles of ``local``, or the moves of ``global_``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.interface.operator import Lowering, Operator
from onedispatch.operators.layers.checks import checked_bytes
from onedispatch.operators.layers.layer_kernel import LayerKernel
from onedispatch.operators.layers.methods import LayerMethods, said
from onedispatch.operators.layers.program import GlobalProgram
from onedispatch.operators.lowering.movement import emit_renamed
from onedispatch.operators.plugin.lowering import MemberOperator, check_device, check_made, member_operator
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.watchdog import asked
from onedispatch.operators.scheduling.schedule import Schedule
from onedispatch.transactions.base.text import counted

_ROUNDS = 8  # in which buffers grow with the tiles that they are for


def lower_layer(plugin: LayerKernel, node: Node, lowering: Lowering) -> None:
    """Emits the operators of a layer's node.

    ``local`` where it is there, may be used and fits; else ``global_``, and placements say why.
    Raises ``KernelError`` where the layer refuses, ``Unsupported`` where the device cannot.
    """
    check_device(plugin.kernel, lowering.device)
    layer = plugin.made(node)
    if said(layer, "just_reshape"):
        _rename(plugin, node, lowering)
        return
    why = ""
    if plugin.has_body and not (plugin.has_global and said(layer, "force_use_global_layer")):
        try:
            lowering.emit(member_operator(plugin, node, plugin.instantiate(node), lowering))
            return
        except Unsupported as error:
            if plugin.is_dynamic:  # the host could not say how much there is of its results
                raise node.refuse(
                    "not_supported", "a shape that data decides", error.reason, error.nearest
                ) from error
            if not plugin.has_global:
                raise
            why = str(error)
    lowering.remark(f"its global layer: {why or 'it has no local, or says so'}")
    run_global(plugin, layer, node, lowering)


def _rename(plugin: LayerKernel, node: Node, lowering: Lowering) -> None:
    """The first input under the name and the shape of the result."""
    made = plugin.infer(node)
    name, (dtype, shape) = next(iter(made.items()))
    source, target = node.given(plugin.kernel.inputs[0].name), node.spec.outputs[0]
    assert source is not None and target is not None
    node.check_attributes()
    check_made(node, name, target, dtype, shape)
    if len(made) != 1 or source.size != target.size or source.dtype != target.dtype:
        accepted = "one result with the elements of the first input: just_reshape says so"
        raise node.refuse("layer_configuration", "shape", f"{target} of {source}", accepted)
    emit_renamed(node.name, source, target, lowering)


def run_global(plugin: LayerKernel, layer: LayerMethods, node: Node, lowering: Lowering) -> None:
    """Asks ``global_`` for its moves and calls, and emits them."""
    made = plugin.infer(node)
    program = GlobalProgram(plugin, layer, node, made, lowering)
    about = f"node {node.name} ({node.op_type}), layer {plugin.kernel.name}"
    answer = asked(layer.global_, about, program, meant=Unsupported)
    plugin.check_status(answer, f"{node.where}: global_", node.name)
    node.check_attributes()
    program.finish()


class LayerOperator(MemberOperator):
    """A layer's ``local`` on concrete tensors."""

    @property
    def layer(self) -> LayerMethods:
        plugin: Any = self.plugin
        made: LayerMethods = plugin.made(self.node)
        return made

    @property
    def kind(self) -> str:  # type: ignore[override]
        named = said(self.layer, "get_name")
        return self.plugin.kernel.name if named == "UNKNOWN" else str(named)

    @property
    def buffer(self) -> int:
        """Bytes of a call's ``t.buffer``."""
        return sum(self.instance.scratch.values())

    @property
    def actual_sizes(self) -> dict[str, str]:  # type: ignore[override]
        plugin: Any = self.plugin
        return {self.named[a].name: self.named[b].name for a, b in plugin.dynamic_results.items()}

    def settled(self) -> LayerOperator:
        """The same with a buffer that does for its tiles. Raises ``Unsupported`` where none fits a core."""
        operator: Any = self
        for _ in range(_ROUNDS):
            operator.check_fits()
            need = operator.buffer_bytes(operator.schedules)
            if need <= operator.buffer:
                return operator  # type: ignore[no-any-return]
            scratch = dict.fromkeys(self.instance.scratch, need)
            operator = operator.replaced(instance=replace(self.instance, scratch=scratch))
        given = f"a buffer that grows with every tile, to {counted(need, 'byte')}"
        raise Unsupported(given, "get_local_buffer_size that grows with the tile alone")

    def buffer_bytes(self, schedules: Sequence[Schedule]) -> int:
        """The most that ``get_local_buffer_size`` says of tiles of these schedules."""
        if not self.instance.scratch:
            return 0
        layer, what = self.layer, "get_local_buffer_size"
        needs = [said(layer, what, self._split(one)) for one in schedules]
        return max((checked_bytes(self.node, what, need) for need in needs), default=0)

    def _split(self, schedule: Schedule) -> tuple[int, int, int, int]:
        """The largest tile of the first result, as four dimensions."""
        name = self.made[0]
        sizes = [
            size if it.dim is None or self._whole(schedule, it.dim) else schedule.tiles[it.dim] * int(it.a)
            for size, it in zip(self.named[name].shape, self.instance.intervals(name), strict=True)
        ]
        n, c, h, w = [1, 1, 1, 1, *map(min, sizes, self.named[name].shape)][-4:]
        return n * prod(sizes[:-4]), c, h, w

    @staticmethod
    def _whole(schedule: Schedule, dim: int) -> bool:
        """Whether every call has all members of an index dimension."""
        return schedule.nest.members is None or schedule.nest.members.whole[dim]

    def selected(self, selector: Any) -> Operator:
        return self._with_room(super().selected(selector))

    @property
    def may_keep(self) -> bool:
        """Not where its buffer is for the tiles that it has."""
        return super().may_keep and not self.instance.scratch

    def _with_room(self, found: Operator) -> Operator:
        """``found``, whose tiles are others. Raises ``Unsupported`` where they need a larger buffer."""
        need = self.buffer_bytes(found.schedules)
        if need > self.buffer:
            given = f"tiles that take {counted(need, 'byte')} of buffer"
            raise Unsupported(given, f"at most {self.buffer}")
        return found


class LayerPlugin(LayerKernel):
    """A layer that lowers its own nodes."""

    operator_class = LayerOperator

    def lowers(self, node: Node, lowering: Lowering) -> bool:
        lower_layer(self, node, lowering)
        return True
