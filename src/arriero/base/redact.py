"""Taking secrets out of everything, and everything personal out of what is written for sharing.

Two levels. *Secrets* (keys, tokens, passwords) leave every text that Arriero prints, records or
keeps. What is *shared* also loses paths, user and host names, addresses, serials and prompts, and
keeps what a reader of an upstream issue needs: base names of files, source lines, sizes, devices,
flags, builds. Every pattern either fails within a bounded distance or consumes what it matched, so
that the time is linear in the text whatever the text is.
"""

from __future__ import annotations

import getpass
import html
import ipaddress
import json
import platform
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, quote_plus

import msgspec

SECRET: Final = "***"  # noqa: S105  what stands in a secret's place
PROMPT: Final = "<prompt>"
DIRECTORY: Final = "<dir>"
USER: Final = "<user>"

_T = TypeVar("_T")
_KEY_FILE_CEILING: Final = 1 << 16
_NAMES_CEILING: Final = 512
_DEPTH_CEILING: Final = 64


# -- words ------------------------------------------------------------------------------------


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FIELD_WORDS: Final = _words(
    """
    admin api app apps args bin buffer build builds cache client cmake cmn command compute
    config content context conv cpu cuda data debian debug default dev device dir docker email
    error exit failed false file files ggml gguf gpu graph hip home host http https info init
    input inst kernel kv lib linux llama load local localhost log logs loop mac main mem memory
    metal mnt model models moe nan none null opt output path print proc prompt public python
    python3 que queue redacted res response rocm root router rpc rs run running secrets seq
    serial server shared slot slots spec src srv start stop swa sycl sys system task tasks temp
    test tests text tmp token tokens true ubuntu unknown update user users usr uuid var version
    vm vulkan warning weights windows worker workers
    """
)
"""Words of llama.cpp's own lines. A user or host of such a name is only taken out where it stands
as one: in a path, a log prefix, an address."""
_NOT_SECRET: Final = frozenset({"", "none", "null", "true", "false", "empty", SECRET})
_ROUTES: Final = _words(
    """
    apply-template chat completion completions control cors-proxy detokenize embedding embeddings
    health infill lora-adapters messages metrics models props rerank reranking responses slots
    tokenize tools v1 api audio transcriptions score load unload sse stream count_tokens
    input_tokens
    """
)
_BINARIES: Final = _words(
    """
    arriero bash cmake docker env gdb ggml-rpc-server ggml-rpc-server-vulkan koboldcpp llama-bench
    llama-cli llama-fit-params llama-server llama-server-vulkan llamafile nice numactl nvidia-smi
    ollama podman python python3 rpc-server server sh taskset
    """
)
_SUFFIX: Final = re.compile(
    r"\.(?:gguf|bin|safetensors|so(?:\.\d+){0,4}|dll|dylib|cuh?|c|cc|cpp|h|hpp|mm?|comp|metal|spv|"
    r"txt|log|jsonl?|jinja2?|gbnf|md|html?|csv|db|sqlite|sh|bat|cmd|ps1|exe|py|toml|ya?ml|ini|"
    r"conf|cfg|service|pem|key|crt|cert|png|jpe?g|gif|webp|wav|mp3|mp4|zip|tar|gz|xz|zst|whl|"
    r"part|tmp|sock|pid|lock|cache|dat|core|max|current|events|stat)\Z",
    re.IGNORECASE,
)
_DATA_SUFFIX: Final = re.compile(
    r"\.(?:gguf|bin|safetensors|txt|log|jsonl?|jinja2?|csv|db|sqlite|pem|key|png|jpe?g|wav|mp3)\Z",
    re.IGNORECASE,
)
_FLAG: Final = (
    r"(?:-hft|--(?:[a-z0-9]{1,20}-){0,4}"
    r"(?:api-?keys?|token|password|passwd|passphrase|secret|credentials?))"
)
_NAME: Final = (
    r"api[_-]?keys?|access[_-]?key(?:[_-]?id)?|secret(?:[_-]?(?:access)?[_-]?key)?|passw(?:or)?d"
    r"|passphrase|private[_-]?key|credentials?"
    r"|(?:auth|access|refresh|bearer|session|hf|id)[_-]?token"
)
_SECRET_FLAGS: Final = re.compile(_FLAG + r"\Z")
_PROMPT_FLAGS: Final = _words(
    "-p --prompt -sys --system-prompt -r --reverse-prompt --in-prefix --in-suffix "
    "--mcp-servers-json"
)
_SECRET_NAME: Final = re.compile(
    rf"(?:{_NAME}|hft|authorization|cookie|(?:\A|_)(?:key|token|secret|pass|pat))\Z", re.IGNORECASE
)
_PROMPT_NAMES: Final = _words(
    """
    prompt negative_prompt system_prompt generation_prompt formatted_prompt content messages
    generated choices delta reasoning_content arguments stop grammar json_schema input inputs
    input_prefix input_suffix input_extra query documents system instruction tools tokens
    """
)

# -- shapes of secrets ------------------------------------------------------------------------

