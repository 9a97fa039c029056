# SPDX-License-Identifier: Apache-2.0
"""``onedispatch.frontend`` and ``onedispatch.fusion``: mapping rules as data, in one Python file, no build.

    tf = od.frontend("tensorflow")
    tf.op("TopKV2", to="TopK").auto().default(largest=1, axis=-1)

    @tf.expand("AddN")
    def addn(g, n): ...

Rules of others go before those that come with the package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from onedispatch.dispatch.base.frameworks import FRAMEWORKS
from onedispatch.dispatch.frontend.schemas import domain_of
from onedispatch.dispatch.sources import facts, registry
from onedispatch.dispatch.sources.formats import FORMATS, SENSITIVE
from onedispatch.dispatch.sources.host import HostImplementation, check_like
from onedispatch.dispatch.sources.patterns import FusionPattern
from onedispatch.dispatch.sources.rule import Fusion, Place, Rule, Versions
from onedispatch.dispatch.sources.targets import Target
from onedispatch.operators.plugin import registrations
from onedispatch.transactions.base.boundary import error_line, public
from onedispatch.transactions.base.errors import InputError, RuleError
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])
# Frames of these modules are not where a rule is written.
_OWN_MODULES = ("onedispatch.dispatch.sources.", "onedispatch.transactions.base.")
_OURS = ("onedispatch.dispatch.tensorflow.", "onedispatch.dispatch.contrib.")  # where the rules are that ship


@public
def frontend(framework: str, *, domain: str | None = None) -> Frontend:
    """Returns where the mapping rules of a source framework are written.

    Args:
        framework: ``"tensorflow"``, or ``"onnx"`` for operators of a domain.
        domain: of ``"onnx"``: ``"acme"``; None is ONNX's own.

    Raises ``InputError`` for another framework or domain.
    """
    if framework not in FRAMEWORKS:
        remedy = did_you_mean(str(framework), FRAMEWORKS)
        raise InputError("frontend", bounded_repr(framework), ", ".join(map(repr, FRAMEWORKS)), remedy)
    if domain is not None and (framework != "onnx" or not isinstance(domain, str)):
        given = f"domain={bounded_repr(domain)} of {framework}"
        raise InputError("frontend", given, 'the name of a domain, of "onnx" alone')
    return Frontend(framework, domain_of(domain or "") if framework == "onnx" else framework)


class Frontend:
    """Registers rules for the operators of a framework, of ONNX for those of a domain."""

    def __init__(self, framework: str, domain: str) -> None:
        self.framework, self.domain = framework, domain

    def __repr__(self) -> str:
        return (
            f"frontend({self.framework!r}{f', domain={self.domain!r}' if self.framework == 'onnx' else ''})"
        )

    @public
    def op(self, op_type: str, to: str | None = None, *, versions: Any = None) -> OpRule:
        """Registers a 1:1 rule, and returns it to add facts to.

        Args:
            to: ``"TopK"`` of ONNX, or ``"acme::Bucketize"``; None: ONNX's of the same name.
            versions: first and last version of the operator set that it is for, ``(7, None)`` for 7 and later
                ones; of TensorFlow the graph's producer. None: all.

        Raises ``RuleError`` for an unknown target, or where another rule is for the same.
        """
        rule = self._rule(op_type, versions)
        rule.target = _target(rule, op_type if to is None else to)
        registry.add(rule)
        return OpRule(rule)

    @public
    def expand(self, *op_types: str, versions: Any = None, inherit: bool = True) -> Callable[[F], F]:
        """Registers the decorated function as what writes the nodes in place of one of ``op_types``.

        It gets ``g``, which writes nodes of ONNX (``g.Add(a, b)``), and the node ``n``; it returns the
        result, or a tuple of all. What it writes takes attributes of the node that it has under the same
        name and is given no value for, unless ``inherit`` is False.
        """
        found = [self._rule(op_type, versions) for op_type in op_types]
        if not found:
            raise InputError("expand", "no operator", 'names of operators: expand("AddN")')

        def register(function: F) -> F:
            _check_callable(found[0], function)
            for rule in found:
                rule.function, rule.inherit = function, inherit
                registry.add(rule)
            return function

        return register

    def _rule(self, op_type: object, versions: Any) -> Rule:
        place, origin, ours = _here()
        if not isinstance(op_type, str) or not op_type:
            raise RuleError("a rule", f"the operator {bounded_repr(op_type)}", "its name", **_at(place))
        rule = Rule(self.framework, self.domain, op_type, place, origin, ours)
        rule.versions = _versions(rule, versions)
        return rule


class OpRule:
    """A 1:1 rule that facts are added to: each method returns it.

    Facts apply in the order in which they are written; one about inputs counts them as those before it left
    them. Each raises ``RuleError`` for attributes, positions or formats that the target does not have.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def __repr__(self) -> str:
        return f"<{self.rule}>"

    @public
    def auto(self) -> OpRule:
        """Attributes that the target has under the same name keep their values."""
        return self._with(facts.Auto())

    @public
    def rename(self, **ours: str) -> OpRule:
        """``rename(theirs="ours")``: the attribute ``theirs`` of the node is ``ours`` of the target."""
        for name in ours.values():
            self._check_attribute(name)
        return self._with(*(facts.Rename(theirs, name) for theirs, name in ours.items()))

    @public
    def default(self, **values: Any) -> OpRule:
        """Attributes of the target where nothing before gives them a value."""
        self._check_attribute(*values)
        return self._with(*(facts.Default(name, value) for name, value in values.items()))

    @public
    def compute(self, **functions: Callable[[Any], Any]) -> OpRule:
        """Attributes of the target that functions compute of the node; None leaves one out."""
        self._check_attribute(*functions)
        for function in functions.values():
            _check_callable(self.rule, function)
        return self._with(*(facts.Compute(name, function) for name, function in functions.items()))

    @public
    def ignore(self, *names: str) -> OpRule:
        """Attributes of the node that mean nothing to the target, in strict mode too."""
        return self._with(facts.Ignore(names))

    @public
    def input_from_attr(self, name: str, index: int, dtype: Any = None) -> OpRule:
        """The node's attribute ``name`` becomes input ``index``: whole numbers in int64, others float32."""
        return self._with(facts.InputFromAttribute(name, self._position(index), dtype))

    @public
    def attr_from_input(self, index: int, name: str) -> OpRule:
        """Input ``index``, which has to be constant, becomes the target's attribute ``name``."""
        self._check_attribute(name)
        return self._with(facts.AttributeFromInput(self._position(index), name))

    @public
    def drop_input(self, index: int, when: Callable[[Any], bool] | None = None) -> OpRule:
        """The target has no input ``index``; with ``when`` where that is true of the node."""
        if when is not None:
            _check_callable(self.rule, when)
        return self._with(facts.DropInput(self._position(index), when))

    @public
    def add_input(self, index: int, value: Any) -> OpRule:
        """A constant as input ``index``: an array or number, or a function of the node that gives one."""
        return self._with(facts.AddInput(self._position(index), value))

    @public
    def reorder(self, order: Sequence[int]) -> OpRule:
        """The inputs of the target, as positions of the inputs so far: ``reorder([1, 0])``."""
        return self._with(facts.Reorder(tuple(self._position(index) for index in order)))

    @public
    def format(
        self, port: int, origin: str | None = None, *, attr: str | None = None, output: bool = False
    ) -> OpRule:
        """The format that input ``port`` has in the source framework: ``format(1, "HWCN")``.

        ``attr`` names the attribute of the node that says it; ``output``: of an output. Without this fact an
        attribute data_format holds for the target's data.
        """
        if (origin is None) == (attr is None):
            raise self._refuse(
                "format", f"{origin!r}, attr={attr!r}", "a format, or the attribute that says it"
            )
        if origin is not None and origin not in FORMATS:
            raise self._refuse("format", repr(origin), ", ".join(FORMATS), did_you_mean(str(origin), FORMATS))
        target = self._target
        ports = SENSITIVE.get(target.op_type) if not target.domain else None
        known = () if ports is None else ports.outputs if output else ports.inputs
        if not target.domain and self._position(port) not in known and origin != "ND":
            what = "output" if output else "input"
            having = ", ".join(f"{what} {one}" for one in known) or f"no format of any {what}"
            raise self._refuse("format", f"{what} {port} of {target}", having)
        return self._with(facts.Format(("out" if output else "in", port), origin or "", attr or ""))

    @public
    def variadic(self, name: str, *, count: str, output: bool = False, others: int = 0) -> OpRule:
        """Port ``name`` has as many edges as the attribute ``count`` says: inputs, or outputs.

        ``others`` is how many inputs the node has beside those of variadic ports.
        """
        return self._with(facts.Variadic(name, count, output, self._position(others)))

    @property
    def _target(self) -> Target:
        if self.rule.target is None:
            raise self._refuse("a rule", "no target", "a 1:1 rule")
        return self.rule.target

    def _with(self, *more: facts.Fact) -> OpRule:
        self.rule.facts.extend(more)
        return self

    def _position(self, index: object) -> int:
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise self._refuse("a position", bounded_repr(index), "0 or more")
        return index

    def _check_attribute(self, *names: str) -> None:
        known = self._target.attributes_ever
        for name in names:
            if known is not None and name not in known:
                remedy = did_you_mean(str(name), known)
                listed = ", ".join(known) or "none"
                raise self._refuse(f"attributes of {self._target}", repr(name), listed, remedy)

    def _refuse(self, what: str, given: str, accepted: str, remedy: str = "") -> RuleError:
        """Returns the error for a wrong fact; the rule is taken back, since it is not what was meant."""
        registry.withdraw(self.rule)
        return RuleError(f"{self.rule.name}: {what}", given, accepted, remedy, **_at(_here()[0]))


