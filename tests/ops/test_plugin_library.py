# SPDX-License-Identifier: Apache-2.0
"""Kernel libraries of others, in C++ and in plain C: built with one command, placed, run, and refused."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onedispatch.cpp_ext import _core
from onedispatch.dispatch.check.kernels import check_file
from onedispatch.operators.codegen.headers import include_folder
from onedispatch.operators.declarations import statuses
from onedispatch.operators.declarations.tensor import Quantisation, TensorSpec
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.check import Options
from onedispatch.operators.plugin.instance import Interval
from onedispatch.operators.plugin.library import LibraryKernel, read
from onedispatch.operators.plugin.operands import In
from onedispatch.operators.plugin.plugin import kernel as kernel_class
from onedispatch.operators.plugin.plugin import plugin_of
from onedispatch.transactions.base.errors import KernelError, SimulationError
from tests.ops.libraries import SOURCES, built, executed, kernels_of, node_of

Kernels = Mapping[str, LibraryKernel]
F32 = np.dtype(np.float32)
RNG = np.random.default_rng(9)
UNUSED = ("-Wno-unused",)  # of what a wrong declaration leaves out
X = RNG.standard_normal((11, 29)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("libraries")


@pytest.fixture(scope="module")
def acme_path(folder: Path) -> Path:
    return built("acme.cpp", folder)


@pytest.fixture(scope="module")
def acme(acme_path: Path) -> Kernels:
    return kernels_of(acme_path)


@pytest.fixture(scope="module")
def plain(folder: Path) -> Kernels:
    return kernels_of(built("plain.c", folder))


@pytest.fixture(scope="module")
def liar(folder: Path) -> LibraryKernel:
    return kernels_of(built("lies.c", folder, *UNUSED))["liar"]


# -- what they compute -----------------------------------------------------------------------------


@pytest.mark.daily(3)
@pytest.mark.parametrize("device", ["npu2", "npu1"])
@pytest.mark.parametrize("shape", [(), (1,), (37, 53), (2, 3, 4, 5, 6)])
def test_both_faces_scale_and_add_with_the_bits_of_numpy(
    acme: Kernels, plain: Kernels, shape: tuple[int, ...], device: str
) -> None:
    x, y = (RNG.standard_normal(shape).astype(np.float32) for _ in "xy")
    expected = np.float32(2.7) * x + y
    for kernels in (acme, plain):
        if kernels is plain and not shape:
            continue  # its ranks begin with 1
        made = executed(kernels["scale_add"], {"x": x, "y": y}, {"a": 2.7}, device)["z"]
        assert np.array_equal(made, expected)


def test_elements_broadcast_as_in_numpy(acme: Kernels) -> None:
    x, y = X[:7, :9].copy(), X[8, :9].copy()
    made = executed(acme["scale_add"], {"x": x, "y": y}, {"a": -1.5})["z"]
    assert np.array_equal(made, np.float32(-1.5) * x + y)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16, np.int8, np.int16, np.int32])
def test_a_template_runs_for_each_of_its_element_types(acme: Kernels, dtype: Any) -> None:
    x = (X * 50).astype(dtype)
    assert np.array_equal(executed(acme["absolute"], {"x": x})["z"], np.abs(x))


@pytest.mark.parametrize(("name", "dtype"), [("to_bf16", ml_dtypes.bfloat16), ("to_f16", np.float16)])
def test_floats_are_rounded_as_numpy_rounds_them(acme: Kernels, name: str, dtype: Any) -> None:
    bits = RNG.integers(0, 2**32, (64, 256), dtype=np.uint64).astype(np.uint32)
    edges = [
        0x3F808000,
        0x3F818000,
        0x477FEFFF,
        0x477FF000,
        0x33000000,
        0x33000001,
        0x387FE000,
        0x7F7FFFFF,
        0x80000001,
    ]
    bits[0, : len(edges)] = edges
    x = bits.view(np.float32)
    x = np.where(np.isnan(x), np.float32(-0.0), x)
    with np.errstate(over="ignore"):
        expected = x.astype(dtype)
    made = executed(acme[name], {"x": x})["z"]
    assert np.array_equal(made.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("pad", [None, 5.0])
def test_coordinates_are_global_and_the_node_may_pad(acme: Kernels, pad: float | None) -> None:
    padded = np.pad(X, 1, constant_values=-1 if pad is None else pad)
    windows = [padded[i : i + 11, j : j + 29] for i in range(3) for j in range(3)]
    total = np.zeros_like(X)
    for window in windows:
        total = total + window
    made = executed(acme["box"], {"x": X}, {} if pad is None else {"pad": pad})
    assert np.array_equal(made["mean"], total / np.float32(9))
    assert np.array_equal(made["largest"], np.max(windows, axis=0))


def test_raw_rows(acme: Kernels) -> None:
    expected = np.zeros(11, np.float32)
    for column in X.T:
        expected = expected + column
    assert np.array_equal(executed(acme["row_sum"], {"x": X})["z"], expected)


@pytest.mark.parametrize("mode", ["", "twice"])
def test_table_scratch_scalars_pad_fill_and_hints_in_one_kernel(acme: Kernels, mode: str) -> None:
    x = RNG.integers(0, 3000, 100).astype(np.float32)
    attributes = {"mode": mode, "s31": 0.25}
    expected = x * np.float32(0.5)
    for i in range(32):
        scalar = 0.25 if i == 31 else 1000 if i == 0 and mode else i
        expected = expected + np.float32(scalar)
    expected = expected + np.append(x[1:], 100).astype(np.float32)
    made = executed(acme["everything"], {"x": x}, attributes)["z"]
    assert np.array_equal(made[::2], expected)
    assert np.array_equal(made[1::2], np.full(100, -3))
    instance = acme["everything"].instantiate(
        node_of(acme["everything"], [TensorSpec("x", F32, (100,))], attributes)
    )
    assert (instance.preferred_split, instance.in_place) == (0, {"z": "x"})
    assert instance.work["op"] == 40
    assert instance.scratch == {"kept": 128}
    assert instance.aux["table"].shape == (3000,)


def test_a_table_in_plain_c_that_takes_more_than_the_first_buffer(plain: Kernels) -> None:
    x = RNG.integers(0, 256, (5, 7, 9)).astype(np.uint8)
    assert np.array_equal(executed(plain["lookup"], {"x": x}, {"base": 10})["z"], 10 + x * np.float32(0.25))


def test_multiply_and_add_are_not_fused(folder: Path) -> None:
    """Also where the target could: NumPy rounds twice."""
    for source, options in (("acme.cpp", ("-march=haswell",)), ("plain.c", ("-march=haswell",))):
        library = built(source, folder, *options, name=f"fused_{source.partition('.')[0]}")
        text = subprocess.run(["objdump", "-d", library], capture_output=True, text=True, check=True).stdout
        assert "vmulss" in text and "vfmadd" not in text, source


def test_fast_mathematics_is_refused(folder: Path) -> None:
    with pytest.raises(AssertionError, match="the same bits everywhere: compile without -ffast-math"):
        built("acme.cpp", folder, "-ffast-math", name="fast")


# -- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "listed"), [("npu2", 8), ("npu1", 7)])
def test_names_are_copied_where_all_fit(acme_path: Path, device: str, listed: int) -> None:
    function = ctypes.CDLL(str(acme_path)).od_kernel_names
    for capacity in (0, listed - 1, listed, listed + 1):
        names = ((ctypes.c_char * 65) * 12)()
        for name in names:
            name.value = b"untouched"
        count = ctypes.c_uint32(capacity)
        assert function(device.encode(), names, ctypes.byref(count)) == 0
        assert count.value == listed
        copied = [name.value.decode() for name in names if name.value != b"untouched"]
        assert len(copied) == (listed if capacity >= listed else 0)
        assert "acme::wrong" in copied or device == "npu1" or capacity < listed
        assert copied == (_core.plugin_names(str(acme_path), device) if copied else [])


def test_a_name_has_64_bytes(folder: Path) -> None:
    name = "lies::" + "n" * 58
    library = built("lies.c", folder, *UNUSED, f'-DDECLARED_NAME="{name}"', name="longest")
    assert _core.plugin_names(str(library), "npu2") == [name]
    assert read(library)[0].kernel.name == f"{name}@1"
    longer = built("lies.c", folder, *UNUSED, f'-DDECLARED_NAME="{name}n"', name="longer")
    with pytest.raises(statuses.KernelDeclarationInvalidError, match="65 bytes"):
        read(longer)


# -- nodes that do not agree ---------------------------------------------------------------------------


def spec(dtype: Any = np.float32, shape: tuple[int, ...] = (4, 6), **more: Any) -> TensorSpec:
    return TensorSpec("x", np.dtype(dtype), shape, **more)


def test_nodes_are_judged_by_the_declaration(acme: Kernels, plain: Kernels) -> None:
    for kernel, inputs, attributes, error in (
        (acme["scale_add"], [spec()], {"a": 1.0}, statuses.KernelInputCountError),
        (acme["scale_add"], [spec()] * 3, {"a": 1.0}, statuses.KernelInputCountError),
        (acme["scale_add"], [spec(np.int8), spec()], {"a": 1.0}, statuses.KernelDtypeError),
        (acme["scale_add"], [spec(), spec()], {}, statuses.KernelMissingParametersError),
        (acme["row_sum"], [spec(shape=(4,))], {}, statuses.KernelRankError),
        (plain["lookup"], [spec(np.uint8)], {"base": 1001}, statuses.KernelScalarArgumentError),
    ):
        with pytest.raises(error) as refused:
            kernel.instantiate(node_of(kernel, inputs, attributes))
        assert refused.value.given and refused.value.accepted and refused.value.node == "n"


def test_what_place_refuses_names_node_and_kernel(acme: Kernels, plain: Kernels) -> None:
    for kernel, inputs, how, error, said in (
        (
            acme["wrong"],
            [spec(shape=(9,))],
            {"how": 1},
            statuses.KernelLayerConfigurationError,
            "how: given 1; accepted: others",
        ),
        (
            acme["wrong"],
            [spec(shape=(9,))],
            {"how": 2},
            statuses.KernelRuntimeFailureError,
            "thrown by place",
        ),
        (
            acme["wrong"],
            [spec(shape=(9,))],
            {"how": 3},
            statuses.KernelParameterInvalidError,
            "an operand: given w",
        ),
        (
            acme["wrong"],
            [spec(shape=(9,))],
            {"how": 9},
            statuses.KernelRankError,
            "access of y: given 600 intervals; accepted: at most 5",
        ),
        (
            acme["everything"],
            [spec(shape=(9,))],
            {"entries": -1},
            statuses.KernelParameterInvalidError,
            "elements of auxiliary tensor table: given -1",
        ),
        (
            acme["scale_add"],
            [spec(), spec(shape=(5, 6))],
            {"a": 1.0},
            statuses.KernelBroadcastError,
            r"shape of y: given \[5 x 6\]",
        ),
        (
            plain["scale_add"],
            [spec(), spec(shape=(5, 6))],
            {"a": 1.0},
            statuses.KernelInputSizeError,
            "two shapes",
        ),
    ):
        node = node_of(kernel, inputs, how)
        with pytest.raises(error, match=said) as refused:
            kernel.instantiate(node)
        assert refused.value.node == "n"
        assert f"node n (Op), {kernel.origin}: kernel {kernel.kernel.name.partition('@')[0]}" in str(
            refused.value
        )


BODIES = {
    4: (statuses.KernelRuntimeFailureError, "thrown by run"),
    5: (
        statuses.KernelAccessError,
        r"x: read element \[\d+\]; the members of the tile may touch \[0 to \d+\]",
    ),
    6: (
        statuses.KernelAccessError,
        r"z: wrote element \[\d+\]; the members of the tile may touch \[0 to \d+\]",
    ),
    7: (statuses.KernelDtypeError, "x: asked for as bf16, it has f32"),
    8: (statuses.KernelInputCountError, "y: it is absent in this node"),
    10: (statuses.KernelParameterInvalidError, "scratch: given w; accepted: none"),
    11: (statuses.KernelScalarArgumentError, "a scalar: given w; accepted: how;"),
}


@pytest.mark.parametrize("how", BODIES)
def test_what_a_body_refuses_names_kernel_and_tile(acme: Kernels, how: int) -> None:
    error, said = BODIES[how]
    x = np.arange(9000, dtype=np.float32)
    with pytest.raises(error, match=said) as refused:
        executed(acme["wrong"], {"x": x}, {"how": how})
    assert isinstance(refused.value, SimulationError)
    assert "acme::wrong@1" in str(refused.value) and "core tile c" in str(refused.value)
    assert np.array_equal(executed(acme["wrong"], {"x": x}, {"how": 0})["z"], x)  # others go on


def test_quantisation_is_told(liar: LibraryKernel) -> None:
    quantised = TensorSpec("x", np.dtype(np.int8), (3,), quantisation=Quantisation((0.5,), (3,)))
    assert quantised.quantisation is not None
    with pytest.raises(statuses.KernelDtypeError):
        node_of(liar, [quantised])


# -- libraries and instances that lie --------------------------------------------------------------------

LIES: dict[str, tuple[type[KernelError], str]] = {
    "index rank": (
        statuses.KernelRuntimeFailureError,
        "rank of the index space: given 4000000000; accepted: at most 5",
    ),
    "index size": (statuses.KernelParameterInvalidError, "index space, dimension 0: given -5"),
    "output rank": (statuses.KernelRuntimeFailureError, "rank of output 0: given 6; accepted: at most 5"),
    "output dtype": (
        statuses.KernelRuntimeFailureError,
        "element type of output 0: given 77; accepted: at most 9",
    ),
    "other dtype": (statuses.KernelDtypeError, "dtype of output z"),
    "output size": (statuses.KernelOutputSizeError, "shape of output z"),
    "dimension": (statuses.KernelParameterInvalidError, "access of x, dimension 0: given index dimension 3"),
    "denominator": (
        statuses.KernelParameterInvalidError,
        "access of x, dimension 0: given den = 0; accepted: 1 or more",
    ),
    "numerator": (
        statuses.KernelParameterInvalidError,
        "access of x, dimension 0: given a = 9223372036854775807",
    ),
    "end": (statuses.KernelParameterInvalidError, "access of x, dimension 0: given start 0, end -4"),
    "race": (statuses.KernelAccessError, "access of output z, a race"),
    "gap": (statuses.KernelAccessError, "access of output z, a gap"),
    "outputs": (
        statuses.KernelRuntimeFailureError,
        "n_outputs and n_aux: given 3 and 1; accepted: those of the declaration, 1 and 1",
    ),
    "aux count": (statuses.KernelRuntimeFailureError, "given 1 and 17"),
    "aux rank": (
        statuses.KernelRuntimeFailureError,
        "rank of auxiliary tensor 0: given 99; accepted: at most 5",
    ),
    "aux size": (
        statuses.KernelParameterInvalidError,
        r"auxiliary tensor table: given shape \[7\] with 8 bytes",
    ),
    "aux bytes": (
        statuses.KernelRuntimeFailureError,
        "bytes of auxiliary tensor 0, with OD_OK: given 1048576; accepted: at most 4096",
    ),
    "aux beyond": (
        statuses.KernelAccessError,
        "auxiliary tensor 0: written beyond its buffer; accepted: 4,096 bytes",
    ),
    "split": (statuses.KernelParameterInvalidError, "preferred_split: given 4"),
    "work": (statuses.KernelParameterInvalidError, "work"),
    "status": (
        statuses.KernelRuntimeFailureError,
        "given status 12345; accepted: those of onedispatch/kernel_codes.h",
    ),
    "silent": (statuses.KernelLayerConfigurationError, "attributes that it does not take together"),
    "endless text": (statuses.KernelFailureError, "e" * 900),
    "no utf-8": (statuses.KernelFailureError, "\ufffd"),
    "always more": (statuses.KernelAuxBufferTooSmallError, "asked for larger buffers 4 times; accepted: 3"),
    "no more": (statuses.KernelAuxBufferTooSmallError, "with od_aux.bytes that its buffers have"),
    "too much": (
        statuses.KernelAuxBufferTooSmallError,
        "given 18,446,744,073,709,551,615 bytes; accepted: at most",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_instances_that_lie_are_refused(liar: LibraryKernel, lie: str) -> None:
    error, said = LIES[lie]
    node = node_of(liar, [spec()], {"lie": lie})
    with pytest.raises(error, match=said) as refused:
        liar.instantiate(node)
    assert "lies::liar" in str(refused.value)


def test_what_masks_say_of_nothing_is_not_heard(liar: LibraryKernel) -> None:
    instance = liar.instantiate(node_of(liar, [spec()], {"lie": "mask"}))
    assert (instance.pads, instance.scalars) == ({"x": 0.0}, {})


def test_buffers_grow_while_it_asks(liar: LibraryKernel) -> None:
    assert liar.instantiate(node_of(liar, [spec()], {"lie": "twice more"})).aux["table"].tolist() == [1, 1]
    assert liar.instantiate(node_of(liar, [spec()])).access["x"] == (Interval(0), Interval(1))


def test_pads_of_integers_are_integers(folder: Path) -> None:
    kernel = kernels_of(built("lies.c", folder, *UNUSED, "-DX_DTYPES=1u<<OD_DTYPE_I8", name="integers"))[
        "liar"
    ]
    for lie in ("pad", "nan pad"):
        with pytest.raises(statuses.KernelParameterInvalidError, match="pad or fill of x: given"):
            kernel.instantiate(node_of(kernel, [spec(np.int8)], {"lie": lie}))


REFUSED: dict[str, tuple[type[KernelError], str]] = {
    "-DPLUGIN=NULL": (statuses.KernelNullPointerError, "plug-in 0: the plug-in is null"),
    "-DDECLARED=NULL": (statuses.KernelNullPointerError, "its declaration is null"),
    "-DDECLARED_NAME=NULL": (statuses.KernelNullPointerError, "its name is null"),
    '-DDECLARED_NAME=""': (statuses.KernelDeclarationInvalidError, "its name is empty"),
    '-DDECLARED_NAME="Lies"': (statuses.KernelDeclarationInvalidError, "namespace::name"),
    "-DFUNCTIONS=NULL,prepare,NULL,run,free": (
        statuses.KernelNullPointerError,
        "instantiate, prepare, run or release is null",
    ),
    "-DHEAD=8,8,8,8": (statuses.KernelSizeMismatchError, "its od_plugin has 8 bytes"),
    "-DOPERANDS=NULL,3": (statuses.KernelNullPointerError, "its table of operands is null"),
    "-DOPERANDS=operands,4000000000u": (
        statuses.KernelDeclarationInvalidError,
        "given 4,000,000,000 operands; accepted: at most 32",
    ),
    "-DOPERANDS=operands,1": (statuses.KernelDeclarationInvalidError, "outputs: given none"),
    "-DOPERANDS=operands+1,2 ": (statuses.KernelDeclarationInvalidError, ""),
    "-DSCALARS=many,33": (statuses.KernelNullPointerError, "the name of scalar 1 is null"),
    "-DSCALARS=many,300": (
        statuses.KernelDeclarationInvalidError,
        "given 300 scalars; accepted: at most 256",
    ),
    "-DSCALARS=typed,1": (statuses.KernelDeclarationInvalidError, "s: given type 7"),
    "-DDEVICES=devices,1": (statuses.KernelNullPointerError, "device 0 is null"),
    "-DX_ROLE=9": (statuses.KernelDeclarationInvalidError, "x: given role 9"),
    "-DX_ROLE=OD_ROLE_OUTPUT": (
        statuses.KernelDeclarationInvalidError,
        "table: given behind x; accepted: inputs, aux",
    ),
    "-DOPERANDS=(const od_declared_operand*)0x99,3": (
        statuses.KernelCrashError,
        "to look at it ended with Segmentation",
    ),
    "-DX_DTYPES=0x80000000u": (statuses.KernelDeclarationInvalidError, "x: given element types of the mask"),
}


@pytest.mark.parametrize("option", [option for option, (_, said) in REFUSED.items() if said])
def test_libraries_that_are_refused(option: str, folder: Path) -> None:
    error, said = REFUSED[option]
    library = built("lies.c", folder, *UNUSED, option, name=f"refused{list(REFUSED).index(option)}")
    with pytest.raises(error, match=said) as refused:
        read(library)
    assert str(library) in str(refused.value)


def test_what_is_no_library(folder: Path, acme_path: Path) -> None:
    text = folder / "libtext.so"
    text.write_text("not an object")
    for path in (text, folder / "libnone.so"):
        with pytest.raises(statuses.KernelNotFoundError, match=path.name):
            read(path)
    with pytest.raises(statuses.KernelNotFoundError, match="given plug-in 8; it has 8 plug-ins"):
        _core.instantiate(
            str(acme_path),
            8,
            {
                "name": "",
                "kernel": "",
                "device": "",
                "max_cores": 1,
                "inputs": [],
                "outputs": [],
                "scalars": [],
                "attributes": [],
            },
        )


def test_fractions_reach_the_placement(acme: Kernels) -> None:
    kernel = acme["box"]
    instance = kernel.instantiate(node_of(kernel, [spec()]))
    assert instance.access["x"] == (Interval(0, 1, -1, 1), Interval(1, 1, -1, 1))
    assert all(isinstance(it.a, int | Fraction) for it in instance.access["x"])


def test_kernels_are_short() -> None:
    """The library of the tests has at most 30 lines per kernel, glue included."""
    lines = [line for line in (SOURCES / "acme.cpp").read_text().splitlines() if line.strip()]
    kernels = sum("static void declare" in line for line in lines)
    assert len(lines) / kernels <= 30
    assert (include_folder() / "onedispatch" / "plugin_cpp.h").is_file()


# -- the compiled body of a class --------------------------------------------------------------------------


def class_of(library: str, **other: Any) -> type:
    """The twin in Python of ``acme::scale_add``, or one that differs."""
    given = {"inputs": "x y", "outputs": "z", "scalars": {"a": "f32"}} | other
    name = given.pop("name", "acme::scale_add")

    class ScaleAdd:
        def index_space(self, n: Any) -> Any:
            return n["x"].shape

        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like()}

    return kernel_class(name, library=library, **given)(ScaleAdd)


@pytest.fixture
def _forgotten() -> Iterator[None]:
    yield
    registrations.forget(str(Path(__file__).resolve()))


@pytest.mark.usefixtures("_forgotten")
def test_a_class_with_a_compiled_body(acme_path: Path, acme: Kernels) -> None:
    plugin = plugin_of(class_of(str(acme_path)))
    assert plugin is not None and plugin.functions == {"library": str(acme_path), "index": 0}
    assert plugin.kernel.digest == acme["scale_add"].kernel.digest
    made = executed(plugin, {"x": X, "y": X}, {"a": 0.3})["z"]
    assert np.array_equal(made, np.float32(0.3) * X + X)


DIFFERENT = {
    "inputs, in the class: given y, x; accepted: x, y, as": {"inputs": "y x"},
    "outputs, in the class: given w; accepted: z, as": {"outputs": "w"},
    "scalars, in the class: given b; accepted: a, as": {"scalars": {"b": "f32"}},
    "auxiliary tensors, in the class: given table; accepted: none, as": {"aux": "table"},
    "scratch, in the class: given tmp; accepted: none, as": {"scratch": "tmp"},
    "type of scalar a, in the class: given i32; accepted: f32, as": {"scalars": {"a": "i32"}},
    "default of scalar a, in the class: given 2.0; accepted: None, as": {"scalars": {"a": ("f32", 2.0)}},
    "dtypes of x, in the class: given bf16; accepted: f32, as": {"dtypes": "bf16"},
    "rank of y, in the class: given (2, 2); accepted: (0, 5), as": {"inputs": [In("x"), In("y", rank=2)]},
    "pad of y, in the class: given 1.0; accepted: None, as": {"inputs": [In("x"), In("y", pad=1.0)]},
    "optional of y, in the class: given True; accepted: False, as": {"inputs": "x y?"},
    "quantised of x, in the class: given True; accepted: None, as": {
        "inputs": [In("x", quantised=True), In("y")]
    },
}


@pytest.mark.parametrize("said", DIFFERENT)
def test_a_class_that_differs_from_its_library_is_refused(said: str, acme_path: Path) -> None:
    with pytest.raises(statuses.KernelDeclarationInvalidError) as refused:
        class_of(str(acme_path), **DIFFERENT[said])
    assert said in str(refused.value) and str(acme_path) in str(refused.value)


def test_compiled_bodies_that_are_not_there(acme_path: Path) -> None:
    with pytest.raises(
        statuses.KernelNotFoundError, match=r"given no kernel of that name; accepted: acme::scale_add@1, "
    ):
        class_of(str(acme_path), name="acme::other")
    with pytest.raises(statuses.KernelNotFoundError, match=r"given libnone.so; accepted: a file .*"):
        class_of("libnone.so")


def test_two_libraries_with_a_class_of_one_name(folder: Path) -> None:
    for vendor, factor in (("first", 2), ("second", 5)):
        options = (f'-DVENDOR="{vendor}"', f"-DFACTOR={factor}")
        times = kernels_of(built("same_name.cpp", folder, *options, name=vendor))["times"]
        assert times.kernel.name == f"{vendor}::times@1"
        assert np.array_equal(executed(times, {"x": X})["z"], factor * X)


@pytest.mark.parametrize(("how", "kind", "verb"), [(5, "read", "reads x at"), (6, "write", "writes z at")])
def test_check_mode_says_which_way_an_accessor_was_used(
    acme_path: Path, how: int, kind: str, verb: str
) -> None:
    found = check_file(str(acme_path), Options(), kernel="acme::wrong", cases=[f"x=f32[64] how={how}"])
    kinds = {finding.kind for finding in found.findings}
    assert kinds == {kind} and all(verb in finding.text for finding in found.findings), found.findings
