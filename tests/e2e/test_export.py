# SPDX-License-Identifier: Apache-2.0
"""Files for other tools: each is opened by the tool's own code, where its package is installed."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.export.assignment import assignment
from onedispatch.dispatch.export.model_explorer import node_data, placement_data
from onedispatch.dispatch.export.netron import attachment
from onedispatch.dispatch.export.nodes import ModelFacts, facts_of
from onedispatch.dispatch.export.properties import annotate, properties_of
from onedispatch.dispatch.export.vitis_report import vitis_report
from onedispatch.dispatch.ort.providers import HOST, PROVIDER
from onedispatch.transactions.base.files import protecting_files
from tests.e2e.test_recording import NETWORKS, feed, network

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

FILES = {
    "trace.json",
    "netron.json",
    "model_explorer_time.json",
    "model_explorer_placement.json",
    "assignment.json",
    "vitisai_ep_report.json",
    "annotated.onnx",
} | ({"trace.pftrace"} if importlib.util.find_spec("perfetto") else set())


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with protecting_files():
        yield


def named_network(name: str) -> onnx.ModelProto:
    proto = network(name)
    for number, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type} {number}"
    return proto


def facts(proto: onnx.ModelProto) -> ModelFacts:
    compiled = od.compile(proto)
    report = compiled.timing()
    assert report.profile is not None
    hz = report.profile.machine.array_hz
    return facts_of(compiled.device, hz, compiled.placement, report, proto)


def mixed() -> onnx.ModelProto:
    """One part on the device, one on the host, one on the device; and a node that is computed beforehand."""
    text = """
<ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>
cut (float[8, 64] x) => (uint8[8] y, float[2] z)
<int64[3] sizes = {8, 8, 8}, float[2] two = {1.0, 2.0}, float half = {0.5}, uint8 zero = {3}> {
    [first] r = Relu(x)
    [shaped] c = Reshape(r, sizes)
    [middle] d = Det(c)
    [last] y = com.microsoft.QuantizeLinear(d, half, zero)
    [before] z = Neg(two)
}"""
    return onnx.parser.parse_model(text)


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


# -- nodes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_cycles_of_nodes_add_up_to_those_of_operators(name: str) -> None:
    proto = named_network(name)
    report = od.compile(proto).timing()
    found = facts(proto)
    assert sum(node.cycles for node in found.nodes) == pytest.approx(
        sum(op.cycles for op in report.ops if op.nodes)
    )
    assert {node.name for node in found.nodes} <= {node.name for node in proto.graph.node}
    by_name = {node.name: node for node in proto.graph.node}
    for node in found.nodes:
        assert (node.op_type, list(node.outputs)) == (by_name[node.name].op_type, by_name[node.name].output)


def test_nodes_that_gave_way_to_others_are_part_of_their_operator() -> None:
    """A rule makes one of Sigmoid and Mul, which a merge takes into the convolution before them."""
    found = {node.name: node for node in facts(named_network("image")).nodes}
    names = {"Conv 3", "Sigmoid 4", "Mul 5"}
    for name in names:
        assert found[name].operators == ("Conv 3",) and set(found[name].beside) == names - {name}
    (cycles,) = {found[name].cycles for name in names}
    report = od.compile(named_network("image")).timing()
    assert 3 * cycles == pytest.approx(next(op.cycles for op in report.ops if op.name == "Conv 3"))
    assert found["Flatten 7"].operators == () and found["Flatten 7"].dispatch == 0


def test_nodes_know_their_dispatch_domain_and_place() -> None:
    found = {node.name: node for node in facts(mixed()).nodes}
    places = {name: (node.device, node.dispatch) for name, node in found.items()}
    assert places == {
        "first": ("npu", 0),
        "shaped": ("npu", 0),
        "middle": ("cpu", None),
        "last": ("npu", 1),
        "before": ("folded", None),
    }
    assert found["last"].domain == "com.microsoft" and found["shaped"].inputs == ("r", "sizes")


# -- Netron ----------------------------------------------------------------------------------------

ATTACHMENT_READER = """
import fs from 'fs';
const [source, file, names] = process.argv.slice(2);
const text = fs.readFileSync(source, 'utf8');
const part = text.slice(text.indexOf('metadata.Attachment = class'), text.indexOf('metrics.Model = class'));
const metadata = {}, data = JSON.parse(fs.readFileSync(file, 'utf8'));
class Context { constructor(c) { this.identifier = c.identifier; } async peek() { return data; } }
const view = { Context };
new Function('metadata', 'view', part)(metadata, view);
const attachment = new metadata.Attachment();
const opened = await attachment.open({ identifier: 'netron.json' });
const of = (c, name) => Object.fromEntries(c.node({ name }).map((one) => [one.name, one.value]));
const nodes = JSON.parse(names).map((name) => [of(attachment.metadata, name), of(attachment.metrics, name)]);
const whole = Object.fromEntries(attachment.metrics.model({}).map((one) => [one.name, one.value]));
console.log(JSON.stringify([opened, nodes, whole]));
"""


def test_netrons_own_code_reads_the_attachment() -> None:
    """What is run is the class of Netron that opens attachments, and finds the entries of a node."""
    netron, node = importlib.util.find_spec("netron"), shutil.which("node")
    if netron is None or netron.origin is None or node is None:
        pytest.skip("netron or node is not installed")
    proto = named_network("image")
    proto.graph.node[0].name = 'two\nlines "and" quotes'
    found = facts(proto)
    Path("netron.json").write_text(json.dumps(attachment(found)))
    Path("read.mjs").write_text(ATTACHMENT_READER)
    names = [one.name for one in found.nodes]
    source = Path(netron.origin).parent / "view.js"
    command = [node, "read.mjs", str(source), "netron.json", json.dumps(names)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    opened, nodes, whole = json.loads(done.stdout)
    assert opened is True and whole["cycles"] == found.cycles
    for one, (metadata, metrics) in zip(found.nodes, nodes, strict=True):
        assert metadata == properties_of(one)
        assert metrics.get("cycles", 0) == pytest.approx(one.cycles, abs=1e-3)
    assert sum(metrics.get("share of the run", 0) for _, metrics in nodes) < 1


def test_an_attachment_has_netrons_form() -> None:
    found = attachment(facts(mixed()))
    assert found["signature"] == "netron:attachment" and set(found) == {"signature", "metadata", "metrics"}
    entries = found["metadata"] + found["metrics"]
    assert all(set(one) == {"kind", "target", "name", "value"} for one in entries)
    assert {one["kind"] for one in entries} == {"model", "node"}
    devices = {one["target"]: one["value"] for one in found["metadata"] if one["name"] == "device"}
    assert devices["middle"] == "cpu" and devices["before"] == "folded" and devices[""] == "npu2"


# -- metadata_props --------------------------------------------------------------------------------


def test_an_annotated_model_says_the_same_and_is_the_same_model() -> None:
    proto = named_network("image")
    entry = proto.metadata_props.add(key="author", value="me")
    bare = onnx.ModelProto.FromString(proto.SerializeToString())
    found = facts(proto)
    annotate(proto, found)
    once = proto.SerializeToString()
    annotate(proto, found)
    assert proto.SerializeToString() == once and entry in proto.metadata_props
    onnx.checker.check_model(proto)
    for one, node in zip(found.nodes, proto.graph.node, strict=True):
        props = {entry.key: entry.value for entry in node.metadata_props}
        said = {f"onedispatch.{key.replace(' ', '_')}": text for key, text in properties_of(one).items()}
        assert said.items() <= props.items()
    values = feed("image", 0)
    first, second = (ort.InferenceSession(one.SerializeToString()).run(None, values) for one in (bare, proto))
    assert np.array_equal(first[0], second[0])
    for node in proto.graph.node:
        del node.metadata_props[:]
    del proto.metadata_props[:]
    del bare.metadata_props[:]
    assert proto == bare


# -- Model Explorer --------------------------------------------------------------------------------


def test_model_explorers_builder_makes_the_same_node_data() -> None:
    builder = pytest.importorskip("model_explorer.node_data_builder")
    adapter = pytest.importorskip("model_explorer_onnx.main")
    proto = named_network("image")
    onnx.save(proto, "m.onnx")
    (graph,) = adapter.ONNXAdapter().convert("m.onnx", {})["graphs"]
    found = facts(proto)
    for data in (node_data(found), placement_data(found)):
        assert list(data) == [graph.id]
        one = data[graph.id]
        assert set(one["results"]) <= {node.id for node in graph.nodes}
        made = builder.GraphNodeData(
            results={key: builder.NodeDataResult(**value) for key, value in one["results"].items()},
            name=one["name"],
            gradient=[builder.GradientItem(**stop) for stop in one.get("gradient", [])],
        )
        assert one.items() <= json.loads(made.to_json_string()).items()


def test_node_data_has_model_explorers_form() -> None:
    found = facts(mixed())
    (graph,) = (data := node_data(found))
    assert graph == "cut" and set(data["cut"]) == {"name", "results", "gradient"}
    assert [stop["stop"] for stop in data["cut"]["gradient"]] == [0, 1]
    assert set(data["cut"]["results"]) == {node.name for node in found.nodes if node.operators}
    times = [one["value"] for one in data["cut"]["results"].values()]
    assert sum(times) == pytest.approx(found.microseconds(sum(node.cycles for node in found.nodes)))
    places = {name: one["value"] for name, one in placement_data(found)["cut"]["results"].items()}
    assert places == {node.name: node.device for node in found.nodes}


# -- the forms of ONNX Runtime and of AMD ----------------------------------------------------------


def test_the_assignment_is_of_onnxruntimes_form_and_of_the_same_nodes() -> None:
    proto = named_network("image")
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options)
    if not hasattr(session, "get_provider_graph_assignment_info"):
        pytest.skip("this onnxruntime does not tell its assignment")
    theirs = {
        (node.name, node.domain, node.op_type)
        for graph in session.get_provider_graph_assignment_info()
        for node in graph.get_nodes()
    }
    (ours,) = assignment(facts(proto))
    assert ours["ep_name"] == PROVIDER
    assert {(node["name"], node["domain"], node["op_type"]) for node in ours["nodes"]} == theirs


def test_each_dispatch_and_each_row_of_host_nodes_is_a_subgraph() -> None:
    found = [(one["ep_name"], [node["name"] for node in one["nodes"]]) for one in assignment(facts(mixed()))]
    assert found == [(PROVIDER, ["first", "shaped"]), (HOST, ["middle"]), (PROVIDER, ["last"])]


def test_amds_report_counts_nodes_by_device() -> None:
    report = vitis_report(facts(mixed()))
    counts = {one["name"]: one["nodeNum"] for one in report["deviceStat"]}
    assert counts == {"all": 4, "NPU": 3, "CPU": 1}
    types = {one["name"]: one["supportedOpType"] for one in report["deviceStat"]}
    assert types["NPU"] == ["::Relu", "::Reshape", "com.microsoft::QuantizeLinear"]
    assert types["CPU"] == ["::Det"]
    assert report["nodeStat"][1] == {
        "device": "NPU",
        "input": ["r", "sizes"],
        "output": ["c"],
        "opType": "::Reshape",
    }
    assert len(report["nodeStat"]) == counts["all"]
    only = vitis_report(facts(named_network("image")))
    assert [one["name"] for one in only["deviceStat"]] == ["all", "NPU"]


# -- the command -----------------------------------------------------------------------------------


def test_all_is_written_to_a_folder() -> None:
    onnx.save(mixed(), "m.onnx")
    rows = json.loads(invoke("export", "m.onnx", "--all", "new/tools", "--json"))
    assert (
        {Path(row["path"]).name for row in rows} == FILES == {one.name for one in Path("new/tools").iterdir()}
    )
    assert all(row["bytes"] == Path(row["path"]).stat().st_size for row in rows)
    subgraphs = json.loads(Path("new/tools/assignment.json").read_bytes())
    assert [one["ep_name"] for one in subgraphs] == [PROVIDER, HOST, PROVIDER]
    host = json.loads(Path("new/tools/netron.json").read_bytes())["metadata"]
    engine = next(one["value"] for one in host if (one["target"], one["name"]) == ("middle", "engine"))
    assert "onnx" in engine
    model = onnx.load("new/tools/annotated.onnx")
    assert {entry.key for entry in model.metadata_props} >= {"onedispatch.device", "onedispatch.cycles"}


def test_files_go_where_each_option_says() -> None:
    onnx.save(named_network("image"), "m.onnx")
    invoke("export", "m.onnx", "--netron", "a.json", "--vitis-report", "b.json", "--trace", "c.json")
    assert {one.name for one in Path().iterdir()} == {"m.onnx", "a.json", "b.json", "c.json"}
    assert json.loads(Path("a.json").read_bytes())["signature"] == "netron:attachment"
    assert "traceEvents" in json.loads(Path("c.json").read_bytes())


def test_a_compiled_model_says_what_it_knows() -> None:
    od.compile(mixed()).save("m.od")
    rows = json.loads(invoke("export", "m.od", "--all", "tools", "--json"))
    assert {Path(row["path"]).name for row in rows} == FILES - {"annotated.onnx"}
    nodes = [one["nodes"] for one in json.loads(Path("tools/assignment.json").read_bytes())]
    assert [node["name"] for node in nodes[0]] == ["first", "shaped"]
    with pytest.raises(od.InputError, match="no ONNX file"):
        invoke("export", "m.od", "--annotate", "n.onnx")


def test_a_model_on_the_host_alone_has_no_trace() -> None:
    graph = od.Graph()
    graph.output(graph.add_layer("Det", [graph.input("x", (8, 8))]), "y")
    od.compile(graph).save("m.od")
    assert "no kernel runs" in invoke("export", "m.od", "--trace", "t.json", "--assignment", "a.json")
    assert not Path("t.json").exists()
    (subgraph,) = json.loads(Path("a.json").read_bytes())
    assert subgraph["ep_name"] == HOST
    assert invoke("export", "m.od", "--all", "tools").count("no kernel runs") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing to write"),
        (["--trace", "t.txt"], "--trace"),
        (["--annotate", "m.onnx"], "already"),
        (["--netron", "m.onnx"], "already"),
    ],
)
def test_what_cannot_be_written_is_refused(options: list[str], message: str) -> None:
    onnx.save(mixed(), "m.onnx")
    before = Path("m.onnx").read_bytes()
    with pytest.raises(od.InputError, match=re.escape(message)):
        invoke("export", "m.onnx", *options)
    assert {one.name for one in Path().iterdir()} == {"m.onnx"} and Path("m.onnx").read_bytes() == before


def test_external_data_stays_beside_the_annotated_model() -> None:
    proto = named_network("image")
    onnx.save(proto, "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    Path("other").mkdir()
    with pytest.raises(od.InputError, match="external data"):
        invoke("export", "m.onnx", "--annotate", "other/n.onnx")
    invoke("export", "m.onnx", "--annotate", "n.onnx")
    assert Path("n.onnx").stat().st_size < 20_000
    values: Any = feed("image", 1)
    first, second = (ort.InferenceSession(one).run(None, values)[0] for one in ("m.onnx", "n.onnx"))
    assert np.array_equal(first, second)
