"""Nothing planted gets through: secrets nowhere, private text in nothing that is shared.

What is planted is made from a fixed seed and stands where real logs, headers and commands have it;
each is looked for in every output.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arriero.base.redact import Redactor
from arriero.base.vocabulary import Vocabulary, package_words
from arriero.base.words import ReportFormat
from arriero.cli import Session
from arriero.cli._argv import Argv
from arriero.command import builtin_flags
from arriero.command.telling import told_command
from arriero.jobs import check, plan
from arriero.jobs.explain import explain_chunks
from arriero.jobs.share import render, write_all
from arriero.logs.telling import told_lines
from arriero.record import Diagnosis, Explanation, Plan, Verification, encode
from arriero.record.sharing import shared
from arriero.store import Store
from tests.examples import example_diagnosis, example_explanation, example_verification
from tests.gguf.build import Gguf
from tests.report.laid_out import terminal
from tests.report.plans import example as example_plan

replace = msgspec.structs.replace
RANDOM = random.Random(20261201)
MIXED = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghjkmnpqrstuvwxyz23456789"
DIGITS = "0123456789abcdef"


def key(length: int, letters: str = MIXED) -> str:
    return "".join(RANDOM.choice(letters) for _ in range(length))


def word() -> str:
    """A word that nobody has written yet."""
    while True:
        made = "".join(RANDOM.choice("bcdfglmnprstvz") + RANDOM.choice("aeiou") for _ in range(4))
        if made not in package_words():
            return made


# --- secrets -------------------------------------------------------------------------------------

SPELLINGS = """
--authkey={}
--auth-key {}
--api-key {}
--api-key={}
--api_key={}
--api-key '{}'
--API-KEY {}
--token={}
--ssl-key-password {}
--client-secret={}
--private-key {}
"--api-key", "{}"
curl -H 'Authorization: Bearer {}' http://127.0.0.1/
-H "Authorization: Basic {}"
-H 'X-API-Key: {}'
--header 'Authorization: {}'
-H 'Cookie: sid={}'
Set-Cookie: sid={}; Path=/
curl -b 'session={}' x
--cookie sid={}
curl -u ana:{}
curl -U ana:{}
--proxy-user ana:{}
--basic-auth ana:{}
curl -x http://ana:{}@proxy:3128 y
HF_TOKEN={} llama-server
export LLAMA_API_KEY={}
Environment="LLAMA_API_KEY={}"
-e HF_TOKEN={}
HF_TOKEN: "{}"
setx HF_TOKEN {}
$env:HF_TOKEN='{}'
AWS_SECRET_ACCESS_KEY={}
PGPASSWORD={}
MYSQL_PWD={}
JWT_SECRET: {}
API_SECRET_V2={}
HF_TOKEN_READ={}
http_proxy=http://ana:{}@10.0.0.1:3128
https://ana:{}@hub/x
https://{}@github.com/x/y.git
http://h/m.gguf?token={}
http://h/m.gguf?X-Amz-Signature={}&a=1
http://h/?api_key={}
http://h/#access_token={}
http://h/?sas={}
postgres://ana:{}@db/x
AccountKey={};x
Pwd={};
{{"api_key": "{}"}}
{{"token":"{}"}}
{{"client_secret":"{}"}}
{{\\"api_key\\":\\"{}\\"}}
api-key: {}
password: {}
machine h login ana password {}
sshpass -p {} ssh h
//packages.example/:_authToken={}
-----BEGIN OPENSSH PRIVATE KEY-----{}-----END OPENSSH PRIVATE KEY-----
""".strip().splitlines()

TOKENS = [
    "hf_" + key(34), "sk-" + key(40), "sk-proj-" + key(40), "sk-ant-api03-" + key(40),
    "ghp_" + key(36), "github_pat_" + key(22) + "_" + key(30), "glpat-" + key(20),
    "xoxb-1234567890-" + key(24), "AKIA" + key(16, "ABCDEFGHJKLMNPQRSTUVWXYZ234567"),
    "AIza" + key(35), "eyJhbGciOiJIUzI1NiJ9." + key(30) + "." + key(43), "npm_" + key(36),
    "nvapi-" + key(60), "gsk_" + key(52), "r8_" + key(37), "tskey-auth-" + key(30),
    "sk_live_" + key(24), "SG." + key(22) + "." + key(43), "dop_v1_" + key(64, DIGITS),
    "hvs." + key(90), "7123456789:AA" + key(33), "whsec_" + key(32), "xai-" + key(60),
]  # fmt: skip

SECRETS = [(spelling, key(18)) for spelling in SPELLINGS] + [("{}", token) for token in TOKENS]
SECRET_LINES = [spelling.format(secret) for spelling, secret in SECRETS]
MATCHED = (
    "0.00.230.375 E srv    load_model: failed to load model, '{}'",
    "E llama_model_load: error loading model: {}",
    "0.01.523.618 E srv    operator(): got exception: {}: std::bad_alloc",
)
"""Lines that the grammar has a row for, with room for something private."""

# --- private text --------------------------------------------------------------------------------

MARKUP = {
    "harmony": "<|start|>user<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}",
    "mistral": "<s>[INST] {} [/INST] {}</s>",
    "glm": "[gMASK]<sop><|user|>\n{}<|assistant|>\n{}",
    "deepseek": "<｜begin▁of▁sentence｜><｜User｜>{}<｜Assistant｜>{}<｜end▁of▁sentence｜>",
    "phi": "<|user|>\n{}<|end|>\n<|assistant|>\n{}<|end|>",
    "alpaca": "### Instruction:\n{}\n\n### Response:\n{}",
    "command-r": "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{}<|END_OF_TURN_TOKEN|>{}",
    "kobold": "\n### Human: {}\n### Assistant: {}",
    "vicuna": "USER: {} ASSISTANT: {}</s>",
    "chatml": "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}",
    "llama3": "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>{}",
    "unknown": "@@ask@@ {} @@say@@ {}",
}
SAID = [
    "0.01.091.479 D slot process_toke: id  1 | task 0 | n_decoded = 2, next token:  5672 '{}'",
    '0.01.394.439 D Parsed message: {{"role":"assistant","content":"{}"}}',
    'D srv operator(): request: {{"content":[{{"type":"text","text":"{}"}},{{"u":"base64,{}"}}]}}',
    "Formatted prompt follows\n{}\n{}",
    "slot print_timing: id 0 | task 1 | {}",
    "srv  log_server_r: request: POST /v1/{} 127.0.0.1 200",
    "0.02.000.003 W slot update_slots: id  0 | task 6 | old: ... {}",
]
PLACES = [
    "/home/{0}/models/{1}.gguf", "/mnt/{0}/{1} {0}/x.gguf", "C:\\Users\\{0}\\{1}.gguf",
    "\\\\{0}\\share\\{1}.gguf", "~{0}/{1}.gguf", "smb://{0}/{1}", "{1}.gguf", "./{1}/{0}.jinja",
    "{0}@{1}.lan:/srv/x", "hf.co/{0}/{1}", "ssh://{0}@{1}/x", "{0}\\{1}",
]  # fmt: skip
HOSTS = [
    "Dec  1 03:12:07 {} llama-server[812]: ggml_metal: error: Insufficient Memory",
    "{}-7d9f-x2x4q llama-server | E Failed to connect to {}:50052",
    "[pod/{0}-6c/{0}] E srv load_model: failed to load model, 'x'",
    "E Failed to connect to {}:50052",
    "sudo: {} : TTY=pts/0 ; PWD=/srv ; USER=root ; COMMAND=/usr/bin/llama-server",
    "-rw-r--r-- 1 {0} {0} 4096 Dec  1 03:12 {1}.bin 12 MiB",
    "drwxrwx--- 2 {0} staff 68 Jan 1 {1}",
    "srv operator(): restored slot from file '{}.bin', 12.5 MiB",
    "slot save: slot_save_path /srv/{}/{}.bin",
    "CORP\\{}: Permission denied: failed to open {}",
    "{}@{}:~$ llama-server -m x.gguf",
    "uid=1000({0}) gid=1000({0}) groups=1000({0}),27({1})",
    "load_model: model alias {} with id {}",
    "llama_model_loader: - kv   3: general.name str = {} {}",
    "llama_model_loader: - kv   4: general.author str = {} {}",
    "print_info: general.name = {} {}",
    "| {} | 12 MiB | {} |",
    "GET /v1/models/{} 404 {}",
    "author: {} {}",
]


def _lines() -> Iterator[tuple[str, list[str]]]:
    for frame in MARKUP.values():
        for carrier in ("{}", "E llama_model_load: error loading model: {}", *SAID[:2]):
            words = [word(), word()]
            prompt, answer = (f"the {one} is for the model to {one}" for one in words)
            text = frame.format(prompt, answer)
            yield carrier.format(text if carrier == "{}" else text.replace("\n", "\\n")), words
    for frame in [*SAID, *HOSTS]:
        words = [word(), word()]
        yield frame.format(*words), words[: 1 + ("{1}" in frame or frame.count("{}") > 1)]
    for frame in PLACES:
        for matched in MATCHED:
            words = [word(), word()]
            yield matched.format(frame.format(*words)), words


PRIVATE_LINES = list(_lines())

COMMAND: dict[str, tuple[str, ...]] = {
    "path": (
        "-m", "-md", "-mm", "--lora", "--grammar-file", "--chat-template-file", "--log-file",
        "--slot-save-path", "--path", "--api-key-file", "--ssl-key-file", "--ssl-cert-file",
        "--models-dir", "--media-path", "--models-preset", "--lookup-cache-static",
    ),
    "name": ("-a", "--alias", "--tags", "--host", "--api-prefix", "-hf", "-hff", "-dr", "-mu"),
    "text": (
        "--grammar", "--chat-template", "--chat-template-kwargs", "-j", "-r", "--ui-config",
        "--mcp-servers-json", "--reasoning-budget-message", "--dry-sequence-breaker",
        "--override-kv", "-ot", "--cors-origins", "--unheard-of",
    ),
}  # fmt: skip


def _argv() -> tuple[list[str], list[str], list[str]]:
    """A command with something planted in every value; the private words, the secrets."""
    words, private, secret = ["/opt/{}/llama-server"], [word()], [key(20), key(20)]
    words[0] = words[0].format(private[0])
    for kind, flags in COMMAND.items():
        for flag in flags:
            one = word()
            private.append(one)
            told = {"path": f"/srv/{one}/{one}.gguf", "name": one, "text": f"a {one} of {{ x }}"}
            words += [flag, told[kind]]
    private += [word(), word()]
    words += ["--rpc", f"{private[-1]}:50052,10.9.8.7:50052", f"--alias={private[-2]}"]
    return (
        [*words, "--api-key", secret[0], "-hft", secret[1], "-c", "4096"],
        private,
        secret,
    )


ARGV, ARGV_PRIVATE, ARGV_SECRET = _argv()
PRIVATE = [w for _, words in PRIVATE_LINES for w in words] + ARGV_PRIVATE
ALL_SECRETS = [secret for _, secret in SECRETS] + ARGV_SECRET


def test_enough_is_planted() -> None:
    assert len(PRIVATE) + len(ALL_SECRETS) >= 300
    assert not set(PRIVATE) & package_words()


def test_nothing_known_is_in_the_list_of_words() -> None:
    assert not any(Vocabulary().knows(secret) for secret in ALL_SECRETS)


def found(planted: list[str], output: str) -> list[str]:
    return [one for one in planted if one in output]


# --- documents with everything in them -----------------------------------------------------------

LOG = [*SECRET_LINES, *(m.format(s) for m in MATCHED for s in SECRET_LINES)] + [
    line for text, _ in PRIVATE_LINES for line in text.split("\n")
]


def _failure(text: str) -> Any:
    named = example_diagnosis().verdict
    assert named is not None
    return replace(named.failure, text=text)


def planted_diagnosis() -> tuple[Diagnosis, list[str]]:
    one = {name: word() for name in (
        "engine", "version", "found", "model", "name", "problem", "holder", "system", "pool",
        "limit", "note", "device", "variable", "value", "why", "detail", "shown", "skipped",
        "purpose", "change", "not_tried",
    )}  # fmt: skip
    base = example_diagnosis()
    argv = tuple(ARGV)
    model = base.baseline.model
    assert model is not None
    baseline = replace(
        base.baseline,
        argv=argv,
        effective=dict(zip(ARGV[1::2], ARGV[2::2], strict=False)),
        visibility={"CUDA_VISIBLE_DEVICES": f"GPU-{one['value']}", one["variable"].upper(): "1"},
        engine=replace(
            base.baseline.engine,
            path=f"/opt/{one['engine']}/llama-server",
            version=f"version: 1 {one['version']}",
            found_by=f"the file {one['found']}",
        ),
        model=replace(
            model,
            path=f"/srv/{one['model']}/{one['model']}.gguf",
            name=f"{one['name']} assistant",
            problem=f"/srv/{one['problem']}: cut short",
        ),
        holders=tuple(replace(h, name=one["holder"]) for h in base.baseline.holders),
        system=f"Linux 6.1.0-{one['system']} x86_64 {one['system']}",
        pools=tuple(
            replace(
                p, note=f"of {one['note']}", usable=False, limited_by=f"memory of /{one['limit']}"
            )
            for p in base.baseline.pools
        ),
    )
    trials = tuple(
        replace(
            trial,
            argv=argv,
            purpose=f"{trial.purpose} {one['purpose']}",
            env={"MALLOC_ARENA_MAX": "1", "HF_TOKEN": ARGV_SECRET[1]},
            failure=trial.failure and _failure(SECRET_LINES[trial.n]),
            secondary=tuple(map(_failure, LOG[trial.n :: 40])),
            why_invalid=trial.why_invalid and f"process 1 ({one['why']}) took 1 MiB",
            log_tail=tuple(LOG) if trial.n == 2 else tuple(LOG[trial.n :: 90]),
            steps=tuple(
                replace(s, detail=f"HTTP 500: {one['detail']}", shown_by=f"slot x: {one['shown']}")
                for s in trial.steps
            ),
            skipped=(f"of {one['skipped']}",),
        )
        for trial in base.trials
    )
    assert base.recommendation is not None
    document = replace(
        base,
        baseline=baseline,
        trials=trials,
        verdict=base.verdict and replace(base.verdict, failure=_failure(LOG[-1])),
        recommendation=replace(
            base.recommendation, argv=argv, changes=(f"-a {one['change']} → -np 16",)
        ),
        not_tried=(f"-m /srv/{one['not_tried']}/x.gguf",),
        notes=(*SECRET_LINES, *(text for text, _ in PRIVATE_LINES)),
    )
    return document, list(one.values())


def planted_plan() -> tuple[Plan, list[str]]:
    base, one = example_plan(), [word() for _ in range(6)]
    return replace(
        base,
        argv=tuple(ARGV),
        model=replace(base.model, path=f"/srv/{one[0]}.gguf", name=one[1]),
        pools=tuple(
            replace(p, limited_by=f"memory of /{one[2]}.slice", knob=one[3], move_with=one[3])
            for p in base.pools
        ),
        notes=tuple(replace(n, text=f"{n.text} {one[4]}") for n in base.notes),
        advice=tuple(replace(a, argv=tuple(ARGV), change=f"-a {one[5]}") for a in base.advice),
    ), one


def planted_verification() -> tuple[Verification, list[str]]:
    base, one = example_verification(), [word() for _ in range(3)]
    return replace(
        base,
        target=f"http://{one[0]}:{ARGV_SECRET[0]}@{one[1]}.lan:8080/?api_key={ARGV_SECRET[1]}",
        failure=_failure(f'HTTP 500: {{"error":{{"message":"of {one[2]}"}}}}'),
        notes=tuple(SECRET_LINES),
        baseline=None,
        trial=None,
    ), one


def planted_explanation() -> tuple[Explanation, list[str]]:
    one = [word()]
    text = "\n".join(LOG).encode()
    return explain_chunks([text], f"/home/{one[0]}/server.log"), one


PLANTED = [planted_diagnosis, planted_plan, planted_verification, planted_explanation]
Maker = Callable[[], tuple[Any, list[str]]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("make", "form"),
    [
        *((make, form) for make in PLANTED for form in ("markdown", "html", "json")),
        (planted_diagnosis, "upstream"),
        (planted_diagnosis, "bundle"),
        (planted_plan, "bundle"),
    ],
)
def test_nothing_planted_is_shared(make: Maker, form: str, tmp_path: Path) -> None:
    document, private = make()
    if form == "json":
        output = encode(shared(document, Redactor())).decode()
    elif form == "bundle":
        output = "".join(p.read_text("utf-8") for p in write_all(document, tmp_path, Redactor()))
    else:
        output = render(document, ReportFormat(form), Redactor())
    assert found(ALL_SECRETS, output) == []
    assert found(PRIVATE + private, output) == []
    assert len(output) > 300


@pytest.mark.parametrize("make", PLANTED)
def test_no_secret_is_kept_or_printed(make: Maker, tmp_path: Path) -> None:
    document, _ = make()
    store = Store(tmp_path / "home")
    entry = store.save(document, Redactor())
    kept: Any = store.get(entry.id)
    for output in (
        encode(kept).decode(),
        encode(store.list()[0]).decode(),
        terminal(kept, width=100),
        store.path.read_bytes().decode("utf-8", "replace"),
    ):
        assert found(ALL_SECRETS, output) == []
    # Paths stay readable in what is not shared.
    if isinstance(kept, Diagnosis):
        assert ARGV[2] in terminal(kept, width=100)


def test_no_secret_of_a_log_is_explained() -> None:
    for line in [*SECRET_LINES, *(m.format(s) for m in MATCHED for s in SECRET_LINES)]:
        document = explain_chunks([line.encode()], "-")
        assert found(ALL_SECRETS, encode(document).decode()) == []
        assert found(ALL_SECRETS, terminal(document, **screen_options())) == []


def screen_options() -> dict[str, Any]:
    return {"width": 100, "colour": False, "encoding": "utf-8"}


def test_no_secret_of_a_command_is_printed(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    header = Gguf().string("general.architecture", "llama").string("general.name", TOKENS[0])
    for name in ("author", "url", "description", "license.link", "source.url"):
        header.string(f"general.{name}", RANDOM.choice(SECRET_LINES))
    header.strings("general.tags", SECRET_LINES).string("tokenizer.chat_template", TOKENS[3])
    header.strings("tokenizer.ggml.tokens", TOKENS)
    for name, size in (
        ("block_count", 1), ("context_length", 4096), ("embedding_length", 64),
        ("feed_forward_length", 128), ("attention.head_count", 4), ("vocab_size", len(TOKENS)),
    ):  # fmt: skip
        header.number(f"llama.{name}", size)
    for name, shape in (("token_embd", [64, len(TOKENS)]), ("output_norm", [64])):
        header.tensor(f"{name}.weight", shape)
    model.write_bytes(header.build(data=1 << 16))
    words = ["llama-server", "-m", str(model), *ARGV[3:]]
    script = tmp_path / "serve.sh"
    script.write_text("\n".join([*map("# {}".format, SECRET_LINES), shlex.join(words)]))
    outputs = []
    for document in (
        check.check(words, check.CheckOptions(assume_build=10434)),
        check.check_file(script, check.CheckOptions(assume_build=10434)),
    ):
        outputs += [encode(document).decode(), terminal(document, **screen_options())]
        outputs += check.fixed_lines(document)
    # An unknown option is refused, nothing is fetched here, other models are not there.
    for flag in ("--unheard-of", "-hf", "-hff", "-dr", "-mu", "-md", "-mm"):
        at = words.index(flag)
        del words[at : at + 2]
    words = [word for word in words if not word.startswith("--alias=")]
    keys = tmp_path / "keys"
    keys.write_text("\n".join(TOKENS))
    words[words.index("--api-key-file") + 1] = str(keys)
    planned = plan.plan(words, plan.PlanOptions(assume_build=10434), store=Store(tmp_path / "home"))
    outputs += [encode(planned).decode(), terminal(planned, **screen_options())]
    for output in outputs:
        assert found(ALL_SECRETS, output) == []


def test_no_secret_is_in_an_error() -> None:
    session = Session(Argv(["verify"], ARGV))
    for line in [*SECRET_LINES, *ARGV]:
        assert found(ALL_SECRETS, session.line(f"cannot use {line} here")) == []


# --- what is needed stays ------------------------------------------------------------------------


def test_the_command_says_all_that_is_known() -> None:
    words = shlex.split(
        "llama-server -m /home/x/m.gguf -c 65536 -np 8 -ctk q8_0 -ngl 99 -fa on -sm row -ts 3,1"
        " -dev CUDA0,CUDA1 --host 0.0.0.0 --port 8080 -ot 'blk\\.(1|2)\\.ffn_.*_exps=CPU'"
        " -hf unsloth/Qwen3.6-27B-GGUF:Q4_K_M --no-mmap --rpc worker-1:50052 --temp 0.6 -lv 4"
        " --override-kv tokenizer.ggml.add_bos_token=bool:false --chat-template chatml --jinja"
    )
    told = told_command(words, Vocabulary())
    assert told == tuple("MODEL.gguf" if word == "/home/x/m.gguf" else word for word in words)


def test_a_command_in_a_log_is_told_as_one() -> None:
    lines = [
        "ExecStart=/opt/acme/llama-server -m /srv/acme/x.gguf -a acme -np 4",
        "+ llama-server --api-key acme 'not closed",
    ]
    assert told_lines(lines, Vocabulary()) == (
        "ExecStart=llama-server -m MODEL.gguf -a NAME -np 4",
        "… 1 line not needed here",
    )


def test_every_flag_of_the_table_is_told() -> None:
    for build in (10092, 10434):
        for flag in builtin_flags(build).flags:
            for name in (*flag.names, *flag.negatives):
                assert told_command([name], Vocabulary()) == (name,)


def test_how_many_lines_were_left_out_is_told() -> None:
    lines = ["a secret", "another", "ggml_vulkan: device lost", "more"]
    once = told_lines(lines, Vocabulary())
    assert once == (
        "… 2 lines not needed here",
        "ggml_vulkan: device lost",
        "… 1 line not needed here",
    )
    assert told_lines(once, Vocabulary()) == once


NEEDED = """
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 598.50 MiB on device 0: cudaMalloc failed: out of memory
0.01.289.827 E alloc_tensor_range: failed to allocate CUDA0 buffer of size 193608946688
E llama_init_from_model: failed to initialize the context: failed to allocate buffer for rs cache
ggml_gallocr_reserve_n: failed to allocate Vulkan1 buffer of size 1073741824
CUDA error: out of memory
  current device: 0, in function launch_fattn at <dir>/fattn-common.cuh:1053
