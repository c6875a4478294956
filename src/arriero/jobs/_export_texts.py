"""The texts of exported files, quoted as their readers want it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from arriero.serve.settings import Listen


def unit(
    *, model: str, argv: Sequence[str], environ: Mapping[str, str], cwd: str, stop_s: float
) -> str:
    """A unit of systemd."""
    variables = "".join(
        f"Environment={_unit_word(f'{name}={value}', variables=False)}\n"
        for name, value in environ.items()
    )
    shared = any(word.startswith(("/tmp/", "/var/tmp/")) for word in (*argv, cwd))  # noqa: S108
    private = "" if shared else "PrivateTmp=yes\n"
    return f"""\
[Unit]
Description=llama-server that stays up: {_percent(model)}
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
WorkingDirectory={_percent(cwd)}
{variables}ExecStart={" ".join(map(_unit_word, argv))}
ExecReload=/bin/kill -HUP $MAINPID
# SIGTERM goes to Arriero alone: it lets requests finish and ends the engine itself.
KillMode=mixed
TimeoutStopSec={stop_s:g}
# Arriero starts the engine again by itself. 1: does not fit, or given up; 2, 3: wrong settings.
Restart=on-failure
RestartPreventExitStatus=1 2 3
RestartSec=2
# When the kernel kills the engine for lack of memory, Arriero goes on.
OOMPolicy=continue
NoNewPrivileges=yes
{private}UMask=0077

[Install]
WantedBy=multi-user.target
"""


def compose(
    *,
    argv: Sequence[str],
    environ: Mapping[str, str],
    mounts: Mapping[str, str],
    published: str,
    port: int,
    prefix: str,
    stop_s: float,
) -> str:
    """A compose file with an image that it builds itself."""
    words = "\n".join(f"      - {_dollars(_quoted(word))}" for word in argv)
    lines = [
        "services:",
        "  llama:",
        "    build:",
        "      dockerfile_inline: |",
        "        FROM python:3.12-slim",
        "        RUN pip install --no-cache-dir 'arriero[engine,fast]'",
        '        ENTRYPOINT ["arriero"]',
        "    command:",
        words,
    ]
    if environ:
        lines.append("    environment:")
        lines += [f"      {name}: {_dollars(_quoted(v))}" for name, v in environ.items()]
    if mounts:
        lines.append("    volumes:")
        for source, target in mounts.items():
            lines += [
                "      - type: bind",
                f"        source: {_dollars(_quoted(source))}",
                f"        target: {target}",
                "        read_only: true",
            ]
    check = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{port}{prefix}/health')"
    lines += [
        "    ports:",
        f"      - {_quoted(published)}",
        "    init: true",
        "    restart: on-failure:5",
        f"    stop_grace_period: {stop_s:g}s",
        "    healthcheck:",
        f'      test: ["CMD", "python", "-c", {_dollars(_quoted(check))}]',
        "      interval: 10s",
        "      start_period: 10m",
    ]
    return "\n".join(lines) + "\n"


def swap(
    *, model: str, argv: Sequence[str], environ: Mapping[str, str], prefix: str, limit: int
) -> str:
    """One model of llama-swap."""
    words = " ".join("127.0.0.1:${PORT}" if "${PORT}" in w else shlex.quote(w) for w in argv)
    lines = [
        "healthCheckTimeout: 3600",
        "models:",
        f"  {_quoted(model)}:",
        "    cmd: |",
        f"      {words}",
        "    proxy: http://127.0.0.1:${PORT}",
        f"    checkEndpoint: {_quoted(f'{prefix}/health')}",
        f"    concurrencyLimit: {limit}",
    ]
    if environ:
        lines.append("    env:")
        lines += [f"      - {_quoted(f'{name}={value}')}" for name, value in environ.items()]
    return "\n".join(lines) + "\n"


def caddy(*, host: str, listen: Listen, tls: bool) -> str:
    """A site of Caddy before the server."""
    place = f"unix/{listen.socket}" if listen.socket is not None else _local(listen)
    transport = ["\t\ttransport http {", "\t\t\ttls_insecure_skip_verify", "\t\t}"] if tls else []
    lines = [
        f"{host} {{",
        f"\treverse_proxy {place} {{",
        "\t\t# events of a stream go on as they come",
        "\t\tflush_interval -1",
        "\t\t# a restart of Arriero itself makes requests wait, not fail",
        "\t\tlb_try_duration 60s",
        "\t\tlb_try_interval 250ms",
        *transport,
        "\t}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _local(listen: Listen) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(listen.host, listen.host)  # noqa: S104 - compared
    return str(Listen(host, listen.port))


def _unit_word(word: str, variables: bool = True) -> str:
    """A word as systemd reads it: ``%`` and, in a command, ``$`` stand for themselves twice."""
    text = _percent(word).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    text = text.replace("$", "$$") if variables else text
    plain = text and not any(char.isspace() or char in "\"'\\;" for char in text)
    return text if plain else f'"{text}"'


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def _dollars(text: str) -> str:
    """Compose fills in ``$NAME`` everywhere."""
    return text.replace("$", "$$")


def _quoted(text: str) -> str:
    """A string of YAML in double quotes."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text) + '"'
