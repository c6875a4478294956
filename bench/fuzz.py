"""Headers that lie, through plan, skeleton and check: each must give a result or one clear error.

    python bench/fuzz.py [--cases 100000] [--first 0] [--workers 2] [--keep DIRECTORY]

Every case is made from its number alone: a header of the seeds in tests/, taken apart, changed in a
few places where it matters (counts, lengths, types, offsets, shapes, keys that decide the planner's
sizes, split sets, byte order) and sometimes in its bytes, then put together again. A case fails if
it raises anything but an ArrieroError, takes 600 times the CPU time of a typical one (a second
where that takes 1.7 ms), allocates more than 64 MiB, or gives a plan that cannot be written down.
``--keep`` writes failing files; those in tests/gguf/data/fuzz/ failed once and are tried first.
"""

from __future__ import annotations

import copy
import math
import os
import random
import resource
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, Final, TypeVar

import _cases
import msgspec
from _cases import WrongError

from arriero.base.errors import ArrieroError, NotFoundError
from arriero.command import Command, builtin_flags, parse_command
from arriero.gguf import Header, read_source
from arriero.gguf.skeleton import neutral, write_header
from arriero.jobs.check import CheckOptions, check
from arriero.jobs.skeleton import shrunk
from arriero.memory import Planner, parse_pools

TESTS: Final = Path(__file__).resolve().parents[1] / "tests"
SEEDS: Final = (TESTS / "gguf" / "data", TESTS / "memory" / "data" / "archs")
KEPT: Final = TESTS / "gguf" / "data" / "fuzz"
"""Files that a case failed on once."""
TIMES: Final = 600
"""How much more CPU time than a typical case one may take, whatever the machine."""
TYPICAL: Final = 300
"""Cases that are run first, to know what a typical one takes."""
BYTES: Final = 64 << 20
LONGEST_MESSAGE: Final = 400
CHECKED: Final = 20
"""Every so many cases go through check too, which takes many times what a plan takes."""
SCRATCH: Final = Path("/dev/shm")  # noqa: S108  a name of its own is made in it
"""Where a file costs no disk."""

STRING, ARRAY = 8, 9
SIZES: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
SIZES[12] = "d"

SMALL: Final = (*range(9), 16, 32, 64, 100, 128, 256, 512, 1000, 4096, 16384, 65536, 1 << 20)
NUMBERS: Final = (
    *SMALL,
    *((1 << bits) + off for bits in (5, 8, 9, 14, 15, 16, 31, 32, 63) for off in (-1, 0, 1)),
    *((1 << 64) - 1, 1 << 40, 1 << 62, -1, -2, -128, -(1 << 31), -(1 << 63)),
)
REALS: Final = (0.0, -0.0, 1.0, -1.5, 0.1, 1e-40, 1e38, float("nan"), float("inf"), -float("inf"))
TEXTS: Final = (
    *(b"", b"0", b"llama", b"a\nb", b"\x1b[31mred", b"\xff\xfe", b"\0", "\u2028".encode()),
    *(b"../../etc/passwd", b"x" * 300, b"y" * 70_000, b"%s{0}", b"none", b"true", b"-1"),
)
UNSEEN: Final = (
    b"attention.indexer.types attention.recurrent_layers attention.shared_kv_layers "
    b"attention.value_length_swa embedding_length_out expert_count full_attention_interval "
    b"hyper_connection.count nextn_predict_layers ple.layers ple.ngram_size vocab_size"
)
"""Keys that decide sizes and that few seeds have."""
TENSORS: Final = (
    *(b"token_embd.weight", b"output.weight", b"per_layer_token_embd.weight"),
    *(b"blk.0.attn_q.weight", b"blk.1.ffn_down_exps.weight", b"blk.3.ffn_gate_up_exps.weight"),
    *(b"blk.0.ssm_in.weight", b"blk.99999999999999999999.attn_k.weight", b"blk.-1.x", b"blk..x"),
    *(b"blk.2.nextn.eh_proj.weight", b"", b"\x1b[2J", b"z" * 3000, b"rope_freqs.weight"),
)
TYPES: Final = (0, 1, 2, 3, 4, 8, 12, 14, 16, 24, 28, 30, 31, 36, 39, 40, 41, 99, 1 << 31)
COMMANDS: Final = (
    "",
    "-c 4096",
    "-c 0 -np 1",
    "-c 1000000 -np 16 -kvu",
    "-ngl 99 -fit off",
    "-ngl 3 -ctk q8_0 -ctv q4_0 -ts 3,1",
    "-ncmoe 4 -ot blk\\.1\\.=CPU -c 8192",
    "--spec-type draft-mtp -c 8192",
    "-md draft.gguf --mmproj mmproj.gguf",
    "--embedding --no-mmap -b 512 -ub 512",
    "-sm row -nkvo --swa-full",
    "-dev none --no-repack -cram -1 -ctxcp 100",
)
POOLS: Final = (
    "host=64GiB",
    "host=16GiB,CUDA0=24GiB",
    "host=128GiB,CUDA0=24GiB,CUDA1=16GiB",
    "CUDA0=0,host=1GiB",
)
BUILDS: Final = (None, 10068, 10092, 10434, 11434)


