# SPDX-License-Identifier: Apache-2.0
"""What ``run``, ``compile`` and ``inspect`` open, and the shapes of inputs that a command leaves open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from onedispatch.dispatch.artifact.loading import opened
from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.base import limits
from onedispatch.dispatch.base.arguments import integer
from onedispatch.dispatch.base.frameworks import FRAMEWORKS
from onedispatch.dispatch.base.precisions import PRECISIONS
from onedispatch.dispatch.cli import completion
from onedispatch.dispatch.cli import output as out
from onedispatch.dispatch.cli.progress import compiling
from onedispatch.dispatch.compiler.executable import Executable
from onedispatch.dispatch.compiler.options import CAST_POLICIES, FALLBACKS, GROUPS, SUMS, ImportOptions
from onedispatch.dispatch.driver.cache_folder import folder as cache_folder
from onedispatch.dispatch.driver.executable_cache import ExecutableCache, prepared, with_profiles
from onedispatch.dispatch.driver.requested import RequestedOptions
from onedispatch.dispatch.frontend.graph import Array, Value, dtype_of
from onedispatch.dispatch.frontend.input_shapes import completed
from onedispatch.dispatch.runtime.session import NodeArg
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import InputError, ModelError
from onedispatch.transactions.base.files import check_target, record_read
from onedispatch.transactions.base.text import counted, did_you_mean

Shapes = dict[str, tuple[int, ...]]
Model = Annotated[
    str,
    typer.Argument(
        autocompletion=completion.models,
        help="An .onnx file, a file of `onedispatch compile`, or a light model's name.",
    ),
]
_OWN = "A compiled model has its own."
Device = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.devices,
        help=f"The NPU, as `onedispatch devices` names it, or its file: my_npu.toml. {_OWN}  [default: npu2]",
    ),
]
Fallback = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.among(FALLBACKS),
        help=f"cpu: what does not map runs on the host. error: refuse such models. {_OWN}  [default: cpu]",
    ),
]
CastPolicy = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.among(CAST_POLICIES),
        help="f32: a custom kernel computes in f32 what it lacks element types for. error: it refuses. "
        f"{_OWN}  [default: error]",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.among(PRECISIONS),
        help="bf16: float32 tensors are computed in bfloat16, between float32 inputs and outputs. "
        f"{_OWN}  [default: fp32]",
    ),
]
Sums = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.among(SUMS),
        help="narrow: products keep sums in the type of their results between steps, as published kernels "
        f"do. {_OWN}  [default: exact]",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.among(GROUPS),
        help="on: tensors stay in memory tiles between operators, where that costs less. "
        f"{_OWN}  [default: on]",
    ),
]


Catalogs = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog",
        help="A file or folder of tuned solutions, asked first; none: the search alone. Repeatable.",
    ),
]
Pins = Annotated[
    list[str] | None,
    typer.Option("--pin", help="A solution's name: taken wherever a catalog has it and it fits. Repeatable."),
]
Measure = Annotated[
    int | None,
    typer.Option(
        "--measure",
        help="Measure up to so many solutions of each problem that no catalog has, and take the fastest.",
    ),
]
Frontend = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.among(FRAMEWORKS),
        help="onnx, or tensorflow for a frozen GraphDef.  [default: as the file is]",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option("--outputs", help="A value to compute, in place of the model's outputs. Repeatable."),
]
Fusions = Annotated[
    list[str] | None,
    typer.Option("--fusion", help="Switches a fusion on, as -NAME off: --fusion=-NAME. Repeatable."),
]


Cache = Annotated[
    bool | None,
    typer.Option(
        "--cache/--no-cache",
        help="Whether a compiled model is kept, and read again instead of compiled: `onedispatch cache`. "
        " [default: as ONEDISPATCH_CACHE says, or else yes, but where CI is set]",
    ),
]


@dataclass(frozen=True)
class ReadFlags:
    """How a model is read."""

    frontend: Frontend = None
    outputs: Outputs = None
    fusions: Fusions = None
    set: out.Frozen = None

    @property
    def options(self) -> ImportOptions:
        """Raises ``InputError`` for an unknown frontend, and for what is no value of an input."""
        frozen = out.parse_frozen(self.set)
        return ImportOptions.checked(self.frontend, self.outputs or None, self.fusions, frozen)


@dataclass(frozen=True)
class CompileFlags:
    """What a model is compiled for."""

    shape: out.Shapes = None
    device: Device = None
    fallback: Fallback = None
    cast_policy: CastPolicy = None
    precision: Precision = None
    sums: Sums = None
    groups: Groups = None
    frontend: Frontend = None
    outputs: Outputs = None
    fusions: Fusions = None
    set: out.Frozen = None
    catalog: Catalogs = None
    pin: Pins = None
    measure: Measure = None
    cache: Cache = None

    @cached_property  # with one selector, which measures a problem once
    def requested(self) -> RequestedOptions:
        made = (self.device, self.precision, self.fallback, self.cast_policy, self.sums, self.groups)
        return RequestedOptions(
            *made,
            self.frontend,
            self.outputs or None,
            self.fusions or None,
            out.parse_frozen(self.set) or None,
            **self._selecting,
            cache=self.place or False,
        )

    @property
    def _selecting(self) -> dict[str, Any]:
        """Who chooses solutions."""
        if self.measure is None:
            return {"catalog": self.catalog or None, "pins": self.pin or None}
        from onedispatch.dispatch.tuning.measured import MOST_MEASURED, MeasuredSearch

        count = integer("--measure", self.measure, 1, MOST_MEASURED)
        return {"selector": MeasuredSearch(count, self.catalog, self.pin or ())}

    @property
    def place(self) -> Path | None:
        """Where compiled models are kept; None for nowhere."""
        return cache_folder(self.cache, command=True)

    @property
    def shapes(self) -> Shapes:
        """By input. Raises ``InputError`` for what is no shape."""
        return out.parse_shapes(self.shape)


def open_model(name: str, flags: CompileFlags) -> CompiledModel:
    """Returns a compiled model from whatever ``name`` is: our file, an ONNX file, a light model.

    Raises ``InputError`` for a file of ours that was compiled with other options.
    """
    from onedispatch.dispatch.driver.compile_model import compile_model

    bound, options = flags.shapes, flags.requested
    compiled = opened(Path(name))
    if compiled is not None:
        options.require(compiled, command=True)
        return prepared(compiled, bound)
    with compiling(f"compiling {name} for {options.device or 'npu2'}"):
        return compile_model(source(Path(name)), **options.given, shapes=bound)


def with_executable(model: str, flags: CompileFlags, *, every: bool = False) -> CompiledModel:
    """The model with an executable, compiled for sizes that fit where dimensions stay open.

    Of several that agree with the flags the last is used, and the error stream says so, unless the command
    shows ``every`` one.
    """
    compiled = concrete(open_model(model, flags), flags.shapes)
    if not every:
        tell_taken(compiled, flags.shapes)
    return compiled


def concrete(compiled: CompiledModel, shapes: Shapes) -> CompiledModel:
    """The model whose executable used last is one of ``shapes``; it is compiled where there is none yet."""
    if compiled.deciding and compiled.executables:
        return compiled
    agreed = agreeing(compiled, shapes)
    if not agreed:
        return first_executable(compiled, shapes)[1]
    return prepared(compiled, sizes_of(agreed[-1][1])) if shapes else compiled


def first_executable(
    compiled: CompiledModel, shapes: Shapes, *, quiet: bool = False
) -> tuple[Shapes, CompiledModel]:
    """The model with an executable for ``shapes``, and for sizes that fit where they leave dimensions open;
    and all of its shapes."""
    inputs, given = [NodeArg.of(v) for v in compiled.inputs], sized(compiled, shapes)
    texts = {one.name: np.full(_shape_of(one, given), "", object) for one in inputs if _is_text(one)}
    feed = random_feed([one for one in inputs if one.name not in texts], given, 0) | texts
    bound = {name: array.shape for name, array in feed.items()}
    with taken_sizes(compiled, shapes, bound, quiet=quiet):
        cache = ExecutableCache(compiled)
        cache.executable(bound, feed)
    return bound, cache.model


def with_shapes(compiled: CompiledModel, flags: CompileFlags, texts: list[str] | None) -> CompiledModel:
    """The model compiled ahead for each of the sizes that ``--shapes`` lists.

    Inputs with as many sets of sizes go together; one set alone holds for all.
    """
    listed = out.parse_profiles(texts)
    if not listed:
        return compiled
    known = {value.name: value for value in compiled.inputs}
    sets = {name: [_of_input(known, name, sizes) for sizes in every] for name, every in listed.items()}
    count = max(map(len, sets.values()))
    for name, every in sets.items():
        if len(every) not in (1, count):
            raise InputError("--shapes", f"{len(every)} of {name}", f"1 or {count}, as of other inputs")
    profiles = [
        flags.shapes | {name: every[number % len(every)] for name, every in sets.items()}
        for number in range(count)
    ]
    with compiling(f"compiling for {counted(count, 'set')} of shapes"):
        return with_profiles(compiled, profiles)


def _of_input(known: dict[str, Value], name: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    given = f"{name}={'x'.join(map(str, sizes))}"
    if name not in known:
        raise InputError("--shapes", given, f"inputs {', '.join(known)}", did_you_mean(name, known))
    shape = completed(known[name], sizes)
    if shape is None:
        accepted = f"all sizes of {known[name]}, or those of its open dimensions"
        raise InputError("--shapes", given, accepted)
    return shape


def keep(model: str, target: Path | None, inputs: list[str] | None = None) -> None:
    """Refuses to write over the model or an input now, and not when all is computed."""
    for name in (model, *(text.rpartition("=")[2] for text in inputs or ())):
        with suppress(OSError, ValueError):  # what opens it says what is wrong with it
            record_read(os.stat(name))
    if target is not None:
        check_target(target)


def source(path: Path) -> Any:
    """What ``compile_model`` takes: the path, or a light model with random weights."""
    if not path.exists():
        from onedispatch.dispatch.tools import zoo

        if str(path) in zoo.light_models():
            return zoo.randomised(zoo.find_model(str(path)))
        near = did_you_mean(str(path), zoo.light_models())
        if near:
            raise InputError(f"model {str(path)!r}", "no file, and no light model", "one of these", near)
    return path


def file_of(model: str) -> Path:
    """The file that ``model`` names; a light model's, where there is no other of its name."""
    path = Path(model)
    if not path.exists():
        from onedispatch.dispatch.tools import zoo

        return zoo.light_models().get(model, path)
    return path


