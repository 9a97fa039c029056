# SPDX-License-Identifier: Apache-2.0
"""How a model is compiled: all passes, in order. Nothing else runs.

``MODEL_PASSES`` run once for a model, ``GRAPH_PASSES`` and ``LOWERING_PASSES`` for each set of input shapes.
``onedispatch inspect --passes`` shows what each of them changed, ``--dump-passes DIR`` the value after each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from onedispatch.dispatch.base.precisions import EXACT
from onedispatch.dispatch.compiler import phases
from onedispatch.dispatch.compiler.custom import CustomNodes
from onedispatch.dispatch.compiler.early import refuse_missing
from onedispatch.dispatch.compiler.executable import Executable
from onedispatch.dispatch.compiler.expand import expand_bodies
from onedispatch.dispatch.compiler.fold import fold_constants, specialise
from onedispatch.dispatch.compiler.integers import dequantise_constants, group_integers, is_quantised
from onedispatch.dispatch.compiler.options import CompileOptions, ImportOptions
from onedispatch.dispatch.compiler.passes import Context, ImportContext, Pass, run_passes
from onedispatch.dispatch.compiler.precision import lower_precision
from onedispatch.dispatch.compiler.properties import (
    FOLDED,
    FUSED,
    INLINED,
    LIVE,
    QUANTISED,
    SHAPED,
    SORTED,
    VALID,
    VERIFIED,
)
from onedispatch.dispatch.compiler.quantised import quantisations
from onedispatch.dispatch.compiler.refusals import refuse_unmapped, refuse_unplaced
from onedispatch.dispatch.compiler.renames import drop_renames
from onedispatch.dispatch.compiler.rewrite import rewrite
from onedispatch.dispatch.contrib import domain as contrib
from onedispatch.dispatch.frontend.frozen import frozen
from onedispatch.dispatch.frontend.graph import Array, Graph, with_outputs
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.frontend.validity import check_nodes
from onedispatch.dispatch.rules.table import PACKED
from onedispatch.dispatch.sources.layouts import arrange
from onedispatch.dispatch.sources.registry import fusions, rules
from onedispatch.dispatch.sources.translate import ONNX, Framework, translate
from onedispatch.dispatch.tensorflow import framework as tensorflow
from onedispatch.dispatch.tensorflow.framework import TENSORFLOW
from onedispatch.dispatch.tensorflow.reader import DOMAIN, is_graphdef, read_graphdef
from onedispatch.operators.declarations.registry import MICROSOFT
from onedispatch.operators.emission.programs import provided


def source_of(model: Any, options: ImportOptions) -> str:
    """Returns the framework that a model is read as: ``onnx`` or ``tensorflow``."""
    return options.frontend or ("tensorflow" if is_graphdef(model) else "onnx")


def read_model(model: Any, options: ImportOptions) -> Graph:
    """Returns the graph of a model in the operators of its framework. Raises ``ModelError``."""
    if source_of(model, options) == "tensorflow":
        return frozen(read_graphdef(model, options.outputs), options.freeze)
    graph = frozen(import_model(model), options.freeze)
    return graph if options.outputs is None else with_outputs(graph, options.outputs)


def framework_of(graph: Graph) -> Framework:
    """Returns the source framework of a graph, once our rules for it are there."""
    if DOMAIN in graph.opsets:
        tensorflow.load_rules()
        return TENSORFLOW
    if any(domain.startswith(MICROSOFT) for domain in graph.opsets) or rules() or fusions():
        contrib.load_rules()  # rules of others may write what ours map
    return ONNX


def _translated(graph: Graph, context: ImportContext) -> Graph:
    options = context.options
    return translate(graph, framework_of(graph), options.fusions, strict=options.strict)


def _known_operators(graph: Graph, _: Any) -> Graph:
    refuse_missing(graph)
    return graph


def _specialise(graph: Graph, context: Context) -> Graph:
    return specialise(graph, context.shapes, context.values, context.custom)


def _checked(graph: Graph, _: Any) -> Graph:
    check_nodes(graph, graph.nodes)
    return graph


def _infer_through_bodies(graph: Graph, context: Context) -> Graph:
    """Bodies may say shapes that ONNX's inference does not; what reads these can be inferred then."""
    expanded = _expand(graph, context)
    while _more_is_known(graph, expanded):
        graph = _specialise(expanded, context)
        expanded = _expand(graph, context)
    return graph  # whole nodes again: rules look for these, not for what is inside