# --- a header, taken apart ----------------------------------------------------------------------


@dataclass
class Key:
    """One entry; ``says`` is the length it claims where that is not the true one."""

    name: bytes
    kind: int
    value: Any
    element: int = 0
    says: int | None = None


@dataclass
class Tensor:
    name: bytes
    dims: list[int]
    kind: int
    offset: int


@dataclass
class Parts:
    """A whole header; what is None is what is true."""

    keys: list[Key]
    tensors: list[Tensor] = field(default_factory=list)
    order: str = "<"
    version: int = 3
    key_count: int | None = None
    tensor_count: int | None = None
    tail: int | None = None

    def copied(self) -> Parts:
        """A copy; values are replaced as wholes, so that copies may share them."""
        return replace(
            self,
            keys=[Key(k.name, k.kind, k.value, k.element, k.says) for k in self.keys],
            tensors=[Tensor(t.name, t.dims, t.kind, t.offset) for t in self.tensors],
        )

    def build(self) -> bytes:
        keys = len(self.keys) if self.key_count is None else self.key_count
        tensors = len(self.tensors) if self.tensor_count is None else self.tensor_count
        parts = [b"GGUF", self.number("I", self.version), self.number("Q", tensors)]
        parts.append(self.number("Q", keys))
        for key in self.keys:
            parts += (self.text(key.name), self.number("I", key.kind), self.value(key))
        for tensor in self.tensors:
            parts += (self.text(tensor.name), self.number("I", len(tensor.dims)))
            parts += (self.number("Q", dim) for dim in tensor.dims)
            parts += (self.number("I", tensor.kind), self.number("Q", tensor.offset))
        return b"".join(parts)

    def number(self, code: str, value: float) -> bytes:
        try:
            return struct.pack(self.order + code, value)
        except (struct.error, OverflowError):  # of another type or too large
            if code in "fd":
                return struct.pack(self.order + code, float("inf"))
            size = struct.calcsize("<" + code)
            wrapped = int(value) % (1 << 8 * size) if math.isfinite(value) else 0
            return wrapped.to_bytes(size, "big" if self.order == ">" else "little")

    def text(self, value: bytes, says: int | None = None) -> bytes:
        return self.number("Q", len(value) if says is None else says) + value

    def value(self, key: Key) -> bytes:
        if key.kind == STRING:
            return self.text(key.value, key.says)
        if key.kind != ARRAY:
            return self.number(SIZES.get(key.kind, "I"), key.value)
        count = len(key.value) if key.says is None else key.says
        head = self.number("I", key.element) + self.number("Q", count)
        if key.element == STRING:
            return head + b"".join(map(self.text, key.value))
        code = SIZES.get(key.element, "I")
        try:
            return head + struct.pack(f"{self.order}{len(key.value)}{code}", *key.value)
        except (struct.error, OverflowError):
            return head + b"".join(self.number(code, value) for value in key.value)


def taken_apart(data: bytes) -> Parts:
    """A good little-endian header as its parts."""
    at = 4

    def numbers(codes: str) -> tuple[Any, ...]:
        nonlocal at
        values = struct.unpack_from("<" + codes, data, at)
        at += struct.calcsize("<" + codes)
        return values

    def text() -> bytes:
        nonlocal at
        length = numbers("Q")[0]
        at += length
        return data[at - length : at]

    version, tensors, keys = numbers("IQQ")
    parts = Parts([], version=version)
    for _ in range(keys):
        name, kind, element = text(), numbers("I")[0], 0
        value: Any
        if kind == STRING:
            value = text()
        elif kind == ARRAY:
            element, count = numbers("IQ")
            value = []
            for _ in range(count):
                value.append(text() if element == STRING else numbers(SIZES[element])[0])
        else:
            value = numbers(SIZES[kind])[0]
        parts.keys.append(Key(name, kind, value, element))
    for _ in range(tensors):
        name, dims = text(), numbers("I")[0]
        shape = list(numbers(f"{dims}Q"))
        parts.tensors.append(Tensor(name, shape, *numbers("IQ")))
    return parts