def random_feed(inputs: list[NodeArg], shapes: Shapes, seed: int) -> dict[str, Array]:
    """Seeded values for every input: normal floats, small integers; open dimensions are 1."""
    rng = np.random.default_rng(integer("--seed", seed, 0, (1 << 63) - 1))
    feed: dict[str, Array] = {}
    for info in inputs:
        dtype = dtype_of(info.type)
        if dtype is None or dtype.hasobject:
            where, accepted = f"input {info.name!r}", "numbers, which can be random"
            raise InputError(where, info.type, accepted, "use --input name=file.npy")
        shape = _shape_of(info, shapes)
        limits.check_tensor(f"input {info.name!r}", dtype, shape, InputError)
        if dtype.kind in "iub":
            feed[info.name] = rng.integers(0, 2 if dtype.kind == "b" else 10, shape).astype(dtype)
        else:
            feed[info.name] = rng.standard_normal(shape).astype(dtype)
    return feed


def _shape_of(info: NodeArg, shapes: Shapes) -> tuple[int, ...]:
    return shapes.get(info.name) or tuple(d if isinstance(d, int) else 1 for d in info.shape)


def _is_text(info: NodeArg) -> bool:
    return info.type == "tensor(string)"


# -- shapes that a command leaves open -------------------------------------------------------------


