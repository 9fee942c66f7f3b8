"""User data of a node, from a template the cluster's owner wrote: Go's template language as far as charts use it, or
Jinja2 where the file ends in `.j2`.

A Go template is translated to Jinja2 once, when it is read; both run in a sandbox that can reach nothing but the node's
facts and the mounted secrets. Errors name the line of the owner's file and never show a secret.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bigfleet.model.names import MACHINE_ID_LABEL, machine_label
from bigfleet.operator.core.frames import BootstrapAnswer, BootstrapRequest
from bigfleet.refusal import RefusalError

STUB_TTL_SECONDS = 600
MOST_BYTES = 256 * 1024
_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.S)
_PATH = re.compile(r"\.[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|\.(?![\w.])|\$\w*(?:\.[A-Za-z_]\w*)*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')
_FIELDS = ("ClusterID", "MachineID", "NodeName", "Requirements", "Labels", "Secrets")


class TemplateError(RefusalError):
    """The template cannot be used; the sentence names the file and the line."""


class Renderer:
    """Makes user data; without a file a comment that names the cluster."""

    def __init__(self, cluster: str, file: Path | None = None, secrets: Path | None = None) -> None:
        self._cluster = cluster
        self._secrets = secrets
        self._file = file
        self._template = None if file is None else _compiled(file)

    def render(self, request: BootstrapRequest) -> BootstrapAnswer:
        if self._template is None:
            text = f"#cloud-config\n# bigfleet: join cluster {self._cluster}\n"
            return BootstrapAnswer(request.request_id, text.encode(), STUB_TTL_SECONDS)
        try:
            rendered = self._template.render(**self._facts(request)).encode()
        except Exception as error:
            # Whatever an owner's template does wrong is an answer, not an end.
            return BootstrapAnswer(request.request_id, error=f"bootstrap template {self._file}: {_told(error)}")
        if len(rendered) > MOST_BYTES:
            problem = f"bootstrap template {self._file} makes {len(rendered)} bytes; at most {MOST_BYTES} are accepted"
            return BootstrapAnswer(request.request_id, error=problem)
        return BootstrapAnswer(request.request_id, rendered)

    def _facts(self, request: BootstrapRequest) -> dict[str, Any]:
        requirements = [
            {"Key": each.key, "Operator": each.operator.text, "Values": _Values(each.values)}
            for each in request.requirements
        ]
        return {
            "ClusterID": self._cluster,
            "MachineID": request.machine,
            "NodeName": request.node_name,
            "Requirements": requirements,
            "Labels": _labels(request),
            "Secrets": {} if self._secrets is None else read_secrets(self._secrets),
        }


def _labels(request: BootstrapRequest) -> dict[str, str]:
    """As the node must register with; an id that no label can hold is stood for by a name made of it."""
    found = dict(request.labels)
    if MACHINE_ID_LABEL in found:
        found[MACHINE_ID_LABEL] = machine_label(found[MACHINE_ID_LABEL])
    return found


class _Values(list[str]):
    """Prints as Go prints a list."""

    def __str__(self) -> str:
        return f"[{' '.join(self)}]"


def read_secrets(folder: Path) -> dict[str, str]:
    """A mounted Secret: every file is a key. Read at each use, because Kubernetes replaces the files."""
    try:
        names = [each for each in sorted(folder.iterdir()) if not each.name.startswith(".") and each.is_file()]
        return {each.name.replace("-", "_").replace(".", "_"): each.read_text().rstrip("\n") for each in names}
    except OSError as error:
        raise TemplateError(f"secrets in {folder} cannot be read: {error.strerror}") from error


def _compiled(file: Path) -> Any:
    from jinja2 import StrictUndefined, TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    try:
        text = file.read_text()
    except OSError as error:
        raise TemplateError(f"bootstrap template {file}: {error.strerror}") from error
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    environment.filters["quote"] = lambda value: '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    environment.filters["b64enc"] = _b64enc
    environment.filters["tojson_"] = _json
    try:
        return environment.from_string(text if file.suffix == ".j2" else from_go(text, str(file)))
    except TemplateSyntaxError as error:
        raise TemplateError(f"bootstrap template {file} line {error.lineno}: {error.message}") from error


def from_go(text: str, name: str = "template") -> str:
    """Jinja2 that renders what Go's text/template would, for fields, range, if, with, comments and pipelines."""
    out: list[str] = []
    opened: list[tuple[str, str]] = []
    scopes: list[str] = [""]
    end = 0
    for found in _ACTION.finditer(text):
        out.append(_literal(text[end : found.start()]))
        end = found.end()
        line = text.count("\n", 0, found.start()) + 1
        try:
            out.append(_action(found, opened, scopes))
        except ValueError as error:
            raise TemplateError(f"bootstrap template {name} line {line}: {error}") from None
    if opened:
        raise TemplateError(f"bootstrap template {name}: {{{{ {opened[-1][0]} }}}} has no {{{{ end }}}}")
    out.append(_literal(text[end:]))
    return "".join(out)


def _literal(text: str) -> str:
    # What Jinja2 would read as its own and Go would not.
    return text.replace("{%", "{{ '{%' }}").replace("{#", "{{ '{#' }}")