def _more_is_known(before: Graph, after: Graph) -> bool:
    """True if shapes that ``before`` lacks are known in ``after``."""
    unknown = (n for node in before.nodes for n in node.writes if not before.value(n).is_concrete)
    return any(after.value(name).is_concrete for name in unknown)


def _expand(graph: Graph, context: Context) -> Graph:
    """``expand_bodies``, once for a graph."""
    known, expanded = context.expanded.get(id(graph), (None, graph))
    if known is not graph:
        expanded = expand_bodies(graph, context.options.device)
        context.expanded[id(graph)] = graph, expanded
    return expanded


def _pack_weights(graph: Graph, context: Context) -> Graph:
    return rewrite(graph, context.options.device, PACKED) if is_quantised(graph) else graph


MODEL_PASSES: tuple[Pass, ...] = (
    Pass(
        "import",
        "loads and checks the model, of ONNX or of another framework; inlines functions, freezes inputs",
        lambda model, context: read_model(model, context.options),
        ensures=(SORTED,),
    ),
    Pass(
        "translate",
        "writes nodes of ONNX in place of those that fusions and mapping rules are for",
        _translated,
        requires=(SORTED,),
        ensures=(SORTED,),
    ),
    Pass(
        "arrange-layouts",
        "moves transposes between the formats of a source framework and ONNX's, so that the fewest are left",
        lambda graph, _: arrange(graph),
        requires=(SORTED,),
        ensures=(SORTED,),
    ),
    Pass(
        "fold-constants",
        "computes nodes of constants alone, inlines Ifs, drops what nothing reads, until nothing changes",
        lambda graph, _: fold_constants(graph),
        requires=(SORTED,),
        ensures=(SORTED, LIVE, FOLDED, INLINED),
    ),
    Pass(
        "refuse-unknown-operators",
        "refuses operators that neither ONNX, onnxruntime nor a plug-in has",
        _known_operators,
        requires=(SORTED,),
    ),
)

GRAPH_PASSES: tuple[Pass, ...] = (
    Pass(
        "specialise",
        "binds and infers shapes, folds shape arithmetic, inlines Ifs and sequences and unrolls loops, until "
        "nothing changes",
        _specialise,
        requires=(SORTED,),
        ensures=(SORTED, LIVE, SHAPED, INLINED),
    ),
    Pass("check-nodes", "refuses nodes that break ONNX's rules", _checked, (SHAPED,), (VALID,)),
    Pass(
        "infer-through-bodies",
        "specialises with function bodies in place of nodes, as long as that makes more shapes known",
        _infer_through_bodies,
        requires=(SORTED, SHAPED),
        ensures=(SORTED, LIVE, SHAPED, INLINED),
    ),
    Pass(
        "drop-renames",
        "leaves out nodes that give a value another name, and nothing else",
        lambda graph, _: drop_renames(graph),
        requires=(SORTED, SHAPED),
        ensures=(SORTED, LIVE, SHAPED, INLINED),
    ),
    Pass(
        "group-integers",
        "writes quantised operators in place of floats between integers, by the tables of rules/integers",
        lambda graph, context: group_integers(graph, context.options.device),
        requires=(SORTED, SHAPED),
        ensures=(SORTED, LIVE, SHAPED),
    ),
    Pass(
        "pack-weights",
        "gives products the integers of weights that only DequantizeLinear makes floats of",
        _pack_weights,
        requires=(SORTED, SHAPED),
        ensures=(SORTED, SHAPED),
    ),
    Pass(
        "dequantise-constants",
        "computes DequantizeLinear of constants that stayed",
        lambda graph, _: dequantise_constants(graph),
        requires=(SORTED, SHAPED),
        ensures=(SORTED, LIVE, SHAPED),
    ),
    Pass(
        "rewrite-patterns",
        "writes the standard node in place of parts that a rule finds, where it maps; four rounds at most",
        lambda graph, context: rewrite(graph, context.options.device),
        requires=(SORTED, SHAPED),
        ensures=(SORTED, SHAPED),
    ),
    Pass(
        "expand-bodies",
        "writes the function body in place of a node that does not map, where the body does as a whole",
        _expand,
        requires=(SORTED, SHAPED),
        ensures=(SORTED, SHAPED),
    ),
    Pass(
        "insert-casts",
        "puts casts around custom kernels that lack an element type, under cast_policy='f32'",
        lambda graph, context: context.custom.inserted(graph),
        requires=(SORTED, SHAPED),
        ensures=(SORTED, SHAPED),
    ),
    Pass(
        "annotate-quantisation",
        "notes the scale and zero point that integers have, where constants say it",
        lambda graph, _: replace(graph, quantised=quantisations(graph)),
        requires=(SHAPED,),
        ensures=(QUANTISED,),
    ),
    Pass("check-rewritten", "refuses nodes that break ONNX's rules", _checked, (SHAPED,), (VALID,)),
    Pass(
        "lower-precision",
        "computes float32 tensors in the narrower type, between casts",
        lambda graph, context: lower_precision(graph, context.options.precision, context.options.device),
        requires=(SORTED, SHAPED),
        ensures=(SORTED, SHAPED),
        when=lambda options: options.precision != EXACT,
    ),
)

