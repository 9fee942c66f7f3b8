"""The CRD manifests: names, scopes, columns, and what their schemas admit without a cluster's help."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from bigfleet.crd import AvailableCapacity, CapacityRequest, UpcomingNode

ROOT = Path(__file__).resolve().parents[3]
CASES: list[dict[str, Any]] = json.loads((ROOT / "tests" / "data" / "crd_cases.json").read_text())
KINDS = {
    "CapacityRequest": ("capacityrequests", "Namespaced", ["cr", "crs"]),
    "AvailableCapacity": ("availablecapacities", "Cluster", ["avc"]),
    "UpcomingNode": ("upcomingnodes", "Cluster", ["upn"]),
}
COLUMNS = {
    "CapacityRequest": [
        ("Phase", "string", ".status.phase"),
        ("Priority", "integer", ".spec.priority"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ],
    "AvailableCapacity": [
        ("Availability", "string", ".spec.availability"),
        ("Available", "integer", ".spec.availableCount"),
        ("Cost", "string", ".spec.cost"),
    ],
    "UpcomingNode": [
        ("Phase", "string", ".status.phase"),
        ("Node", "string", ".status.nodeRef.name"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ],
}
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


def manifest(kind: str) -> dict[str, Any]:
    path = ROOT / "deploy" / "crds" / f"bigfleet.lucy.sh_{KINDS[kind][0]}.yaml"
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


def version(kind: str) -> dict[str, Any]:
    (only,) = manifest(kind)["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def schema(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = version(kind)["schema"]["openAPIV3Schema"]
    return found


def paths(node: dict[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    """Every sub-schema by its dotted path; `[]` stands for items and `{}` for map values."""
    found = {path: node}
    for name, child in node.get("properties", {}).items():
        found |= paths(child, f"{path}.{name}")
    if "items" in node:
        found |= paths(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        found |= paths(node["additionalProperties"], f"{path}{{}}")
    return found


def test_no_other_manifest_is_shipped() -> None:
    shipped = {path.name for path in (ROOT / "deploy" / "crds").glob("*.yaml")}
    assert shipped == {f"bigfleet.lucy.sh_{plural}.yaml" for plural, _, _ in KINDS.values()}


@pytest.mark.parametrize("kind", KINDS)
def test_names_scope_and_version(kind: str) -> None:
    plural, scope, short_names = KINDS[kind]
    definition = manifest(kind)
    assert definition["apiVersion"] == "apiextensions.k8s.io/v1"
    assert definition["metadata"]["name"] == f"{plural}.bigfleet.lucy.sh"
    assert definition["spec"]["group"] == "bigfleet.lucy.sh"
    assert definition["spec"]["scope"] == scope
    assert definition["spec"]["names"] == {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": short_names,
        "categories": ["fleet"],
    }
    assert "conversion" not in definition["spec"]
    only = version(kind)
    assert (only["name"], only["served"], only["storage"]) == ("v1alpha1", True, True)
    assert only["subresources"] == {"status": {}}


@pytest.mark.parametrize("kind", KINDS)
def test_printer_columns(kind: str) -> None:
    columns = [(c["name"], c["type"], c["jsonPath"]) for c in version(kind)["additionalPrinterColumns"]]
    assert columns == COLUMNS[kind]


def test_requests_alone_are_selectable_by_phase() -> None:
    assert version("CapacityRequest")["selectableFields"] == [{"jsonPath": ".status.phase"}]
    assert "selectableFields" not in version("AvailableCapacity")
    assert "selectableFields" not in version("UpcomingNode")


def test_required_fields() -> None:
    required = {
        kind: {path: set(node["required"]) for path, node in paths(schema(kind)).items() if "required" in node}
        for kind in KINDS
    }
    assert required["CapacityRequest"] == {
        "": {"spec"},
        ".spec": {"resources", "priority"},
        ".spec.requirements[]": {"key", "operator"},
        ".spec.topologySpread[]": {"maxSkew", "topologyKey", "whenUnsatisfiable"},
        ".spec.coLocation": {"topologyKey"},
        ".spec.coLocation.labelSelector.matchExpressions[]": {"key", "operator"},
        ".status": {"phase"},
        ".status.conditions[]": {"type", "status", "lastTransitionTime", "reason", "message"},
    }
    assert required["AvailableCapacity"] == {
        "": {"spec"},
        ".spec": {"resources", "availableCount", "availability", "cost"},
        ".spec.requirements[]": {"key", "operator"},
    }
    assert required["UpcomingNode"] == {
        "": {"spec"},
        ".spec": {"resources"},
        ".spec.taints[]": {"key", "effect"},
        ".status": {"phase"},
        ".status.conditions[]": {"type", "status", "lastTransitionTime", "reason", "message"},
    }


@pytest.mark.parametrize("kind", KINDS)
def test_quantities_have_the_kubernetes_form_and_a_sign_rule(kind: str) -> None:
    quantities = {path: node for path, node in paths(schema(kind)).items() if "x-kubernetes-int-or-string" in node}
    assert quantities
    for path, node in quantities.items():
        assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
        assert node["pattern"] == QUANTITY_PATTERN, path
        (rule,) = node["x-kubernetes-validations"]
        assert "isQuantity(self)" in rule["rule"], path
        assert "not negative" in rule["message"], path


@pytest.mark.parametrize("kind", KINDS)
def test_every_rule_has_a_message_and_no_field_a_default_but_a_new_requests_phase(kind: str) -> None:
    # Who writes a request cannot write its status; without this nobody could select those that are Pending.
    defaults = {(kind, path): node["default"] for path, node in paths(schema(kind)).items() if "default" in node}
    assert defaults == ({(kind, ".status"): {"phase": "Pending"}} if kind == "CapacityRequest" else {})
    for path, node in paths(schema(kind)).items():
        for rule in node.get("x-kubernetes-validations", []):
            assert rule["message"], path


def test_lists_and_maps_keep_their_merge_behaviour() -> None:
    request, node = paths(schema("CapacityRequest")), paths(schema("UpcomingNode"))
    selector = ".spec.coLocation.labelSelector"
    for path in (
        ".spec.requirements[].values",
        f"{selector}.matchExpressions",
        f"{selector}.matchExpressions[].values",
    ):
        assert request[path]["x-kubernetes-list-type"] == "atomic", path
    assert request[selector]["x-kubernetes-map-type"] == "atomic"
    assert request[".status.conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert node[".status.nodeRef"]["x-kubernetes-map-type"] == "atomic"


@pytest.mark.parametrize("field", ["interruptionPenalty", "reclamationPenalty"])
def test_bucket_boundaries_are_documented_on_the_field(field: str) -> None:
    text = paths(schema("CapacityRequest"))[f".spec.{field}"]["description"]
    numbers = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)}
    assert numbers >= {0.0, 0.5, *(float(2**exponent) for exponent in range(24))}
    assert max(numbers) == 8388608


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_schema_verdicts(case: dict[str, Any]) -> None:
    """Rules are CEL and need a server (tools/crdcheck); everything else is plain JSON schema."""
    validator = jsonschema.Draft7Validator(schema(case["object"]["kind"]))
    complaints = [error.message for error in validator.iter_errors(case["object"])]
    assert bool(complaints) == (case["refusedBy"] == "schema"), complaints


def test_structs_know_their_resource() -> None:
    for struct in (CapacityRequest, AvailableCapacity, UpcomingNode):
        plural, scope, _ = KINDS[struct.__name__]
        assert (plural, scope == "Namespaced") == (struct.PLURAL, struct.NAMESPACED)