# A word may also begin right after an ANSI colour or an escaped newline inside a JSON string.
_START: Final = r"(?:(?<![A-Za-z0-9_])|(?<=\[\dm)|(?<=\[\d\dm)|(?<=[;\[]\d\d\dm)|(?<=\\[nrt]))"
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*+"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)
_TOKEN: Final = re.compile(
    r"hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
    r"|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_-]{30,}|xox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|hooks\.slack\.com/services/[A-Za-z0-9/]{10,}"
    r"|eyJ[A-Za-z0-9_-]{12,}(?:\.[A-Za-z0-9_-]*){0,4}"
    rf"|{_START}sk-[A-Za-z0-9_-]{{16,}}"
)
_BEARER: Final = re.compile(r"(\bBearer(?:\s|%20|\+){1,4})[A-Za-z0-9._~+/=-]{4,}", re.IGNORECASE)
# The server prints the last characters of its only key.
_KEY_TAIL: Final = re.compile(r"(api_keys: )\*+[^\s*]{1,16}")
_USERINFO: Final = re.compile(r"(:(?:\\?/){2})[^\s/\"'<>?#\\]{1,512}@")
_QUERY: Final = re.compile(
    r"([?&;](?:[\w.-]{0,40}(?:token|key|sig|signature|secret|password|passwd|credentials?|auth|"
    r"policy)|X-(?:Amz|Goog)-[\w-]{1,40})=)[^&\s\"'<>#\\]+",
    re.IGNORECASE,
)
_SEPARATOR: Final = r"""(?:\\*["'])?(?:\s{0,4}[=:,]\s{0,4}|(?:\s|\\\r?\n){1,40})(?:-\s{1,4})?"""
_ASSIGN: Final = r"""(?:\\*["'])?\s{0,4}[=:]\s{0,4}+"""
_MIXED: Final = (  # twelve or more characters, letters and digits among them
    r"""(?=["'\\]{0,4}[\w.+/=-]{12})(?=["'\\]{0,4}[A-Za-z_.+/=-]{0,64}\d)"""
    r"""(?=["'\\]{0,4}[\d_.+/=-]{0,64}[A-Za-z])"""
)
_KEYED: Final = re.compile(
    rf"(?<![\w-]){_FLAG}(?![\w-]){_SEPARATOR}"
    rf"|(?i:{_NAME}){_ASSIGN}(?!\d{{1,4}} keys loaded)"
    rf"|(?<=[A-Z0-9])_(?:KEY|TOKEN|SECRET|PASS|PAT|PASSWORD){_ASSIGN}"
    rf"|(?<![A-Za-z0-9_])(?:TOKEN|SECRET|PASSWORD|PASS)="
    rf"|(?<![\w-])token{_ASSIGN}{_MIXED}"
    r"|(?<![\w-])(?:-u|--user)[ =][\"']?[^\s:\"']{1,64}:(?!/)"
)
_HEADER: Final = re.compile(
    r"""((?:proxy-)?authorization|(?:set-)?cookie)(?:\\*["'])?\s{0,4}[:=]\s{0,4}""", re.IGNORECASE
)
_HEADER_VALUE: Final = re.compile(r"""[^"'\\\n\r]*""")
_BARE: Final = re.compile(r"""(?:\\[^nrtu"'\\\s]|\\ |[^\s"'\\&;|<>])*""")
_OPENING: Final = re.compile(r"""(\\*)(["'`])""")
_QUOTES: Final = {q: re.compile(rf"(?<!\\)(\\*){q}") for q in "\"'`"}


def _string_end(text: str, opening: re.Match[str]) -> int:
    """Where the string that ``opening`` begins ends, at whatever depth of JSON escaping.

    An unclosed string ends with its line.
    """
    depth = len(opening[1])
    line_end = text.find("\n", opening.end())
    limit = len(text) if line_end < 0 else line_end
    for run in _QUOTES[opening[2]].finditer(text, opening.end(), limit):
        if len(run[1]) % (2 * (depth + 1)) == depth:
            return run.start()
    return limit


def _value_span(text: str, start: int, bare: re.Pattern[str] = _BARE) -> tuple[int, int]:
    """First and last index of the value at ``start``, without its quotes."""
    if opening := _OPENING.match(text, start):
        return opening.end(), _string_end(text, opening)
    found = bare.match(text, start)
    return start, found.end() if found else start