<dir>/ggml-cuda.cu:97: ROCm error
GGML_ASSERT(tensor->data != NULL && "tensor not allocated") failed
terminate called after throwing an instance of 'std::bad_alloc'
Aborted (core dumped)
Segmentation fault (core dumped)
ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory
radv/amdgpu: Failed to allocate a buffer:
error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)
ggml-rpc.cpp:509: Remote RPC server crashed or returned malformed response
RPC server version mismatch: 4.0.1
[37723] 52.17.102.129 W decode: failed to find a memory slot for batch of size 128
llama_kv_cache: size = 23480.00 MiB (150272 cells,  40 layers,  1/1 seqs), K (f16): 11740.00 MiB, V (f16): 11740.00 MiB
load_tensors: offloaded 33/33 layers to GPU
print_info: EOS token             = 151645 '<|im_end|>'
- CUDA0   : NVIDIA GeForce RTX 3090 (24123 MiB, 23755 MiB free)
- Vulkan0: llvmpipe (LLVM 15.0.6, 256 bits) (2048 MiB, 2048 MiB free)
Vulkan0: Intel(R) HD Graphics 520 (SKL GT2) (Intel open-source Mesa driver) | uma: 1 | fp16: 1 | warp size: 32
|   - CUDA0 (RTX 3090)   | 24126 = 23403 + (25610 = 15621 +    9152 +     836) +      -24888 |
version: 1 (571d0d5) built with GNU 13.3.0 for x86_64-linux-gnu, commit 571d0d5a8be39f1c2d4e5f60718293a4b5c6d7e8
system_info: n_threads = 8 (n_threads_batch = 8) / 16 | CUDA : ARCHS = 520 | USE_GRAPHS = 1 | LLAMAFILE = 1 | REPACK = 1 |
0.12.345.678 I common_params_fit_impl: projected to use 25610 MiB of device memory vs. 23403 MiB of free device memory
prompt_save:  - saving prompt with length 215, total state size = 2460.007 MiB
slot print_timing: id  1 | task 0 | prompt eval time =      49.92 ms /    20 tokens (    2.50 ms per token,   400.61 tokens per second)
srv    load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'
Out of memory: Killed process 4242 (llama-server) total-vm:123456kB, anon-rss:4096kB
llama-server -hf unsloth/Qwen3.6-27B-GGUF:Q4_K_M -c 65536 -np 8 -ctk q8_0 -ctv q8_0 -ngl 99 --jinja
0   libggml-base.0.9.5.dylib            0x000000010579936c ggml_print_backtrace + 276
E llama_model_load: error loading model: unknown model architecture: 'qwen99moe'
E llama_model_load: error loading model: missing tensor 'blk.3.ffn_frobnicate_exps.weight'
error: invalid argument: --frobnicate
llama-server: error while loading shared libraries: libcudart.so.12: cannot open shared object file: No such file or directory
ggml_backend_metal_frobnicate: error: failed to create command queue
llama-server: symbol lookup error: undefined symbol: ggml_backend_frobnicate
NVRM: Xid (PCI:0000:01:00): 79, pid=4242, name=llama-server, GPU has fallen off the bus.
kernel: llama-server[4242]: segfault at 0 ip 00007f00 sp 00007f01 error 4 in libggml-base.so.0
""".strip().splitlines()  # noqa: E501  lines of logs


@pytest.mark.parametrize("name", ["ana", "fit", "slot0", "memory", "device", "rtx", "cuda-box"])
def test_needed_lines_stay(name: str) -> None:
    """Whoever the user and the host are, and whatever was said before."""
    base = example_diagnosis()
    said = (
        "INPUT: tell me",
        f"Dec  1 03:12:07 {name} x[1]: a",
        f"/home/{name}/x.gguf",
        "prompt: 'x",
    )
    trials = (replace(base.trials[0], log_tail=(*said, *NEEDED)), *base.trials[1:])
    told = shared(replace(base, trials=trials), Redactor(users=[name], hosts=[name])).trials[0]
    assert [line for line in NEEDED if line not in told.log_tail] == []


@pytest.mark.sampled(5)
@pytest.mark.timeout(40)
@pytest.mark.parametrize(
    "unit",
    ["a+", "/home/x/", "'a ", "a.gguf ", "… ", "<dir>/", '"x', "a1b2", "USER: ", "### Human:",
     "-rw-r--r-- 1 a ", "[pod/a/", "author: ", "CORP\\a ", "general.a = ", "0x1", "é"],
)  # fmt: skip
def test_what_is_shared_takes_linear_time(unit: str) -> None:
    """A quadratic pattern would run into the test's time limit here."""
    text = unit * (200_000 // len(unit))
    Vocabulary().plain(text)
    told_lines([text], Vocabulary())


@pytest.mark.parametrize(
    "document",
    [example_diagnosis(), example_verification(), example_explanation(), example_plan()],
    ids=lambda document: type(document).__name__,
)
def test_shared_twice_is_shared_once(document: msgspec.Struct) -> None:
    once = shared(document, Redactor())
    assert shared(once, Redactor()) == once


def test_figures_and_outcomes_are_untouched() -> None:
    document = example_diagnosis()
    told = shared(document, Redactor())
    assert told.boundary == document.boundary
    assert told.slopes == document.slopes
    assert [t.buffers for t in told.trials] == [t.buffers for t in document.trials]
    assert told.verdict == document.verdict
    assert json.loads(encode(told))["schema"] == "arriero.diagnosis/1"