@cache
def seeds() -> tuple[Parts, ...]:
    files = sorted(path for directory in SEEDS for path in directory.glob("*.gguf"))
    return tuple(taken_apart(path.read_bytes()) for path in files)


@cache
def suffixes() -> tuple[bytes, ...]:
    """What follows an architecture in the keys of any seed."""
    found = {
        key.name.partition(b".")[2]
        for parts in seeds()
        for key in parts.keys
        if key.name.startswith(architecture(parts) + b".")
    }
    return tuple(sorted(found | set(UNSEEN.split())))


# --- lies ---------------------------------------------------------------------------------------


def architecture(parts: Parts) -> bytes:
    named = (k.value for k in parts.keys if k.name == b"general.architecture" and k.kind == STRING)
    return next(named, b"llama")


def layers(parts: Parts) -> int:
    name = architecture(parts) + b".block_count"
    value = next((k.value for k in parts.keys if k.name == name), 1)
    return int(value) if isinstance(value, int) and 0 < value < 600 else 1


def lying_value(key: Key, parts: Parts, r: random.Random) -> None:
    """Another value, often of another type."""
    match r.randrange(8):
        case 0 | 1 | 2:
            key.kind, key.value = r.choice((4, 4, 4, 5, 10, 11)), r.choice(NUMBERS)
        case 3:
            key.kind, key.value = r.choice((6, 12)), r.choice(REALS)
        case 4:
            key.kind, key.value = STRING, r.choice(TEXTS)
        case 5:
            key.kind, key.value = 7, r.choice((True, False))
        case _:
            n = layers(parts)
            count = r.choice((0, 1, n - 1, n, n, n, n + 1, 512, 513, 16385))
            key.kind, key.element = ARRAY, r.choice((4, 5, 5, 6, 7, 10, STRING, 12))
            if key.element == STRING:
                key.value = [r.choice(TEXTS[:8]) for _ in range(min(count, 600))]
            elif key.element in (6, 12):
                key.value = [r.choice(REALS)] * count
            else:
                pool = r.choice((NUMBERS, (0, 1), (0, 8), (1,), (0,), (4, 128)))
                key.value = [r.choice(pool) for _ in range(count)]


def change_hparam(parts: Parts, r: random.Random) -> None:
    own = [k for k in parts.keys if k.name.startswith(architecture(parts) + b".")]
    if own:
        key = r.choice(own)
        if r.random() < 0.4 and isinstance(key.value, int):
            key.value = max(0, key.value + r.choice((-1, 1, 2))) * r.choice((1, 1, 2, 3, 64))
        else:
            lying_value(key, parts, r)


def add_hparam(parts: Parts, r: random.Random) -> None:
    name = architecture(parts) + b"." + r.choice(suffixes())
    parts.keys = [k for k in parts.keys if k.name != name]
    key = Key(name, 4, r.choice(SMALL))
    if r.random() < 0.5:
        lying_value(key, parts, r)
    parts.keys.append(key)


def change_key(parts: Parts, r: random.Random) -> None:
    if parts.keys:
        lying_value(r.choice(parts.keys), parts, r)


def drop_key(parts: Parts, r: random.Random) -> None:
    if parts.keys:
        parts.keys.remove(r.choice(parts.keys))


def repeat_key(parts: Parts, r: random.Random) -> None:
    if parts.keys:
        parts.keys.insert(r.randrange(len(parts.keys)), copy.copy(r.choice(parts.keys)))


def rename_key(parts: Parts, r: random.Random) -> None:
    if parts.keys:
        r.choice(parts.keys).name = r.choice(
            (*TEXTS, b"general.alignment", b"general.name", b"tokenizer.ggml.tokens")
        )


def lie_about_length(parts: Parts, r: random.Random) -> None:
    long = [k for k in parts.keys if k.kind in (STRING, ARRAY)]
    if long:
        key = r.choice(long)
        key.says = r.choice((len(key.value) + r.choice((-1, 1, 8)), r.choice(NUMBERS)))


