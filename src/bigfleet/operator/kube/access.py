"""Where the API server is and who we are to it: a kubeconfig, or the files Kubernetes mounts into a pod.

Tokens in files are read again when they change: Kubernetes renews a service account's token every hour and expects
that. Credentials never appear in an error or a log line.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

import yaml

from bigfleet.refusal import RefusalError
from bigfleet.yaml_text import read_yaml

MOUNTED = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class AccessError(RefusalError):
    """No usable credentials; the sentence names the file and the field."""


class Access:
    """One identity towards one API server."""

    def __init__(self, server: str, trust: ssl.SSLContext, *, token: str = "", token_file: Path | None = None) -> None:
        self.server = server.rstrip("/")
        self.trust = trust
        self.namespace = "default"
        self._token = token
        self._token_file = token_file
        self._read_at: int | None = None

    def headers(self) -> dict[str, str]:
        token = self.token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def token(self) -> str:
        """The token as it is now: one that expires is replaced in its file before it does."""
        if self._token_file is not None:
            try:
                changed = self._token_file.stat().st_mtime_ns
                if changed != self._read_at:
                    self._token, self._read_at = self._token_file.read_text().strip(), changed
            except OSError as error:
                if not self._token:
                    raise AccessError(f"cannot read the token file {self._token_file}: {error.strerror}") from error
        return self._token

    def __repr__(self) -> str:
        return f"Access({self.server})"


def find_access(kubeconfig: str = "", context: str = "") -> Access:
    """The named kubeconfig, else `$KUBECONFIG`, else the mounted service account, else `~/.kube/config`."""
    named = kubeconfig or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    if named:
        return from_kubeconfig(Path(named), context)
    if (MOUNTED / "token").exists():
        return from_service_account()
    home = Path.home() / ".kube" / "config"
    if home.exists():
        return from_kubeconfig(home, context)
    raise AccessError("no cluster to talk to: give --kubeconfig FILE, set KUBECONFIG, or run inside a pod")


def from_service_account(folder: Path = MOUNTED) -> Access:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise AccessError(f"{folder} has a token but KUBERNETES_SERVICE_HOST is not set; give --kubeconfig FILE")
    if ":" in host:
        host = f"[{host}]"
    made = Access(f"https://{host}:{port}", _trust(str(folder / "ca.crt")), token_file=folder / "token")
    if (folder / "namespace").exists():
        made.namespace = (folder / "namespace").read_text().strip()
    return made


def from_kubeconfig(path: Path, context: str = "") -> Access:
    try:
        document: dict[str, Any] = read_yaml(path.read_text()) or {}
    except OSError as error:
        raise AccessError(f"kubeconfig {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise AccessError(f"kubeconfig {path} is not YAML: {str(error).splitlines()[0]}") from error
    wanted = context or document.get("current-context", "")
    chosen = _entry(document, "contexts", "context", wanted, path)
    cluster = _entry(document, "clusters", "cluster", chosen.get("cluster", ""), path)
    user = _entry(document, "users", "user", chosen.get("user", ""), path) if chosen.get("user") else {}
    if "exec" in user or "auth-provider" in user:
        raise AccessError(
            f"kubeconfig {path}: user {chosen['user']!r} logs in through a program; a token, a token file or a client "
            "certificate is accepted"
        )
    server = cluster.get("server", "")
    if not server:
        raise AccessError(f"kubeconfig {path}: cluster {chosen.get('cluster')!r} has no server")
    trust = _trust(
        _path(cluster.get("certificate-authority", ""), path),
        _decoded(cluster, "certificate-authority-data"),
        verify=not cluster.get("insecure-skip-tls-verify", False),
    )
    _present(trust, user, path)
    token_file = user.get("tokenFile", "")
    made = Access(
        server, trust, token=user.get("token", ""), token_file=Path(_path(token_file, path)) if token_file else None
    )
    made.namespace = chosen.get("namespace") or "default"
    return made


def _entry(document: dict[str, Any], kind: str, field: str, name: str, path: Path) -> dict[str, Any]:
    for entry in document.get(kind) or ():
        if entry.get("name") == name:
            found: dict[str, Any] = entry.get(field) or {}
            return found
    raise AccessError(f"kubeconfig {path}: {kind} has no entry {name!r}")


def _path(name: str, kubeconfig: Path) -> str:
    """Relative names are relative to the kubeconfig, as kubectl reads them."""
    return str(kubeconfig.parent / name) if name else ""


def _decoded(entry: dict[str, Any], field: str) -> str:
    return base64.b64decode(entry[field]).decode() if entry.get(field) else ""


def _trust(ca_file: str = "", ca_data: str = "", *, verify: bool = True) -> ssl.SSLContext:
    try:
        made = ssl.create_default_context(cafile=ca_file or None, cadata=ca_data or None)
    except (OSError, ssl.SSLError) as error:
        raise AccessError(f"certificate authority {ca_file or 'data'} cannot be read: {error}") from error
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


def _present(trust: ssl.SSLContext, user: dict[str, Any], path: Path) -> None:
    """A client certificate; Python reads it from files only."""
    certificate = _path(user.get("client-certificate", ""), path)
    key = _path(user.get("client-key", ""), path)
    if certificate and key:
        trust.load_cert_chain(certificate, key)
    elif user.get("client-certificate-data"):
        with tempfile.TemporaryDirectory() as folder:
            for name, field in (("crt", "client-certificate-data"), ("key", "client-key-data")):
                (Path(folder) / name).write_text(_decoded(user, field))
                (Path(folder) / name).chmod(0o600)
            trust.load_cert_chain(Path(folder) / "crt", Path(folder) / "key")
