"""Where a command runs if not on the known engine: in an image, on another machine, on a fork.

Everything is read from names; nothing is started or contacted. Unknown values are None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from arriero.command.flags import normalise


@dataclass(frozen=True)
class Place:
    """Another engine than the known one.

    ``why`` completes "another engine runs this command: …". ``build`` and ``backend`` (the
    beginning of its device names) come from an image's tag. ``devices`` is true if the engine is
    assumed to be the known one and only the machine is unknown.
    """

    why: str
    build: int | None = None
    backend: str | None = None
    fork: str | None = None
    devices: bool = False


@dataclass(frozen=True)
class Mark:
    """A fact about a file beyond the command's words. ``about`` says which rule reads it."""

    about: Literal["preset", "model", "misread", "cut"]
    line: int
    text: str
    mild: bool = False
    """Whether it may well be intended."""
    file: str = ""
    """The file that it is about, if it is not the file of the command."""


@dataclass(frozen=True)
class Around:
    """What a file or a wrapper tells about a command in addition to its words.

    ``published`` are the ports that a container publishes, as written; None if there is no
    container. ``doubt`` says why it may not be a command at all.
    """

    place: Place | None = None
    doubt: str = ""
    marks: tuple[Mark, ...] = ()
    published: tuple[str, ...] | None = None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SERVER: Final = re.compile(r"(?!llama_cpp\.server)llama[-_.]?(?:cpp[-_.]?)?server", re.IGNORECASE)
"""Not the module of that name, which belongs to llama-cpp-python."""
_TAG: Final = re.compile(r"(?:\A|[-_.])b(\d{4,6})(?=\Z|[-_.])")
_BACKENDS: Final[Mapping[str, str]] = {
    "cuda": "CUDA",
    "cuda12": "CUDA",
    "cuda13": "CUDA",
    "vulkan": "Vulkan",
    "rocm": "ROCm",
    "hip": "ROCm",
    "sycl": "SYCL",
    "intel": "SYCL",
    "musa": "MUSA",
    "cann": "CANN",
    "openvino": "OPENVINO",
}
_FORK_NAMES: Final = (
    (re.compile(r"ik[-_.]?llama", re.IGNORECASE), "ik_llama.cpp"),
    (re.compile(r"bee[-_.]?llama", re.IGNORECASE), "beellama.cpp"),
    (re.compile(r"turbo[-_.]?quant", re.IGNORECASE), "a turboquant fork"),
    (re.compile(r"koboldcpp", re.IGNORECASE), "KoboldCpp"),
    (re.compile(r"llamafile", re.IGNORECASE), "llamafile"),
    (re.compile(r"rocmfp4|rocm[-_.]?fp4", re.IGNORECASE), "a ROCmFP4 fork"),
    (re.compile(r"prism[-_.]?llama|prismml", re.IGNORECASE), "the PrismML fork"),
    (re.compile(r"\bbitnet\.?cpp\b|bitnet", re.IGNORECASE), "bitnet.cpp"),
    (re.compile(r"powerinfer", re.IGNORECASE), "PowerInfer"),
)
_FORK_FLAGS: Final[Mapping[str, frozenset[str]]] = {
    "ik_llama.cpp": _words(
        "-fmoe --fused-moe -no-fmoe --no-fused-moe -mla --mla-use -amb --attention-max-batch "
        "-rtr --run-time-repack -ser --smart-expert-reduction -smgs "
        "--split-mode-graph-scheduling -muge --merge-up-gate-experts -mqkv --merge-qkv -gr "
        "-no-gr --graph-reuse --no-graph-reuse -khad --k-cache-hadamard -vhad "
        "--v-cache-hadamard -ooae --offload-only-active-experts -no-ooae "
        "--no-offload-only-active-experts -sas --scheduler-async -ger "
        "--grouped-expert-routing -no-ger --no-grouped-expert-routing -vq --validate-quants "
        "-crs --cache-ram-similarity -cram-n-min --cache-ram-n-min -draft --draft-params "
        "-cuda --cuda-params -thp --transparent-huge-pages -no-fug --no-fused-up-gate -mea "
        "--max-extra-alloc --banned-string-file --banned-n --reasoning-tokens"
    ),
    "beellama.cpp": _words(
        "--spec-dflash-cross-ctx --spec-dflash-max-slots --spec-branch-budget "
        "--spec-draft-temp --spec-draft-top-k --spec-dm-controller --tree-budget --draft-topk "
        "--reasoning-loop-window --reasoning-loop-max-period --reasoning-loop-guard"
    ),
    "KoboldCpp": _words(
        "--usecublas --usecuda --usevulkan --useclblast --contextsize --gpulayers --quantkv "
        "--smartcontext --flashattention --multiuser --skiplauncher"
    ),
}
_FORK_VALUES: Final = (
    (re.compile(r"turbo\d(?:_\w+)?\Z"), "turboquant forks such as beellama.cpp"),
    (re.compile(r"t(?:bq|q)\d_\d\w*\Z"), "turboquant forks"),
    (re.compile(r"q8_KV\w*\Z|q6_0\Z|iq\dk\w*\Z", re.IGNORECASE), "ik_llama.cpp"),
    (re.compile(r"dflash\Z"), "beellama.cpp; the build at hand may have draft-dflash"),
    (re.compile(r"graph\Z"), "ik_llama.cpp"),
)


def is_server(word: str) -> bool:
    """Whether a word names llama-server: a path, or a variable called after it."""
    return _SERVER.search(word.rstrip("/").rpartition("/")[2] or word) is not None


def of_image(image: str) -> Place:
    """Where a command runs, by the name and tag of a container's image."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    if not name or "/" in tag:  # no tag; a port of the registry is none
        name, tag = f"{name}:{tag}" if name else tag, ""
    build = _TAG.search(tag)
    words = re.split(r"[-_.]", tag.lower())
    backend = next((_BACKENDS[word] for word in words if word in _BACKENDS), None)
    fork = fork_by_name(image)
    return Place(
        f"it is in the image {image}" + (f", a build of {fork}" if fork else ""),
        build=int(build[1]) if build and fork is None else None,
        backend=backend,
        fork=fork,
    )


def fork_by_name(name: str) -> str | None:
    """The fork whose name a path or an image has."""
    return next((fork for pattern, fork in _FORK_NAMES if pattern.search(name)), None)


def fork_by_flags(names: Iterable[str]) -> tuple[str, str] | None:
    """The fork that has one of these flags, which llama.cpp never had, and the flag."""
    for name in names:
        spelling = normalise(name.partition("=")[0])
        for fork, flags in _FORK_FLAGS.items():
            if spelling in flags:
                return fork, name
    return None


def fork_of_value(value: str) -> str | None:
    """The fork that has this value, which llama.cpp refuses."""
    return next((fork for pattern, fork in _FORK_VALUES if pattern.match(value)), None)