def lie_about_type(parts: Parts, r: random.Random) -> None:
    if parts.keys:
        key = r.choice(parts.keys)
        if key.kind == ARRAY and r.random() < 0.5:
            key.element = r.choice((*SIZES, ARRAY, 13, 1 << 31))
            key.value = [v if isinstance(v, int) else 0 for v in key.value]
        elif key.kind not in (STRING, ARRAY):
            key.kind = r.choice((13, 14, 255, 1 << 31, *SIZES))


def lie_about_counts(parts: Parts, r: random.Random) -> None:
    number = r.choice((*NUMBERS, len(parts.keys) - 1, len(parts.keys) + 1))
    if r.random() < 0.5:
        parts.key_count = number
    else:
        parts.tensor_count = number


def other_architecture(parts: Parts, r: random.Random) -> None:
    """Another name, with the keys of the old one under it or not."""
    old, new = architecture(parts), architecture(r.choice(seeds()))
    if r.random() < 0.1:
        new = r.choice(TEXTS)
    keep = r.random() < 0.2
    for key in parts.keys:
        if key.name == b"general.architecture" and key.kind == STRING:
            key.value = new
        elif not keep and key.name.startswith(old + b"."):
            key.name = new + key.name[len(old) :]


def many_layers(parts: Parts, r: random.Random, n: int = 0) -> None:
    """Layers with per-layer arrays that fit them, so that the planner sees them."""
    n, arch = n or r.choice((1, 2, 3, 40, 94, 511, 512, 513)), architecture(parts)
    for key in parts.keys:
        if key.name == arch + b".block_count":
            key.kind, key.value = 4, n
        elif key.name.startswith(arch) and key.kind == ARRAY and key.value:
            key.value = [key.value[i % len(key.value)] for i in range(n)]


