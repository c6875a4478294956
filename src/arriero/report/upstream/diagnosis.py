"""A diagnosis in the fields of llama.cpp's bug report form ("Bug (model use)").

The labels and the choices of the form are those of ``.github/ISSUE_TEMPLATE/011-bug-results.yml``
in ggml-org/llama.cpp. The headings are how GitHub renders a filled form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from arriero.base.sizes import KIB
from arriero.base.words import LimitKind
from arriero.record import Baseline, Diagnosis
from arriero.report.markdown.parts import boundaries, bullets, trials
from arriero.report.markdown.syntax import fence, prose, shell
from arriero.report.view import words as say
from arriero.report.view.diagnosis import DiagnosisView, diagnosis_view
from arriero.report.view.text import command, printable
from arriero.report.view.trials import by_number

_BACKENDS: Final = (
    *("AMX", "BLAS", "CPU", "CUDA", "HIP", "Metal", "Musa", "RPC", "SYCL", "Vulkan", "OpenCL"),
    "zDNN",
)
_SPELLINGS: Final = {"ROCM": "HIP", "MTL": "Metal"}
_SYSTEMS: Final = {"linux": "Linux", "darwin": "Mac", "macos": "Mac", "windows": "Windows"}


def issue(doc: Diagnosis) -> str:
    """The title, then each field of the form under its label."""
    facts = diagnosis_view(doc)
    fields = {
        "Name and Version": _version(doc.baseline),
        "Operating systems": _system(doc.baseline.system),
        "GGML backends": ", ".join(_backends(doc)) or "_No response_",
        "Hardware": "\n".join(_hardware(doc.baseline)),
        "Models": _model(doc.baseline),
        "Problem description & steps to reproduce": "\n\n".join(_problem(facts)),
        "First Bad Commit": "Not known: other builds were not tried.",
        "Relevant log output": _logs(facts),
    }
    model = doc.baseline.model
    arch = f"{printable(model.arch)}: " if model and model.arch else ""
    title = f"Eval bug: {arch}{facts.verdict.sentence}"
    body = "\n\n".join(f"### {label}\n\n{text}" for label, text in fields.items())
    return f"{prose(title)}\n\n{body}\n"


def _version(baseline: Baseline) -> str:
    lines = [printable(baseline.engine.version)] if baseline.engine.version else []
    commit = f" ({printable(baseline.engine.commit)})" if baseline.engine.commit else ""
    lines.append(f"llama.cpp {say.engine(baseline.engine)}{commit}")
    return fence(lines)


def _system(text: str) -> str:
    lowered = text.lower()
    known = next((name for key, name in _SYSTEMS.items() if lowered.startswith(key)), None)
    return known or ("BSD" if "bsd" in lowered else "Other? (Please let us know in description)")


def _backends(doc: Diagnosis) -> list[str]:
    """The backends of the form that took part: that of the failing device, else all in use."""
    used = [device.name for device in doc.baseline.devices] or list(doc.baseline.engine.backends)
    if doc.verdict and doc.verdict.device:
        used = [doc.verdict.device]
    found = {_backend(name) for name in used}
    return [name for name in _BACKENDS if name in found]


def _backend(device: str) -> str | None:
    upper = device.upper()
    for spelling, name in (*_SPELLINGS.items(), *((name.upper(), name) for name in _BACKENDS)):
        if upper.startswith(spelling):
            return name
    return None


def _hardware(baseline: Baseline) -> Iterable[str]:
    yield prose(printable(baseline.system))
    for device in baseline.devices:
        total = "size unknown" if device.total is None else say.size(device.total)
        yield f"- {prose(printable(f'{device.name}: {device.description}, {total}'))}"
    if baseline.limit:
        yield f"- {prose(say.limit(baseline.limit))}, set for the test"


def _model(baseline: Baseline) -> str:
    model = baseline.model
    if model is None:
        return "_No response_"
    parts = [
        # The name may be private, and the architecture tells more.
        f"architecture {model.arch or 'unknown'}",
        f"{model.memory_class} memory",
        *([say.count(model.n_layer, "layer")] if model.n_layer is not None else []),
        *([f"{model.n_recurrent_layer} recurrent"] if model.n_recurrent_layer else []),
        *([say.size(model.file_bytes)] if model.file_bytes is not None else []),
    ]
    return prose(printable(", ".join(parts)))


def _problem(facts: DiagnosisView) -> Iterable[str]:
    doc = facts.doc
    verdict = facts.verdict
    yield f"{prose(say.capital(verdict.sentence))}. {prose(verdict.sizes)}".rstrip()
    if verdict.details:
        yield prose(" ".join(verdict.details))
    yield "Command:"
    yield fence(_limited(doc.baseline), "sh")
    if facts.recommended and facts.recommended.verified:
        yield "This command works on the same machine:"
        yield shell(facts.recommended.argv, facts.recommended.env)
        yield from bullets("", facts.recommended.facts[:1])
    yield from (part.replace("### ", "#### ", 1) for part in trials(facts.table))
    yield from (part.replace("### ", "#### ", 1) for part in boundaries(facts))
    yield from bullets("", (*facts.caveats, say.LEFT_OUT))


def _limited(baseline: Baseline) -> list[str]:
    """The command as given, under the limit that was set, in plain shell."""
    shown = command(baseline.argv, baseline.visibility, width=100)
    limit = baseline.limit
    if limit is None:
        return shown
    if limit.kind is LimitKind.ADDRESS_SPACE:
        return [f"( ulimit -v {limit.bytes // KIB}  # KiB of address space", *shown, ")"]
    first, *more = shown
    return [f"systemd-run --user --scope -p MemoryMax={limit.bytes} \\", f"  {first}", *more]


def _logs(facts: DiagnosisView) -> str:
    doc = facts.doc
    trial = by_number(doc, doc.verdict.trial) if doc.verdict else None
    lines = [doc.verdict.failure.text] if doc.verdict and doc.verdict.failure.text else []
    lines += [line for line in (trial.log_tail if trial else ()) if line not in lines]
    shown = fence(map(printable, lines), "shell") if lines else "No log was kept."
    return f"<details>\n<summary>Logs</summary>\n\n{shown}\n\n</details>"