def _action(found: re.Match[str], opened: list[tuple[str, str]], scopes: list[str]) -> str:
    left, body, right = found.groups()
    word, _, rest = body.partition(" ")
    scope = scopes[-1]

    def tag(inside: str) -> str:
        return f"{{%{left} {inside} {right}%}}"

    if body.startswith("/*"):
        return f"{{#{left} {right}#}}"
    if word == "if":
        opened.append(("if", ""))
        scopes.append(scope)
        return tag(f"if {_expression(rest, scope)}")
    if word == "else":
        if not opened:
            raise ValueError("{{ else }} without {{ if }}")
        return tag(f"elif {_expression(rest.removeprefix('if').strip(), scope)}" if rest.startswith("if ") else "else")
    if word == "range":
        return tag(_range(rest, opened, scopes, scope))
    if word == "with":
        variable = f"with_{len(scopes)}"
        opened.append(("with", "endif"))
        scopes.append(variable)
        expression = _expression(rest, scope)
        return f"{{%{left} set {variable} = {expression} %}}{{% if {variable} {right}%}}"
    if word == "end":
        if not opened:
            raise ValueError("{{ end }} without {{ if }}, {{ range }} or {{ with }}")
        kind, closing = opened.pop()
        scopes.pop()
        return tag(closing or {"if": "endif", "range": "endfor"}[kind])
    if word in ("template", "define", "block"):
        raise ValueError(f"{{{{ {word} }}}} is not supported; fields, if, range, with and pipelines are")
    if ":=" in body:
        variable, _, value = body.partition(":=")
        return tag(f"set {variable.strip().removeprefix('$')} = {_expression(value.strip(), scope)}")
    return f"{{{{{left} {_expression(body, scope)} {right}}}}}"


def _range(rest: str, opened: list[tuple[str, str]], scopes: list[str], scope: str) -> str:
    names, separator, source = rest.partition(":=")
    opened.append(("range", ""))
    if not separator:
        variable = f"item_{len(scopes)}"
        scopes.append(variable)
        return f"for {variable} in {_expression(rest, scope)}"
    variables = [each.strip().removeprefix("$") for each in names.split(",")]
    scopes.append(variables[-1])
    expression = _expression(source.strip(), scope)
    if len(variables) == 1:
        return f"for {variables[0]} in {expression}"
    return f"for {variables[0]}, {variables[1]} in ({expression}).items()"


_FUNCTIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or"}


def _expression(text: str, scope: str) -> str:
    """A pipeline: each part is a value, or a function whose last argument is what came before."""
    value = ""
    for part in _split(text, "|"):
        words = _split(part, " ")
        if not words:
            raise ValueError("an empty expression")
        head, arguments = words[0], [_value(each, scope) for each in words[1:]]
        if value:
            arguments.append(f"({value})")
        if head in _FUNCTIONS:
            if len(arguments) < 2:
                raise ValueError(f"{head} needs two values")
            value = (
                f" {_FUNCTIONS[head]} ".join(arguments)
                if head in ("and", "or")
                else f"{arguments[0]} {_FUNCTIONS[head]} {arguments[1]}"
            )
            value = f"({value})"
        elif head == "not":
            value = f"(not {arguments[0]})"
        elif head == "len":
            value = f"({arguments[0]} | length)"
        elif head == "index":
            value = f"{arguments[0]}[{arguments[1]}]"
        elif head in ("quote", "b64enc"):
            value = f"({arguments[0]} | {head})"
        elif head == "toJson":
            value = f"({arguments[0]} | tojson_)"
        elif head == "printf":
            value = f"({arguments[0]} | replace('%v', '%s') | format({', '.join(arguments[1:])}))"
        elif len(words) == 1 and not value:
            value = _value(head, scope)
        else:
            raise ValueError(
                f"function {head} is not known; eq, ne, and, or, not, len, index, printf, quote, toJson, b64enc are"
            )
    return value


def _value(word: str, scope: str) -> str:
    if _STRING.fullmatch(word):
        return "'" + word[1:-1].replace("'", "\\'") + "'" if word.startswith("`") else word
    if re.fullmatch(r"-?\d+(\.\d+)?", word) or word in ("true", "false"):
        return word
    if word.startswith("(") and word.endswith(")"):
        return f"({_expression(word[1:-1], scope)})"
    if not _PATH.fullmatch(word):
        raise ValueError(f"{word!r} is not a field such as .ClusterID, a text or a number")
    if word == ".":
        if not scope:
            raise ValueError("'.' alone stands for all facts; name one of " + ", ".join(f".{each}" for each in _FIELDS))
        return scope
    if word.startswith("$"):
        variable, _, rest = word[1:].partition(".")
        return ".".join(each for each in (variable, rest) if each)
    if scope:
        return f"{scope}{word}"
    if word[1:].partition(".")[0] not in _FIELDS:
        raise ValueError(f"{word} is not a fact of a node; " + ", ".join(f".{each}" for each in _FIELDS) + " are")
    return word[1:]


def _split(text: str, by: str) -> list[str]:
    """Words outside of quotes and brackets."""
    found, depth, quote, word = [], 0, "", ""
    for letter in text.strip():
        if quote:
            quote = "" if letter == quote else quote
        elif letter in '"`':
            quote = letter
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        elif letter == by and not depth:
            if word.strip():
                found.append(word.strip())
            word = ""
            continue
        word += letter
    if word.strip():
        found.append(word.strip())
    return found


def _b64enc(value: object) -> str:
    import base64

    return base64.b64encode(str(value).encode()).decode()


def _json(value: object) -> str:
    import json

    return json.dumps(value, sort_keys=True)


def _told(error: Exception) -> str:
    """What went wrong and where, without values: those may be secrets."""
    line = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = f"line {trace.tb_lineno}: "
        trace = trace.tb_next
    return f"{line}{type(error).__name__}: {str(error)[:200]}"