LOWERING_PASSES: tuple[Pass, ...] = (
    Pass(
        "map-nodes",
        "makes device operators of every node, or says why it stays on the host",
        lambda graph, context: phases.map_nodes(graph, context.options.device),
        requires=(SORTED, SHAPED),
        ensures=(VERIFIED,),
    ),
    Pass(
        "merge-operators",
        "merges operators with the one that reads their result, where the merged one fits",
        lambda mapped, _: phases.merge_operators(mapped),
        requires=(VERIFIED,),
        ensures=(VERIFIED,),
    ),
    Pass(
        "narrow-accumulators",
        "keeps sums of products in the type of their results",
        lambda mapped, _: phases.narrow_accumulators(mapped),
        requires=(VERIFIED,),
        ensures=(VERIFIED,),
        when=lambda options: options.sums == "narrow",
    ),
    Pass(
        "refuse-unmapped",
        "refuses nodes that nothing computes, in strict mode all that do not map",
        refuse_unmapped,
        requires=(VERIFIED,),
    ),
    Pass(
        "select-solutions",
        "chooses mapping, tiles and dataflow of every loop nest, by the catalog or the search",
        lambda mapped, context: phases.select(mapped, context.options.chooser),
        requires=(VERIFIED,),
        ensures=(VERIFIED,),
    ),
    Pass(
        "elide-copies",
        "leaves out copies of Concat and Transpose that makers or readers can do without",
        lambda selected, _: phases.elide(selected),
        requires=(VERIFIED,),
        ensures=(VERIFIED,),
    ),
    Pass(
        "group-operators",
        "keeps tensors in memory tiles between operators, whole or band by band, where that costs less",
        lambda selected, _: phases.group_operators(selected),
        requires=(VERIFIED,),
        ensures=(VERIFIED,),
        when=lambda options: options.groups == "on",
    ),
    Pass(
        "emit-operators",
        "asks every operator for its arg map, constants, transaction and super-kernel parameters",
        lambda selected, _: phases.emit(selected),
        requires=(VERIFIED,),
        ensures=(VERIFIED,),
    ),
    Pass(
        "partition",
        "cuts the graph into device and host regions, as few as its order allows",
        lambda emitted, context: phases.partition_graph(emitted, strict=context.options.strict),
        requires=(VERIFIED,),
        ensures=(VERIFIED,),
    ),
    Pass(
        "refuse-unplaced",
        "refuses what the host would have to do, in strict mode",
        refuse_unplaced,
        requires=(VERIFIED,),
        when=lambda options: options.strict,
    ),
    Pass(
        "fuse",
        "plans the five buffers and fuses each device region into one transaction",
        lambda partitioned, context: phases.fuse(partitioned, context.constants, context.earlier),
        requires=(VERIFIED,),
        ensures=(FUSED,),
    ),
)

PASSES = (*MODEL_PASSES, *GRAPH_PASSES, *LOWERING_PASSES)


def context_of(
    graph: Graph,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Array],
    options: CompileOptions,
    earlier: Iterable[Executable] = (),
) -> Context:
    """Returns what the passes of an executable read beside the graph."""
    custom = CustomNodes(graph, options.device, options.cast_policy)
    return Context(shapes, values, options, custom, graph.constants, tuple(earlier))


def compile_graph(
    graph: Graph,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Array],
    options: CompileOptions,
    earlier: Iterable[Executable] = (),
) -> Executable:
    """Returns the executable of ``graph`` for concrete input shapes.

    Args:
        values: of inputs that decide shapes.
        earlier: executables of the same graph for others; weights that they share are in memory once.

    Raises:
        ModelError: nodes that break ONNX's rules.
        UnsupportedModelError: with every node that does not map, in strict mode.
        SolutionError: a solution that does not fit its problem.
        KernelError: a node that its custom kernel refuses.
    """
    context = context_of(graph, shapes, values, options, earlier)
    with provided(options.programs):
        made = run_passes((*GRAPH_PASSES, *LOWERING_PASSES), graph, context)
    assert isinstance(made, Executable)
    return made