def sizes_of(executable: Executable) -> Shapes:
    """The sizes that an executable was compiled for, by input."""
    return {value.name: value.concrete_shape for value in executable.inputs if value.is_concrete}


def agreeing(compiled: CompiledModel, named: Shapes) -> list[tuple[str, Executable]]:
    """The executables, by their keys, that were compiled for the shapes in ``named``; the latest is last."""
    return [(k, one) for k, one in compiled.executables.items() if sizes_of(one).items() >= named.items()]


def shapes_of(compiled: CompiledModel, named: Shapes) -> Shapes:
    """Returns ``named``, and for the other inputs the shapes of the latest executable that agrees with it."""
    agreed = agreeing(compiled, named)
    return sizes_of(agreed[-1][1]) if agreed else named


def tell_taken(compiled: CompiledModel, named: Shapes) -> None:
    """Says on the error stream which executable is taken, where ``named`` leaves several."""
    agreed = agreeing(compiled, named)
    if len(agreed) > 1:
        text = f"compiled for {len(agreed)} sizes; taken: {agreed[-1][0]}, the last; --shape names another"
        out.tell(text, to=out.errors, whole=True)


def sized(compiled: CompiledModel, shapes: Shapes) -> Shapes:
    """``shapes``, and sizes which the model takes for inputs that they leave open, where some are found."""
    return fitting(compiled, shapes) | shapes


