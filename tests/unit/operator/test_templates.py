"""Bootstrap templates: Go's language as charts use it, Jinja2 by suffix, and nothing that escapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bigfleet.model.requirement import Operator, Requirement
from bigfleet.operator.core.frames import BootstrapRequest
from bigfleet.operator.shell.templates import Renderer, TemplateError

REQUEST = BootstrapRequest(
    "r-1",
    machine="simnode/OnDemand/a/0",
    node_name="n-1",
    requirements=(Requirement("zone", Operator.IN, ("a", "b")), Requirement("gpu", Operator.EXISTS)),
    labels=(("bigfleet.lucy.sh/machine-id", "simnode/OnDemand/a/0"), ("tier", "web")),
)


def rendered(tmp_path: Path, text: str, name: str = "b.tmpl", secrets: Path | None = None) -> str:
    (tmp_path / name).write_text(text)
    answer = Renderer("prod-1", tmp_path / name, secrets).render(REQUEST)
    return answer.error or answer.user_data.decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ .ClusterID }} {{.NodeName}}", "prod-1 n-1"),
        ("{{ range .Requirements }}{{ .Key }} {{ .Operator }} {{ .Values }};{{ end }}", "zone In [a b];gpu Exists [];"),
        ("{{ range .Requirements -}}\n {{ .Key }}\n{{- end }}", "zonegpu"),
        ('{{ if eq .ClusterID "prod-1" }}yes{{ else }}no{{ end }}', "yes"),
        ("{{ if not .Requirements }}none{{ else if gt (len .Requirements) 1 }}many{{ end }}", "many"),
        ('{{ range $key, $value := .Labels }}{{ if eq $key "tier" }}{{ $value | quote }}{{ end }}{{ end }}', '"web"'),
        ("{{/* a note */}}x", "x"),
        ('{{ index .Labels "tier" }}', "web"),
        ("{{ with .NodeName }}<{{ . }}>{{ end }}", "<n-1>"),
        ("{% raw %} {# kept #}", "{% raw %} {# kept #}"),
    ],
)
def test_go_templates_mean_what_go_means(tmp_path: Path, text: str, expected: str) -> None:
    assert rendered(tmp_path, text) == expected


def test_a_file_that_ends_in_j2_is_jinja(tmp_path: Path) -> None:
    assert (
        rendered(tmp_path, "{{ ClusterID }}{% for r in Requirements %} {{ r.Key }}{% endfor %}", "b.j2")
        == "prod-1 zone gpu"
    )


def test_the_machine_id_label_of_a_node_is_one_that_kubernetes_accepts(tmp_path: Path) -> None:
    label = rendered(tmp_path, '{{ index .Labels "bigfleet.lucy.sh/machine-id" }}')
    assert "/" not in label and len(label) <= 63 and label.startswith("simnode-OnDemand")


def test_secrets_come_from_files_and_are_read_when_they_are_used(tmp_path: Path) -> None:
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "join-token").write_text("abc\n")
    assert rendered(tmp_path, "{{ .Secrets.join_token }}", secrets=folder) == "abc"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\n{{ .Nope }}", "line 2"),
        ("{{ if .ClusterID }}", "no {{ end }}"),
        ("{{ end }}", "without"),
        ("\n\n{{ shout .ClusterID }}", "line 3: function shout is not known"),
        ('{{ template "x" }}', "not supported"),
    ],
)
def test_a_mistake_ends_the_start_and_names_the_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(TemplateError, match=told.replace("{", r"\{").replace("}", r"\}")):
        rendered(tmp_path, text)


@pytest.mark.parametrize("text", ["{{ ''.__class__.__mro__ }}", "{{ ClusterID.__init__.__globals__ }}"])
def test_templates_reach_nothing_but_the_facts(tmp_path: Path, text: str) -> None:
    assert "bootstrap template" in rendered(tmp_path, text, "b.j2")


def test_an_error_while_rendering_is_an_answer_that_shows_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "token").write_text("s3cr3t")
    told = rendered(tmp_path, "{{ .Secrets.absent }}", secrets=folder)
    assert "bootstrap template" in told and "s3cr3t" not in told


def test_without_a_template_the_user_data_names_the_cluster() -> None:
    assert b"prod-1" in Renderer("prod-1").render(REQUEST).user_data