def _rewrite(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """The text with each span replaced; spans rise and do not overlap."""
    parts: list[str] = []
    at = 0
    for start, end, new in spans:
        parts += (text[at:start], new)
        at = end
    return "".join((*parts, text[at:]))


def _keyed_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Values that follow the name of a secret."""
    at = 0
    while found := _KEYED.search(text, at):
        start, end = _value_span(text, found.end())
        if text.startswith("--", start):  # "-hft, --hf-token TOKEN"
            at = start
            continue
        at = max(end, found.end())
        if text[start:end].strip("[]{},").lower() not in _NOT_SECRET:
            yield start, end, SECRET


def _header_spans(text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    while found := _HEADER.search(text, at):
        start, end = _value_span(text, found.end(), _HEADER_VALUE)
        at = max(end, found.end())
        if end > start:
            yield start, end, SECRET


def _variants(secret: str) -> set[str]:
    """The ways a literal is written: as it is, in JSON, in a URL, in HTML, in a shell."""
    escaped = json.dumps(secret)[1:-1]
    plain = json.dumps(secret, ensure_ascii=False)[1:-1]
    encoded = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    lower = {re.sub(r"%[0-9A-F]{2}", lambda m: m[0].lower(), text) for text in encoded}
    return {
        secret,
        escaped,
        plain,
        json.dumps(escaped)[1:-1],
        repr(secret)[1:-1],
        html.escape(secret),
        secret.replace("'", "'\"'\"'"),
        secret.replace("'", "'\\''"),
        *encoded,
        *lower,
    }


def secrets_of(argv: Sequence[str], env: Mapping[str, str]) -> frozenset[str]:
    """The secrets that one command carries: in its flags, its key file and its environment.

    A list of keys counts as a whole and key by key. A key file that cannot be read gives none.
    """
    found: set[str] = set()
    for flag, value in zip(argv, (*argv[1:], ""), strict=True):
        name, equals, rest = flag.partition("=")
        value = rest if equals else value
        if _SECRET_FLAGS.match(name) or (equals and _SECRET_NAME.search(name)):
            found |= {value, *value.split(",")}
        elif name == "--api-key-file":
            found |= _key_file(value)
    for name, value in env.items():
        if name == "LLAMA_ARG_API_KEY_FILE":
            found |= _key_file(value)
        elif _SECRET_NAME.search(name):
            found |= {value, *value.split(",")}
    return frozenset(value for value in found if value.lower() not in _NOT_SECRET)


def _key_file(path: str) -> set[str]:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_KEY_FILE_CEILING).splitlines()
    except (OSError, ValueError):
        return set()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


# -- shapes of what is personal ----------------------------------------------------------------

_ANSI: Final = re.compile(r"(?:\x1b|\\u001b|\\x1b|\\033)\[[0-9;]{0,20}[A-Za-z]")
_HOST: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_SEP: Final = r"(?:\\?/|%2[Ff])"
_ROOT: Final = r"(?:\\?/|%2[Ff]|\\{1,4})"
_BACK: Final = r"(?:\\?/|%2[Ff]|\\{1,4}(?![nrt\"']))"
_SEGMENT: Final = r"""(?:[^\s/\\"'`:,;|<>(){}\[\]?&%]|%(?!2[Ff])|\\ )"""
_UNIX_START: Final = (
    r"(?:(?<![\w.~/%)\]<>\\-])|(?<=[\s\"'=,;:(]-[A-Za-z])|(?<=\\[nrt\"'])|(?<=(?<!dir)>))"
)
_PLACE: Final = re.compile(
    rf"(?P<url>(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{{1,15}}:(?:\\?/){{2}}(?!/)"
    r"(?:\\/|[^\s\"'<>`\\^{}|])*)"
    rf"|(?P<file>file:(?:\\?/){{2,3}})(?P<filepath>(?:[A-Za-z]:)?(?:{_SEP}|{_SEGMENT})+)"
    r"|(?P<windows>(?:\\{2,4}\?\\{1,2})?(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))[A-Za-z]:(?:\\{1,4}|/(?!/))"
    r"(?:[^\\/:*?\"<>|\r\n\t,;']{0,120}(?<! )[\\/]{1,4}){0,40}[^\\/:*?\"<>|\s,;']{0,120})"
    r"|(?P<unc>(?<![\w\\:])(?:\\\\){1,4}[A-Za-z0-9_.$?-]{2,64}"
    r"(?:\\{1,4}[^\\/:*?\"<>|\r\n\t,;']{1,120}(?=\\))*\\{1,4}[^\\/:*?\"<>|\s,;']{0,120})"
    rf"|(?P<remote>(?<![\w./@+-])(?:[\w.+-]{{1,64}}@)?{_HOST}(?<=[A-Za-z0-9_.-]{{2}}):)(?={_SEP}{_SEGMENT})"
    rf"|(?P<home>(?:{_SEP}mnt{_SEP}[a-z])?{_ROOT}(?:home|[Uu]sers){_ROOT}{_SEGMENT}+"
    rf"(?:{_BACK}+{_SEGMENT}*)*)"
    rf"|(?P<unix>{_UNIX_START}(?:~[\w.-]{{0,64}}|\.{{1,2}})?(?:{_SEP}+{_SEGMENT}+)+{_SEP}?)"
    r"|(?P<relative>(?<![\w./@+~%>-])[\w.+@][\w.+@-]{0,99}"
    r"(?:(?:/|\\(?![nrtu\"\\]))[\w.+@-]{1,100}){1,20})"
)
_MORE: Final = re.compile(
    rf"(?: (?![-.~])(?:(?!=){_SEGMENT}){{1,60}}){{1,4}}"
    rf"(?:(?:{_SEP}+{_SEGMENT}+)+|(?<=\.gguf)|(?<=\.json)|(?<=\.log))"
)
_HOME_USER: Final = re.compile(
    rf"(?:{_ROOT}(?:home|[Uu]sers)|{_SEP}(?:run{_SEP})?media){_ROOT}("
    rf"{_SEGMENT}{{1,64}}(?:(?<!/) {_SEGMENT}{{1,30}}(?=\\|/))?)"
    r"|(?<![\w./])~([A-Za-z][\w.-]{0,63})(?=/)"
    r"|(?i:(?<![A-Za-z])(?:user(?:name)?|logname|login)(?:=|\\*[\"']\s{0,2}[:=]\s{0,2}\\*[\"'])"
    r"|(?<!\w)uid=\d{1,10}\(|(?<![\w-])-u )([A-Za-z][\w.-]{0,63})"
)
_JOURNAL: Final = re.compile(
    r"(?:^|\\n|\n)(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,16})"
    rf" ({_HOST}) [\w./()@-]{{1,48}}(?:\[\d{{1,9}}\])?: "
)
_HOSTNAME: Final = re.compile(
    r"(?i:(?:hostname|computername|nodename)(?:\\*[\"'])?\s{0,2}[=:]\s{0,2}(?:\\*[\"'])?"
    rf"({_HOST}))|Linux ({_HOST}) \d+\.\d+\.\d+\S{{0,40}} #|Darwin ({_HOST}) \d+\.\d+\.\d+"
)
_LOGIN: Final = re.compile(rf"(?<![\w.+-])([\w.-]{{1,32}})@({_HOST})(?=:[~/]|[ ]?[$#%] )")
_WORKER: Final = re.compile(rf"RPC\d{{0,3}}\[(?:\[([0-9A-Fa-f:]{{2,45}})\]|({_HOST})):\d{{1,5}}\]")
_WORKERS: Final = re.compile(r"(?:--rpc|LLAMA_ARG_RPC|\brpc_servers?)" + _SEPARATOR)
_ENDPOINT: Final = re.compile(
    rf"(?:\[([0-9A-Fa-f:]{{2,45}})\]|({_HOST})):\d{{1,5}}(?=[,;\s\"'\\]|\Z)"
)
_PEER: Final = re.compile(
    r"(?:connect(?:ed|ing|ion)?|endpoint|server|worker|peer|remote|hostname|--host|hosted)"
    rf"(?: to| at| from| on|:|=)? ?:?[\"']?({_HOST}):\d{{2,5}}(?!\d)"
)
_MACHINE: Final = re.compile(
    r"(?<![\w-])(?:(?:DESKTOP|LAPTOP|WIN)-[A-Z0-9]{5,12}|ip-\d{1,3}(?:-\d{1,3}){3}"
    r"|[\w-]{1,40}-(?:MacBook|iMac|Mac-?[Mm]ini|Mac-?Studio|Mac-?Pro)[\w-]{0,20})(?![\w-])"
)
_EMAIL: Final = re.compile(rf"(?<![\w.+%-])([\w.+%-]{{1,64}})@({_HOST})")
_MAC: Final = re.compile(r"(?<![\w:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])")
_UUID: Final = re.compile(
    r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?![0-9A-Za-z])"
)
_SERIAL: Final = re.compile(
    r"(\bserial(?:[ _-]?(?:no|num|number))?[\"']?\s{0,3}[:=#]\s{0,3}[\"']?)"
    r"(?=[\w-]{0,40}\d)[\w-]{4,40}",
    re.IGNORECASE,
)
_V6: Final = re.compile(
    r"(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:]{2,39}(?:(?:\d{1,3}\.){3}\d{1,3})?"
    r"(?:%[\w.-]{1,16})?(?![\w:])"
)
_V4: Final = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]?\d)(?![A-Za-z_])")
# llama.cpp's own time stamps (minutes.seconds.milliseconds.microseconds) look like addresses.
_STAMP: Final = re.compile(r"\d{1,3}\.\d\d\.\d{3}\.\d{3}\Z")
_STAMPED: Final = re.compile(r"\s{1,3}[IWED](?:\s|\Z)")
_VERSION: Final = re.compile(r"(?:version|driver|release|v|ver\.?)[ :=\"']{0,3}\Z", re.IGNORECASE)
_DOMAIN: Final = re.compile(
    r"(?<![\w.@/\\-])(?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\.){1,8}"
    r"(?:lan|local|localdomain|internal|intranet|corp|home|private|arpa|com|net|org|edu|gov|mil|"
    r"int|info|biz|io|ai|dev|app|cloud|tech|online|xyz|site|de|uk|fr|es|it|nl|eu|us|ca|jp|cn|br|"
    r"au|ch|at|be|dk|fi|no|pt|ru|kr|mx|ar|cl|za|nz|ie|gr|cz|hu|ro|tr|ua|il|sg|hk|tw)"
    r"(?![\w-]|\.[\w])",
    re.IGNORECASE,
)
_PRIVATE: Final = re.compile(
    r"\.(?:lan|local|localdomain|internal|intranet|corp|home|private|arpa|ts\.net)\Z"
)
_PUBLIC: Final = re.compile(
    r"(?:[\w-]+\.)*(?:github\.com|githubusercontent\.com|ghcr\.io|huggingface\.co|hf\.co|ggml\.ai|"
    r"ggml\.org|pypi\.org|pythonhosted\.org|modelscope\.cn|example\.(?:com|org|net)|"
    r"docker\.io|nvidia\.com|amd\.com|intel\.com|khronos\.org|python\.org|jinja\.palletsprojects\.com)"
    r"\Z",
    re.IGNORECASE,
)
_ALIAS: Final = re.compile(r"(?:host|worker)-\d{1,4}\Z")
_SYSTEM: Final = re.compile(
    r"/dev/(?:dri(?:/\w+)?|kfd|nvidia\w*|null|shm|stdin|stdout|stderr)\Z"
    r"|/proc/(?:self|meminfo|cpuinfo|mounts|\d+)(?:/\w+)*\Z|/sys/(?:class|module|kernel)(?:/[\w.:-]+)*\Z"
)