@contextmanager
def taken_sizes(
    compiled: CompiledModel, shapes: Shapes, taken: Shapes, *, quiet: bool = False
) -> Iterator[None]:
    """Says on the error stream which sizes were ``taken`` for inputs that ``shapes`` leaves open; nothing
    where it is ``quiet``.

    Raises ``InputError`` with the same where the model refuses them.
    """
    inputs = open_inputs(compiled, shapes)
    guessed = {one.name: taken[one.name] for one in inputs if one.name in taken}
    try:
        yield
        if guessed and not quiet:
            tell_guessed(guessed)
    except ModelError as error:
        if not guessed or isinstance(error, InputError):
            raise
        unsaid = f"none of {', '.join(map(str, inputs))}, so that {as_flags(guessed)} is taken"
        raise InputError(
            "open dimensions",
            f"{unsaid}; that does not fit: {error.statement()}",
            "sizes that fit the model",
            "name the sizes: --shape input=sizes",
        ) from error


def tell_guessed(sizes: Shapes) -> None:
    """Says on the error stream which sizes a command took for open dimensions."""
    text = f"sizes of open dimensions are not given; taken: {as_flags(sizes)}"
    out.tell(text, to=out.errors, whole=True)


def as_flags(sizes: Shapes) -> str:
    """Options that name these sizes: --shape x=1,3,224,224."""
    return " ".join(f"--shape {name}={','.join(map(str, shape))}" for name, shape in sizes.items())


def suggested(compiled: CompiledModel, shapes: Shapes) -> str:
    """Options that name sizes which the model takes, for inputs that ``shapes`` leaves open; "" for none."""
    return as_flags(fitting(compiled, shapes))


def fitting(compiled: CompiledModel, shapes: Shapes) -> Shapes:
    """Sizes which the model takes, for inputs that ``shapes`` leaves open; {} where none are found."""
    from onedispatch.dispatch.tools.open_sizes import fitting_sizes

    graph = compiled.source
    inputs = open_inputs(compiled, shapes)
    if graph is None or compiled.deciding or not inputs:
        return {}
    known = {v.name: v.concrete_shape for v in compiled.inputs if v.is_concrete} | shapes
    fits = fitting_sizes(graph, inputs, known)
    return {one.name: shape for one in inputs if (shape := fits.get(one.name))}  # () of an unknown rank


def guessed(compiled: CompiledModel, shapes: Shapes) -> list[Value]:
    """Inputs of which a size has to be guessed: open, not in ``shapes``, no batch, which is taken as 1."""
    from onedispatch.dispatch.tools.open_sizes import BATCH, kind_of

    inputs, fits = open_inputs(compiled, shapes), fitting(compiled, shapes)

    def known(value: Value, axis: int, size: object) -> bool:
        batch = kind_of(value, axis) == BATCH and fits.get(value.name, (1,) * (axis + 1))[axis] == 1
        return isinstance(size, int) or batch

    return [v for v in inputs if v.shape is None or not all(known(v, *one) for one in enumerate(v.shape))]


def open_inputs(compiled: CompiledModel, shapes: Shapes) -> list[Value]:
    """Inputs with open dimensions that ``shapes`` does not name."""
    return [v for v in compiled.inputs if v.name not in shapes and not v.is_concrete and v.dtype]