@public
def fusion(name: str, *, general: bool = True, framework: str | None = None) -> Callable[[F], F]:
    """Registers the decorated function as a fusion: nodes that a pattern finds become others.

    The function is called once, with a ``FusionPattern`` that it says the pattern to; it returns the function
    that writes what is in place of a match. See dispatch/YOUR_RULES.md.

    Args:
        general: True: it is on unless ``fusions=["-NAME"]`` switches it off; False: off unless named there.
        framework: whose operators the pattern names; None: those of the graph, whichever it is.

    Raises ``RuleError`` for a pattern with a mistake, and where another fusion has the name.
    """
    if framework not in (None, *FRAMEWORKS):
        raise InputError("fusion", f"framework={framework!r}", ", ".join(FRAMEWORKS))
    if not isinstance(name, str) or not name or name.startswith("-") or "," in name:
        raise InputError(
            "fusion", f"the name {bounded_repr(name)}", "text that begins with no dash and has no comma"
        )

    def register(function: F) -> F:
        place, origin, ours = _here()
        made = Fusion(name, general, place, origin, ours=ours, framework=framework)
        pattern = FusionPattern(made)
        try:
            build = function(pattern)
        except RuleError as error:
            raise RuleError(error.where, error.given, error.accepted, error.remedy, **_at(place)) from error
        except (Exception, SystemExit) as error:  # code of others
            reraise_from_handler(error)
            raise RuleError(
                f"fusion {name}", error_line(error), "a function of the pattern", **_at(place)
            ) from error
        pattern.finish(build)
        registry.add(made)
        return function

    return register