# -- prompts ----------------------------------------------------------------------------------

_JSON_NAME: Final = re.compile(
    rf"""(?<!\\)(\\*)(["'])(?:{"|".join(sorted(_PROMPT_NAMES))})\1\2\s{{0,4}}:\s{{0,4}}"""
)
_BRACKETS: Final = re.compile(r"""(?<!\\)(\\*)"|[\[\]{}]""")
_PROMPT_FLAG: Final = re.compile(
    r"(?<![\w-])(?:--(?:system-)?prompt|--reverse-prompt|--in-prefix|--in-suffix|-sys"
    r"|--mcp-servers-json|-[pr](?=\s{1,4}\\*[\"']))(?![\w-])" + _SEPARATOR
)
# What follows these in a llama-server log is text of a request or of an answer, to the end of the
# line and over the lines that carry no prefix of their own.
_SPOKEN: Final = re.compile(
    r"(?:next token:\s{0,8}\d{1,9}(?= ')"
    r"|draft candidate [^'\n]{0,60}(?=')"
    r"|prefill token: -?\d{1,9} ="
    r"|(?:Parsed message|converted request|http: streamed chunk|Converted grammar|JSON schema"
    r"|Tool call mismatch|Input prompt|Chat prompt|INPUT|last read|Parsing input[^:\n]{0,60}"
    r"|Generated text|unparsed [\w-]{1,30} output|Grammar \(\w{1,30}\)|MCP '[^'\n]{0,80}' stderr):"
    r"|awaiting trigger after token \d{1,9}(?= \()"
    r"|(?<![\w])(?:old|new): \.\.\."
    r"|(?<![\w-])(?:request|response|body):(?= {0,2}(?:[\[{\"]|data:))"
    r"|(?<![\w-])(?:(?:formatted_|system_|user_|generation_)?prompt|generated(?: text)?)"
    r" ?[:=](?= ?['\"]))"
    r"(?P<said>[^\n]+)"
)
_PREFIXED: Final = re.compile(
    r"[^\n]{0,120}?\b\d{1,5}\.\d\d\.\d{3}\.\d{3} [IWED] |(?:\[\d{1,5}\] )?"
    r"(?:slot|srv|que|res|cmn|spec|main|llama_|llm_|ggml|common_|print_info|load|sched_reserve"
    r"|graph_reserve|decode|init|update|prompt_save|alloc_|set_|request:|response:|prompt:|INFO|WARN"
    r"|ERR|RPC|[A-Z][a-z]{2} [ \d]\d \d\d:)|\s{0,4}[\]}]|\{"
)
_SPOKEN_LINES: Final = 400
# A turn of a conversation in the markup of a chat template, unless log lines lie in between.
_TURN: Final = re.compile(
    r"(?P<open><\|im_start\|>(?:system|user|assistant|tool|developer)|<start_of_turn>(?:user|model)"
    r"|<\|start_header_id\|>\w{1,20}<\|end_header_id\|>|\[INST\])"
    r"(?P<said>(?:(?!<\|im_(?:start|end)\|>|<(?:start|end)_of_turn>|<\|eot_id\|>|\[/?INST\]"
    r"|\n[^\n]{0,60}\d\.\d\d\.\d{3}\.\d{3} [IWED] )[\s\S]){1,20000}+)"
    r"(?P<close><\|im_end\|>|<end_of_turn>|<\|eot_id\|>|\[/INST\])"
)