def add_tensors(parts: Parts, r: random.Random) -> None:
    """Tensors as a model of the header's shape would have them, or nearly."""
    names = (b"attn_q", b"attn_k", b"ffn_up_exps", b"ffn_down_exps", b"ssm_out", b"ffn_up")
    shapes = [[256], [256, 512], [4096, 512], [512, 1024, 8]]
    offset = max((t.offset + 4 * volume(t.dims) for t in parts.tensors), default=0)
    there = len(parts.tensors)
    for i in range(there, there + r.choice((1, 3, 12, 12, 60, 300))):
        name = b"blk.%d.%s.weight" % (i // len(names), names[i % len(names)])
        dims = list(r.choice(shapes))
        kind = r.choice((0, 1, 2, 8, 12, 14, 39))
        parts.tensors.append(Tensor(name, dims, kind, -(-offset // 32) * 32))
        offset += 4 * volume(dims)
    if r.random() < 0.1:
        r.choice(parts.tensors).name = r.choice(TENSORS)


def crowd(parts: Parts, r: random.Random) -> None:
    """Rarely: as many tensors as are read, of as many layers as there can be."""
    if r.random() < 0.99:
        return
    layers, names = r.choice(((512, 12), (512, 63), (94, 300), (1, 30_000)))
    many_layers(parts, r, layers)
    parts.tensors = [
        Tensor(b"blk.%d.ffn_up_exps%d.weight" % (i % layers, i // layers), [4096, 64], 12, 0)
        for i in range(layers * names)
    ]
    add_tensors(parts, r)


def lie_about_tensor(parts: Parts, r: random.Random) -> None:
    if not parts.tensors:
        add_tensors(parts, r)
    tensor = r.choice(parts.tensors)
    match r.randrange(6):
        case 0:
            tensor.dims = [r.choice((*NUMBERS, 256, 4096)) for _ in range(r.randrange(7))]
        case 1:
            tensor.kind = r.choice(TYPES)
        case 2:
            tensor.offset = r.choice((*NUMBERS, tensor.offset + 1, tensor.offset + 32))
        case 3:
            tensor.name = r.choice((*TENSORS, *(t.name for t in parts.tensors[:5])))
        case 4:
            parts.tensors.append(copy.copy(tensor))
        case _:
            parts.tail = r.choice((0, 1, 4096, 1 << 40, 1 << 62))


def change_container(parts: Parts, r: random.Random) -> None:
    match r.randrange(4):
        case 0:
            parts.order = ">"
        case 1:
            parts.version = r.choice((0, 1, 2, 2, 2, 4, 3 << 24, 0xFFFF, (1 << 32) - 1))
        case 2:
            parts.order, parts.version = ">", r.choice((2, 3))
        case _:
            value = r.choice((0, 1, 8, 16, 64, 4096, 1 << 20, 1 << 21, 48, 1 << 31))
            parts.keys.append(Key(b"general.alignment", 4, value))


LIES: Final[tuple[Callable[[Parts, random.Random], None], ...]] = (
    *repeat(change_hparam, 12),
    *repeat(add_hparam, 10),
    *repeat(many_layers, 4),
    *repeat(other_architecture, 4),
    *repeat(add_tensors, 6),
    *repeat(lie_about_tensor, 4),
    change_key,
    drop_key,
    repeat_key,
    rename_key,
    lie_about_length,
    lie_about_type,
    lie_about_counts,
    change_container,
    crowd,
)


def with_bytes_changed(data: bytes, r: random.Random) -> bytes:
    """Bits flipped, lengths overwritten, bytes lost or doubled, an end too early."""
    changed = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 5))):
        place = r.randrange(max(1, len(changed)))
        match r.randrange(5):
            case 0 if changed:
                changed[place] ^= 1 << r.randrange(8)
            case 1:
                number = r.choice(NUMBERS) % (1 << 64)
                changed[place : place + 8] = number.to_bytes(8, r.choice(("little", "big")))
            case 2:
                del changed[place : place + r.choice((1, 4, 8, 100))]
            case 3:
                changed[place:place] = changed[place : place + r.choice((1, 4, 8, 100))]
            case _:
                del changed[place:]
    return bytes(changed)


# --- cases --------------------------------------------------------------------------------------


class Made:
    """A source in memory: a header, then zeros to its size."""

    requests = bytes_read = 0

    def __init__(self, name: str, files: Mapping[str, tuple[bytes, int]]) -> None:
        self.name, self._files = name, files
        self._data, self.size = files[name]

    def read(self, offset: int, length: int, ahead: int = 0) -> bytes:
        end = min(offset + length + ahead, self.size)
        found = self._data[offset:end]
        return found + bytes(max(0, end - offset - len(found)))

    def sibling(self, name: str) -> Made:
        if name not in self._files:
            raise NotFoundError(f"no such model: {name}")
        return Made(name, self._files)

    def close(self) -> None:
        pass


@dataclass
class Case:
    """Files by name, the first of them opened; and what it is planned for."""

    files: dict[str, tuple[bytes, int]]
    command: Command
    pools: str
    build: int | None
    number: int = 0


def made(parts: Parts, r: random.Random) -> tuple[bytes, int]:
    """Bytes of a header and the size of its file, which mostly has room for the tensors."""
    data = parts.build()
    if r.random() < 0.15:
        data = with_bytes_changed(data, r)
    tail = parts.tail
    if tail is None:
        ends = [t.offset + 4 * volume(t.dims) for t in parts.tensors if t.offset < 1 << 50]
        tail = max((0, *(end for end in ends if end < 1 << 62))) + 4096
    return data, len(data) + (0 if r.random() < 0.1 else tail)


def volume(dims: Sequence[int]) -> int:
    product = 1
    for dim in dims:
        product *= dim % (1 << 64)
    return product


@cache
def kept() -> tuple[Case, ...]:
    """Every file that once failed, for every command and machine."""
    return tuple(
        Case({"m.gguf": (data, len(data) + (1 << 40))}, command(flags), pools, None)
        for data in (path.read_bytes() for path in sorted(KEPT.glob("*.gguf")))
        for flags in COMMANDS
        for pools in POOLS
    )


def case_of(number: int) -> Case:
    """A case by its number; those below zero are the kept ones."""
    if number < 0:
        return kept()[number]
    r = random.Random(number)
    parts = r.choice(seeds()).copied()
    for _ in range(r.choice((1, 1, 2, 2, 3, 5, 8))):
        r.choice(LIES)(parts, r)
    files = dict(split(parts, r)) if r.random() < 0.06 else {"m.gguf": made(parts, r)}
    return Case(files, command(r.choice(COMMANDS)), r.choice(POOLS), r.choice(BUILDS), number)


@cache
def command(flags: str) -> Command:
    return parse_command(["llama-server", "-m", "m.gguf", *flags.split()], builtin_flags(), {})


def split(parts: Parts, r: random.Random) -> Iterator[tuple[str, tuple[bytes, int]]]:
    """A set whose later parts may be missing, damaged, or the first one again."""
    count = r.choice((2, 2, 3, 5))
    own = r.choice((count, count, count, count + 1, 0, 1, 1 << 31))
    first = parts.copied()
    first.keys += (Key(b"split.no", 2, 0), Key(b"split.count", 2, own))
    whole = made(first, r)
    yield f"m-00001-of-{count:05d}.gguf", whole
    for i in range(1, count):
        other = Parts([Key(b"split.no", 2, i), Key(b"split.count", 2, count)])
        add_tensors(other, r)
        if r.random() < 0.2:
            r.choice(LIES)(other, r)
        if r.random() > 0.1:
            cyclic = r.random() < 0.1
            yield f"m-{i + 1:05d}-of-{count:05d}.gguf", whole if cyclic else made(other, r)


# --- running them -------------------------------------------------------------------------------


def run(case: Case) -> str:
    """What becomes of a case: ``plan``, or the id of an error."""
    try:
        header = read_source(Made(next(iter(case.files)), case.files))
        told(skeleton_of, header)
        if case.number % CHECKED == 0:
            told(checked, case)
        planner = Planner(
            header,
            parse_pools(case.pools),
            model=Path("m.gguf"),
            build=case.build,
            draft=header,
            mmproj=header,
        )
        plan = planner.plan(case.command)
    except ArrieroError as error:
        judge(error)
        reader = any(f.name == "read_source" for f in traceback.extract_tb(error.__traceback__))
        return f"{'read' if reader else 'plan'}: {error.id}"
    msgspec.json.encode(plan)
    for buffer in plan.buffers:
        if buffer.bytes is not None and buffer.bytes < 0:
            raise WrongError(f"{buffer.component} on {buffer.device} has {buffer.bytes} bytes")
    for note in plan.notes:
        if not note.text.isprintable() or len(note.text) > LONGEST_MESSAGE:
            raise WrongError(f"note that cannot be shown: {note.text[:200]!r}")
    return "plan"


def judge(error: ArrieroError) -> None:
    message = f"{error.message} {error.hint}"
    if not message.isprintable() or not error.message:
        raise WrongError(f"message with control characters: {message!r}") from None
    if len(message) > LONGEST_MESSAGE:
        raise WrongError(f"message of {len(message)} characters: {message[:200]}") from None


_T = TypeVar("_T")


def told(what: Callable[[_T], None], of: _T) -> None:
    """Do it; an error of Arriero's own is an answer too, if it can be shown."""
    try:
        what(of)
    except ArrieroError as error:
        judge(error)


def skeleton_of(header: Header) -> None:
    """Write the model without its weights, as it is and with fewer layers."""
    with scratch() as place:
        whole = neutral(header).header
        write_header(whole, place / "whole.gguf")
        write_header(shrunk(whole), place / "small.gguf")


def checked(case: Case) -> None:
    """Check the command with the model as a file of the command's."""
    with scratch() as place:
        for name, (data, size) in case.files.items():
            path = place / Path(name).name
            path.write_bytes(data)
            os.truncate(path, max(min(size, 1 << 40), len(data)))
        first = Path(next(iter(case.files))).name
        words = ["llama-server", "-m", first, *case.command.words[3:]]
        options = CheckOptions(budget=parse_pools(case.pools), assume_build=case.build or 10434)
        check(words, options, environ={}, cwd=place)


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SCRATCH if SCRATCH.is_dir() else None) as name:
        yield Path(name)


@cache
def limit_of_time() -> float:
    """Seconds of CPU time that a case may take here."""
    return _cases.limit_of_time(lambda n: run(case_of(n)), typical=TYPICAL, times=TIMES)


def prepared() -> None:
    """From here on no case may take much longer than typical ones, or 64 MiB more than they did."""
    limit_of_time()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def work(first: int, count: int) -> _cases.Done:
    """Run so many cases in one process."""
    return _cases.work(case_of, run, range(first, first + count), limit_of_time())


def main() -> int:
    parser = _cases.parser(__doc__, 100_000)
    parser.add_argument("--keep", type=Path, help="write failing files to this directory")
    options = parser.parse_args()
    numbers = range(options.first or -len(kept()), options.first + options.cases)
    done = _cases.run_all(work, numbers, options.workers, most=1000, prepared=prepared)
    for number, _ in done.failures[: _cases.SHOWN] if options.keep else ():
        options.keep.mkdir(parents=True, exist_ok=True)
        for name, (data, _) in case_of(number).files.items():
            (options.keep / f"{number}-{name}").write_bytes(data)
    return 1 if done.failures else 0


if __name__ == "__main__":
    sys.exit(main())