@public
def host(op: str, *, like: int | None = None, infer: Callable[[Any], Any] | None = None) -> Callable[[F], F]:
    """Registers the decorated function as what computes ``op`` (``"acme::Bucketize"``) on the host.

    It gets the node ``n``, and an array for each input, None for one that is left out; it returns the output,
    or a tuple of all. With ``fallback="cpu"`` it runs where no kernel or mapping takes the node.

    Args:
        like: the input whose type and shape the outputs have.
        infer: ``f(n)`` gives type and shape of each output: ``[(np.float32, n.inputs[0].shape)]``. Without
            both they are as the model says.

    Raises ``RuleError`` where another one is for the operator, or its name is of ONNX's own domain.
    """
    check_like(like)
    place, origin, _ = _here()
    target = Target.parsed(op) if isinstance(op, str) and "::" in op else None
    if target is None or not target.domain:
        raise RuleError("host", bounded_repr(op), 'an operator of a domain: "acme::Bucketize"', **_at(place))

    def register(function: F) -> F:
        if not callable(function) or not (infer is None or callable(infer)):
            raise RuleError("host", bounded_repr(function), "a function (n, *arrays)", **_at(place))
        domain, op_type = target.domain, target.op_type
        registrations.add_extra(HostImplementation(domain, op_type, function, place, origin, like, infer))
        return function

    return register


def _target(rule: Rule, to: Any) -> Target:
    try:
        target = Target.parsed(to)
    except (ValueError, AttributeError, TypeError) as error:
        accepted = '"TopK" of ONNX, "acme::TopK" of domain acme'
        raise RuleError(rule.name, f"the target {bounded_repr(to)}", accepted, **_at(rule.place)) from error
    if not target.exists:
        given = f"the target {target}, which ONNX does not have"
        remedy = target.nearest()
        raise RuleError(
            rule.name, given, "an operator of ONNX, or of a domain: acme::Name", remedy, **_at(rule.place)
        )
    return target


def _versions(rule: Rule, given: Any) -> Versions | None:
    if given is None:
        return None
    match given:
        case [int(first), int() | None as last] if first >= 0 and (last is None or last >= first):
            return first, last
    accepted = "(first, last) with first <= last; (7, None) for all from 7 on"
    raise RuleError(rule.name, f"versions={bounded_repr(given)}", accepted, **_at(rule.place))


def _check_callable(rule: Rule, function: object) -> None:
    if not callable(function):
        registry.withdraw(rule)
        raise RuleError(rule.name, bounded_repr(function), "a function of the node", **_at(rule.place))


def _at(place: Place) -> dict[str, Any]:
    return {"file": place.file, "line": place.line}


def _here() -> tuple[Place, str, bool]:
    """Returns where the caller is who writes a rule, its plug-in, and whether that is this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_OWN_MODULES):
        frame = frame.f_back
    file = frame.f_code.co_filename
    ours = str(frame.f_globals.get("__name__", "")).startswith(_OURS)
    origin = str(Path(file).resolve()) if Path(file).exists() else file
    return Place(origin, frame.f_lineno), origin, ours