def _json_end(text: str, start: int, depth: int, limit: int) -> int:
    """End of the array or object at ``start``, or -1. ``depth`` is that of its quotes' escaping."""
    nested, in_string = 0, False
    for token in _BRACKETS.finditer(text, start, limit):
        if token[1] is not None:
            in_string ^= len(token[1]) % (2 * (depth + 1)) == depth
        elif not in_string:
            nested += 1 if token[0] in "[{" else -1
            if nested <= 0:
                return token.end()
    return -1


def _prompt_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Values of JSON members that hold a request's or an answer's text. Numbers stay."""
    at, limit = 0, len(text)
    while found := _JSON_NAME.search(text, at):
        start = at = found.end()
        if text[start : start + 1] in {"[", "{"}:
            end = _json_end(text, start, len(found[1]), limit)
            if end < 0:
                # Unbalanced once is unbalanced for good: look no further than the line from now on.
                line = text.find("\n", start)
                end = len(text) if line < 0 else line
                limit = min(limit, end)
            quotes = found[1] + found[2]
            at = end
            yield start, end, f"{quotes}{PROMPT}{quotes}" + "\n" * text.count("\n", start, end)
        elif opening := _OPENING.match(text, start):
            at = _string_end(text, opening)
            if at > opening.end():
                yield opening.end(), at, PROMPT


def _flag_spans(text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    while found := _PROMPT_FLAG.search(text, at):
        start, end = _value_span(text, found.end())
        at = max(end, found.end())
        if end > start:
            yield start, end, PROMPT


def _spoken_spans(text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    while found := _SPOKEN.search(text, at):
        start, at = found.span("said")
        for _ in range(_SPOKEN_LINES):
            if at >= len(text) or _PREFIXED.match(text, at + 1):
                break
            line = text.find("\n", at + 1)
            at = len(text) if line < 0 else line
        yield start, at, " " + PROMPT + "\n" * text.count("\n", start, at)


# -- the redactor -----------------------------------------------------------------------------


@cache
def _free_fields(struct: type[msgspec.Struct]) -> frozenset[str]:
    """Fields of a document that may hold any text: not those whose values are fixed words."""
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)  # noqa: S101  for the type checker
    fixed = (msgspec.inspect.LiteralType, msgspec.inspect.EnumType)
    return frozenset(field.name for field in info.fields if not isinstance(field.type, fixed))


class Redactor:
    """Takes out what must not be read by others, and remembers what it found.

    One redactor serves one document or one bundle: a name found anywhere (a user in a path, a host
    in a log prefix, a key in a flag) is taken out everywhere after, and the same host keeps the
    same alias (``host-1``, ``worker-1``).

    Args:
        secrets: Known secrets, any length. Shorter than four characters they are only taken out
            where their flag or name stands before them.
        users: Known user names.
        hosts: Known host names.
        workers: Names or addresses of RPC workers, without port.
        paths: Known paths, for those with spaces in them.
    """

    def __init__(
        self,
        *,
        secrets: Collection[str] = (),
        users: Collection[str] = (),
        hosts: Collection[str] = (),
        workers: Collection[str] = (),
        paths: Collection[str] = (),
    ) -> None:
        self._secrets: set[str] = set()
        self._users: set[str] = set()
        self._hosts: set[str] = set()
        self._workers: set[str] = set()
        self._paths: set[str] = set()
        self._aliases: dict[str, str] = {}
        self._compiled: dict[str, re.Pattern[str]] = {}
        for value in secrets:
            self._learn_secret(value)
        for name in users:
            self._learn_user(name)
        for name in hosts:
            self._learn_host(name)
        for name in workers:
            self._learn_host(name, worker=True)
        self._paths.update(path for path in paths if len(path) > 1)

    @classmethod
    def for_this_machine(cls, *, secrets: Collection[str] = ()) -> Redactor:
        """A redactor that knows this machine's user, home and host name."""
        users = {Path("~").expanduser().name}
        with suppress(KeyError, ImportError, OSError):  # a container's user may have no name
            users.add(getpass.getuser())
        return cls(secrets=secrets, users=users, hosts={platform.node()} - {""})

    def secrets(self, text: str) -> str:
        """The text without secrets."""
        self._learn_text(text, share=False)
        return self._without_secrets(text)

    def share(self, text: str) -> str:
        """The text as it may be shown to anybody."""
        self._learn_text(text, share=True)
        return self._shared(text)

    def learn(self, document: object, *, share: bool = True) -> None:
        """Remember the secrets and names in a document, to take them out of others too."""
        for argv in _argvs(document):
            for value in secrets_of(argv, {}):
                self._learn_secret(value)
            for flag, value in pairwise(argv):
                self._learn_address(flag, value)
            self._paths.update(
                word for word in argv if " " in word and re.match(r"[/~]|[A-Za-z]:[\\/]|\\\\", word)
            )
        for name, value in _members(document):
            if _SECRET_NAME.search(name) or _SECRET_FLAGS.match(name):
                for word in (value, *value.split(",")):
                    self._learn_secret(word)
            else:
                self._learn_address(name, value)
        for text in _texts(document):
            self._learn_text(text, share=share)

    def scrub(self, document: _T, *, share: bool = False) -> _T:
        """The same document without secrets, or fit for sharing.

        Numbers, names of members and the contract's own words stay.
        """
        self.learn(document, share=share)
        result: _T = self._scrub(document, share, 0)
        return result

    # -- learning

    def _learn_secret(self, value: str) -> None:
        if value.strip() and value.lower() not in _NOT_SECRET:
            self._secrets.add(value)
            self._compiled.pop("secrets", None)

    def _learn_user(self, name: str) -> None:
        name = name.strip(" .")
        if (
            len(name) > 1
            and name.lower() not in _FIELD_WORDS
            and not name.isdigit()
            and len(self._users) < _NAMES_CEILING
        ):
            self._users.add(name)
            self._compiled.pop("users", None)

    def _learn_host(self, name: str, *, worker: bool = False) -> None:
        name = name.strip(".[]").lower()
        if len(name) < 2 or _ALIAS.match(name) or _is_loopback(name) or _PUBLIC.match(name):
            return
        if worker:
            self._workers |= {name, name if _is_address(name) else name.partition(".")[0]}
        if not _is_address(name) and len(self._hosts) < _NAMES_CEILING:
            label = name.partition(".")[0]
            # The first label alone names a machine, but not in docs.project.org.
            alone = len(label) > 3 and bool(_PRIVATE.search(name) or re.search(r"\d", label))
            for word in {name, label} if alone else {name}:
                if word not in _FIELD_WORDS and not word.isdigit():
                    self._hosts.add(word)
                    self._compiled.pop("hosts", None)
        if worker:
            self._alias(name)  # numbered in the order in which they are named

    def _learn_address(self, flag: str, value: str) -> None:
        if flag in {"--rpc", "LLAMA_ARG_RPC"}:
            self._learn_workers(value)
        elif flag in {"--host", "LLAMA_ARG_HOST"}:
            self._learn_host(value)

    def _learn_workers(self, value: str) -> None:
        for found in _ENDPOINT.finditer(value):
            self._learn_host(found[1] or found[2], worker=True)

    def _learn_text(self, text: str, *, share: bool) -> None:
        for start, end, _ in _keyed_spans(text):
            value = text[start:end]
            # A word of prose after a flag's name is no secret worth hunting for elsewhere.
            if len(value) > 7 and re.search(r"\d|[^\w\s]", value):
                self._learn_secret(value)
        if not share:
            return
        text = _ANSI.sub("", text)
        for found in _HOME_USER.finditer(text):
            self._learn_user(found[1] or found[2] or found[3])
        for found in _LOGIN.finditer(text):
            self._learn_user(found[1])
            self._learn_host(found[2])
        for found in _WORKER.finditer(text):
            self._learn_host(found[1] or found[2], worker=True)
        for found in _WORKERS.finditer(text):
            start, end = _value_span(text, found.end())
            self._learn_workers(text[start:end])
        for pattern in (_JOURNAL, _PEER):
            for found in pattern.finditer(text):
                self._learn_host(found[1])
        for found in _HOSTNAME.finditer(text):
            self._learn_host(found[1] or found[2] or found[3])

    # -- one text

    def _pattern(self, name: str, build: Callable[[], str], flags: int = 0) -> re.Pattern[str]:
        if name not in self._compiled:
            self._compiled[name] = re.compile(build(), flags)
        return self._compiled[name]

    def _without_secrets(self, text: str) -> str:
        text = _PEM.sub(lambda m: SECRET + "\n" * m[0].count("\n"), text)
        if self._secrets:
            text = self._pattern("secrets", self._secret_pattern).sub(SECRET, text)
        text = _rewrite(text, _header_spans(text))
        text = _rewrite(text, _keyed_spans(text))
        text = _TOKEN.sub(SECRET, text)
        text = _BEARER.sub(rf"\1{SECRET}", text)
        text = _KEY_TAIL.sub(rf"\1{SECRET}", text)
        text = _USERINFO.sub(rf"\1{SECRET}@", text)
        return _QUERY.sub(rf"\1{SECRET}", text)

    def _secret_pattern(self) -> str:
        known = {word for secret in self._secrets for word in _variants(secret) if len(word) > 3}
        return (
            "|".join(
                re.escape(word)
                if len(word) > 7
                else rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])"
                for word in sorted(known, key=lambda w: (-len(w), w))
            )
            or r"(?!)"
        )

    def _shared(self, text: str) -> str:
        text = self._without_secrets(_ANSI.sub("", text))
        for spans in (_spoken_spans, _prompt_spans, _flag_spans):
            text = _rewrite(text, spans(text))
        text = _TURN.sub(
            lambda m: m["open"] + " " + PROMPT + "\n" * m["said"].count("\n") + m["close"], text
        )
        for path in sorted(self._paths, key=len, reverse=True):
            for word in {path, json.dumps(path)[1:-1]}:
                text = text.replace(word, _reduced(path))
        text = self._without_places(text)
        text = _EMAIL.sub(self._login, text)
        text = _UUID.sub("<uuid>", _MAC.sub("<mac>", text))
        text = _SERIAL.sub(r"\1<serial>", text)
        text = _V6.sub(self._address, text)
        text = _V4.sub(self._address, text)
        text = _DOMAIN.sub(lambda m: self._alias(m[0]), text)
        text = _MACHINE.sub(lambda m: self._alias(m[0]), text)
        if self._hosts:
            text = self._pattern("hosts", self._host_pattern, re.IGNORECASE).sub(
                lambda m: self._alias(m[0]), text
            )
        if self._users:
            text = self._pattern("users", self._user_pattern, re.IGNORECASE).sub(USER, text)
        return text

    def _host_pattern(self) -> str:
        words = sorted(self._hosts, key=lambda w: (-len(w), w))
        return rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, words))})(?![A-Za-z0-9])"

    def _user_pattern(self) -> str:
        def one(name: str) -> str:
            # Hexadecimal letters must not be found in a commit, nor a short name in a word.
            follow = (
                r"(?![A-Za-z0-9])" if re.fullmatch(r"[A-Fa-f0-9]+|..", name) else r"s?(?![A-Za-z])"
            )
            return re.escape(name) + follow

        words = sorted(self._users, key=lambda w: (-len(w), w))
        return rf"(?<![A-Za-z0-9])(?:{'|'.join(map(one, words))})"

    def _without_places(self, text: str) -> str:
        """URLs, network paths and paths, in one pass, so that one is never read inside another."""
        parts: list[str] = []
        at = 0
        while found := _PLACE.search(text, at):
            parts.append(text[at : found.start()])
            new, at = self._place(text, found)
            parts.append(new)
        return "".join((*parts, text[at:]))

    def _place(self, text: str, found: re.Match[str]) -> tuple[str, int]:
        kind, body, end = found.lastgroup, found[0], found.end()
        if kind == "url":
            return self._url(body), end
        if kind == "filepath":
            return found["file"] + _reduced(found["filepath"]), end
        if kind == "remote":
            return self._remote(body), end
        if kind == "unc":
            server = re.split(r"\\+", body.lstrip("\\"), maxsplit=1)[0]
            if server not in {"?", ".", "wsl$", "wsl.localhost"}:
                self._learn_host(server)
            return _reduced(body), end
        if kind == "relative":
            keep = not _DATA_SUFFIX.search(body) and not re.search("/(?:home|Users)/", body)
            return (body if keep else _reduced(body)), end
        if kind in {"unix", "home"}:
            quoted = text[found.start() - 1 : found.start()] if found.start() else ""
            if quoted in {"'", '"'} and not body.startswith("%"):
                close = text.find(quoted, end, end + 300)
                line = text.find("\n", end, end + 300)
                if close > end and (line < 0 or close < line) and text[end] == " ":
                    body, end = text[found.start() : close], close
            while not _SUFFIX.search(body) and (more := _MORE.match(text, end)):
                body, end = body + more[0], more.end()
        return _reduced(body), end

    def _remote(self, body: str) -> str:
        login, _, host = body[:-1].rpartition("@")
        if host.lower() in _FIELD_WORDS | _ROUTES or _SUFFIX.search(host):
            return body
        self._learn_user(login)
        self._learn_host(host)
        return f"{USER}@{self._alias(host)}:" if login else f"{self._alias(host)}:"

    def _url(self, url: str) -> str:
        scheme, slashes, rest = re.split(r"(:(?:\\?/){2})", url, maxsplit=1)
        authority, path = re.match(r"([^/?#\\]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]  # it always matches
        login, at, place = authority.rpartition("@")
        bracketed = re.match(r"\[([^\]]*)\](.*)", place)
        host, port = bracketed.groups() if bracketed else re.match(r"([^:]*)(.*)", place).groups()  # type: ignore[union-attr]  # it always matches
        if scheme.lower() == "hf" or _PUBLIC.match(host):
            return url
        if not _is_loopback(host):
            host = self._alias(host) if host else host
            self._learn_host(place.rpartition(":")[0] if port and not bracketed else place)
        elif bracketed:
            host = f"[{host}]"
        path = path.replace("\\/", "/").partition("?")[0].partition("#")[0]
        tail = re.search(r"[),.;:\]]*\Z", path)
        path, end = (path[: tail.start()], tail[0]) if tail else (path, "")
        if path.strip("/") and not set(path.strip("/").split("/")) <= _ROUTES:
            path = "/" + _reduced(path).lstrip("/")
        return f"{scheme}{slashes}{SECRET + at if login else ''}{host}{port}{path}{end}"

    def _login(self, found: re.Match[str]) -> str:
        user, host = found.groups()
        if re.fullmatch(r"sha256|[0-9a-f]{7,40}|v?[\d.]+", host) or _FIELD_WORDS.issuperset({user}):
            return found[0]
        if re.search(r"\.[A-Za-z]{2,}\Z", host):
            return "<email>"
        return f"{USER}@{self._alias(host)}"

    def _address(self, found: re.Match[str]) -> str:
        text = found[0]
        address = text.partition("%")[0]
        if _STAMP.match(text) and _STAMPED.match(found.string, found.end()):
            return text
        if not _is_address(address) or _is_loopback(address):
            return text
        if _VERSION.search(found.string, max(0, found.start() - 16), found.start()):
            return text
        return self._alias(address)

    def _alias(self, name: str) -> str:
        """A stable name for a host: ``worker-1`` for an RPC worker, else ``host-1``."""
        key = name.strip(".[]").lower()
        if _ALIAS.match(key) or _is_loopback(key) or _PUBLIC.match(key):
            return name
        label = key.partition(".")[0]
        key = label if label in self._hosts and not _is_address(key) else key
        if key not in self._aliases:
            kind = "worker" if key in self._workers else "host"
            taken = len({a for a in self._aliases.values() if a.startswith(kind)})
            self._aliases[key] = f"{kind}-{taken + 1}"
        return self._aliases[key]

    # -- documents

    def _text(self, text: str, share: bool) -> str:
        return self._shared(text) if share else self._without_secrets(text)

    def _scrub(self, value: Any, share: bool, depth: int) -> Any:
        if depth > _DEPTH_CEILING:
            return None
        if isinstance(value, Enum):
            return value
        if isinstance(value, str):
            return self._text(value, share)
        if isinstance(value, msgspec.Struct):
            free = _free_fields(type(value))
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return type(value)(
                **{
                    name: self._scrub(item, share, depth + 1) if name in free else item
                    for name, item in fields.items()
                }
            )
        if isinstance(value, Mapping):
            return {
                self._scrub(key, share, depth + 1): self._member(key, item, share, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return type(value)(self._sequence(value, share, depth + 1))
        return value

    def _member(self, key: object, item: Any, share: bool, depth: int) -> Any:
        name = key if isinstance(key, str) else ""
        if _SECRET_NAME.search(name) or _SECRET_FLAGS.match(name):
            return _blank(item, SECRET)
        if share and (name in _PROMPT_NAMES or name in _PROMPT_FLAGS):
            return _blank(item, PROMPT)
        return self._scrub(item, share, depth)

    def _sequence(self, items: Sequence[Any], share: bool, depth: int) -> Iterable[Any]:
        if not items or not all(isinstance(item, str) and type(item) is str for item in items):
            return [self._scrub(item, share, depth) for item in items]
        if _is_argv(items):
            return self._argv(items, share)
        # Lines of one log: a key or a prompt may run over several.
        whole = "\n".join(items)
        lines = self._text(whole, share).split("\n")
        if len(lines) == len(items):
            return lines
        return [self._text(item, share) for item in items]

    def _argv(self, words: Sequence[str], share: bool) -> Iterator[str]:
        before = ""
        for word in words:
            if _SECRET_FLAGS.match(before) and word.lower() not in _NOT_SECRET:
                yield SECRET
            elif share and before in _PROMPT_FLAGS:
                yield PROMPT
            else:
                name, equals, value = word.partition("=")
                if equals and value and _SECRET_NAME.search(name):
                    yield f"{name}={SECRET}"
                else:
                    yield self._text(word, share)
            before = word


def _reduced(path: str) -> str:
    """A path without its directories: ``<dir>/model.gguf``, ``<dir>`` when it names no file."""
    plain = re.sub(r"%2[Ff]|\\/", "/", path)
    if _SYSTEM.match(plain):
        return path
    names = [name for name in re.split(r"[/\\]+", plain) if name]
    if plain.startswith("/") and set(names) <= _ROUTES:
        return path
    if (
        len(names) == 1
        and plain.startswith("/")
        and (len(names[0]) < 4 or names[0].lower() in _FIELD_WORDS)
    ):
        return path
    last = names[-1] if names and plain[-1] not in "/\\" else ""
    if last in _BINARIES or _SUFFIX.search(last) or re.fullmatch(r"sha256[-:][0-9a-f]{64}", last):
        return f"{DIRECTORY}/{last}"
    # The full stop of a sentence is no part of a name.
    if last.endswith(".") and _SUFFIX.search(last.rstrip(".")):
        return f"{DIRECTORY}/{last}"
    return DIRECTORY


def _blank(item: Any, word: str) -> Any:
    """The value without its texts; numbers and nulls tell nothing and keep their place."""
    if isinstance(item, Enum):
        return item
    if isinstance(item, str):
        return word if item else item
    if isinstance(item, Mapping):
        return {}
    if isinstance(item, list | tuple):
        return type(item)(_blank(part, word) for part in item)
    return item


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    name = name.strip("[]")
    if name in {"localhost", "0.0.0.0", "::", "*", ""}:  # noqa: S104  recognised, not bound
        return True
    return _is_address(name) and ipaddress.ip_address(name).is_loopback


def _is_argv(items: Sequence[Any]) -> bool:
    return any(isinstance(item, str) and re.match(r"--?[A-Za-z]", item) for item in items)


def _walk(value: object, depth: int = 0) -> Iterator[tuple[str, object]]:
    """Every part of a document with the name of the member that holds it."""
    if depth > _DEPTH_CEILING:
        return
    if isinstance(value, msgspec.Struct):
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield "", key
            yield str(key), item
            yield from _walk(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield "", item
            yield from _walk(item, depth + 1)


def _texts(document: object) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    for _, part in _walk(document):
        if isinstance(part, str) and not isinstance(part, Enum):
            yield part


def _members(document: object) -> Iterator[tuple[str, str]]:
    for name, part in _walk(document):
        values = part if isinstance(part, list | tuple) else (part,)
        for value in values:
            if name and isinstance(value, str) and not isinstance(value, Enum):
                yield name, value


def _argvs(document: object) -> Iterator[list[str]]:
    for part in (document, *(part for _, part in _walk(document))):
        if not isinstance(part, list | tuple) or not all(isinstance(word, str) for word in part):
            continue
        if _is_argv(part):
            yield list(part)
