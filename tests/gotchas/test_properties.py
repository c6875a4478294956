"""Rules meet whatever people type: they find something or nothing, and never break."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.base.errors import ArrieroError
from arriero.command import builtin_flags
from arriero.gotchas import match, registry, repaired
from tests.gotchas.given import Models, facts

NAMES = [name for f in builtin_flags().flags for name in (*f.names, *f.negatives)]
TOLD = ("-np", "-c", "-b", "-ub", "-ngl", "-ctv", "-fa", "--rpc", "-cram", "-ctxcp", "--spec-type")
VALUES = st.one_of(
    st.integers(-(10**12), 10**12).map(str),
    st.sampled_from(["on", "off", "auto", "q8_0", "draft-mtp", "none", "CUDA0", "0,1", "", "-1"]),
    st.text(max_size=8),
)
WORD = st.one_of(st.sampled_from(TOLD), st.sampled_from(NAMES), VALUES)
ENV = st.dictionaries(
    st.sampled_from(["LLAMA_ARG_N_PARALLEL", "LLAMA_ARG_HOST", "GGML_VK_SUBALLOCATION_BLOCK_SIZE"]),
    VALUES.filter(lambda text: "\0" not in text),
)


@settings(deadline=None)
@given(
    st.lists(WORD, max_size=10),
    ENV,
    st.sampled_from([None, "hybrid", "mtp", "dense", "swa", "recurrent"]),
    st.sampled_from(["host=1GiB", "CUDA0=1GiB,host=1GiB", "Vulkan0=64MiB,Vulkan1=1MiB"]),
    st.sampled_from([None, 4000, 10068, 10434, 12000]),
)
def test_no_command_breaks_a_rule(
    models: Models,
    words: list[str],
    env: dict[str, str],
    model: str | None,
    budget: str,
    build: int | None,
) -> None:
    path = models(model) if model else None
    words = ["llama-server", "-m", "MODEL", *words]
    try:
        known = facts(words, model=path, budget=budget, build=build, env=env)
    except ArrieroError:
        return
    for finding in match(known, registry()).findings:
        assert finding.because
        assert (finding.applies == "maybe") is bool(finding.missing)
        assert finding.applies == "yes" or finding.severity != "error"
    repaired(known, registry())
