"""Recognise paths, hosts, addresses and users in commands and logs of three systems."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from arriero.base.late import pattern
from arriero.base.secret import SEPARATOR

DIRECTORY: Final = "<dir>"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FIELD_WORDS: Final = _words(
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
"""Words of llama.cpp's own lines. A user or host of such a name is removed only where it is clearly
one: in a path, a log prefix, an address."""
ROUTES: Final = _words(
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
SUFFIX: Final = pattern(
    r"\.(?:gguf|bin|safetensors|so(?:\.\d+){0,4}|dll|dylib|cuh?|c|cc|cpp|h|hpp|mm?|comp|metal|spv|"
    r"txt|log|jsonl?|jinja2?|gbnf|md|html?|csv|db|sqlite|sh|bat|cmd|ps1|exe|py|toml|ya?ml|ini|"
    r"conf|cfg|service|pem|key|crt|cert|png|jpe?g|gif|webp|wav|mp3|mp4|zip|tar|gz|xz|zst|whl|"
    r"part|tmp|sock|pid|lock|cache|dat|core|max|current|events|stat)\Z",
    re.IGNORECASE,
)
DATA_SUFFIX: Final = pattern(
    r"\.(?:gguf|bin|safetensors|txt|log|jsonl?|jinja2?|csv|db|sqlite|pem|key|png|jpe?g|wav|mp3)\Z",
    re.IGNORECASE,
)
ANSI: Final = pattern(r"(?:\x1b|\\u001b|\\x1b|\\033)\[[0-9;]{0,20}[A-Za-z]")
_HOST: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_SEP: Final = r"(?:\\?/|%2[Ff])"
_ROOT: Final = r"(?:\\?/|%2[Ff]|\\{1,4})"
_BACK: Final = r"(?:\\?/|%2[Ff]|\\{1,4}(?![nrt\"']))"
_SEGMENT: Final = r"""(?:[^\s/\\"'`:,;|<>(){}\[\]?&%]|%(?!2[Ff])|\\ )"""
_UNIX_START: Final = (
    r"(?:(?<![\w.~/%)\]<>\\-])|(?<=[\s\"'=,;:(]-[A-Za-z])|(?<=\\[nrt\"'])|(?<=(?<!dir)>))"
)
PLACE: Final = pattern(
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
MORE: Final = pattern(
    rf"(?: (?![-.~])(?:(?!=){_SEGMENT}){{1,60}}){{1,4}}"
    rf"(?:(?:{_SEP}+{_SEGMENT}+)+|(?<=\.gguf)|(?<=\.json)|(?<=\.log))"
)
HOME_USER: Final = pattern(
    rf"(?:{_ROOT}(?:home|[Uu]sers)|{_SEP}(?:run{_SEP})?media){_ROOT}("
    rf"{_SEGMENT}{{1,64}}(?:(?<!/) {_SEGMENT}{{1,30}}(?=\\|/))?)"
    r"|(?<![\w./])~([A-Za-z][\w.-]{0,63})(?=/)"
    r"|(?i:(?<![A-Za-z])(?:user(?:name)?|logname|login)(?:=|\\*[\"']\s{0,2}[:=]\s{0,2}\\*[\"'])"
    r"|(?<!\w)uid=\d{1,10}\(|(?<![\w-])-u )([A-Za-z][\w.-]{0,63})"
)
OWNER: Final = pattern(
    r"(?<!\w)sudo: {1,8}([\w.-]{1,64}) : "
    r"|[-dlbcps][rwxsStT-]{9}[.+@]? {1,4}\d{1,6} {1,8}([\w.-]{1,64}) "
    r"|(?<=[=,])\d{1,10}\(([A-Za-z][\w.-]{0,63})\)"
    r"|(?<![\w\\])[A-Z][A-Z0-9-]{1,14}(?:\\(?![nrtu])|\\\\)([a-z][\w.-]{1,63})"
)
"""Users in the output of sudo, ls, id and Windows."""
POD: Final = pattern(
    r"\[pod/([\w.-]{1,80})/([\w.-]{1,80})\]"
    r"|(?<![\w.-])([a-z][a-z0-9-]{1,60}-[b-df-hj-np-tv-z2-9]{8,10}-[b-df-hj-np-tv-z2-9]{5})(?![\w-])"
)
SLOT_FILE: Final = pattern(
    r"(?<=file )'[^'\n]{1,400}\.bin'|(?<=filename\" : )\"[^\"\n]{1,400}\""
    r"|(?<=filename\": )\"[^\"\n]{1,400}\"|(?<=filename\":)\"[^\"\n]{1,400}\""
)
"""The name that a client gave to the saved state of a slot."""
HEADER_TEXT: Final = pattern(
    r"(\bgeneral\.[\w.]{1,60}[ \t]{0,40}(?:(?:arr\[)?str\S{0,8})?[ \t]{0,40}=[ \t]{0,8}"
    r"|(?<![\w.])[Aa]uthors?[ \t]{0,8}[:=][ \t]{0,8})(?![ \t\d]|<text>)[^\n]{1,4096}"
)
"""What a model says of itself."""
JOURNAL: Final = pattern(
    r"(?:^|\\n|\n)(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,16})"
    rf" ({_HOST}) [\w./()@-]{{1,48}}(?:\[\d{{1,9}}\])?: "
)
HOSTNAME: Final = pattern(
    r"(?i:(?:hostname|computername|nodename)(?:\\*[\"'])?\s{0,2}[=:]\s{0,2}(?:\\*[\"'])?"
    rf"({_HOST}))|(?<![\w-])--host(?:[ =][\"']?|[\"'], ?[\"'])({_HOST})(?![\w:.-])"
    rf"|Linux ({_HOST}) \d+\.\d+\.\d+\S{{0,40}} #|Darwin ({_HOST}) \d+\.\d+\.\d+"
)
LOGIN: Final = pattern(rf"(?<![\w.+-])([\w.-]{{1,32}})@({_HOST})(?=:[~/]|[ ]?[$#%] )")
WORKER: Final = pattern(rf"RPC\d{{0,3}}\[(?:\[([0-9A-Fa-f:]{{2,45}})\]|({_HOST})):\d{{1,5}}\]")
WORKERS: Final = pattern(r"(?:--rpc|LLAMA_ARG_RPC|\brpc_servers?)" + SEPARATOR)
ENDPOINT: Final = pattern(rf"(?:\[([0-9A-Fa-f:]{{2,45}})\]|({_HOST})):\d{{1,5}}(?=[,;\s\"'\\]|\Z)")
PEER: Final = pattern(
    r"(?:connect(?:ed|ing|ion)?|endpoint|server|worker|peer|remote|hostname|--host|hosted)"
    rf"(?: to| at| from| on|:|=)? ?:?[\"']?({_HOST}):\d{{2,5}}(?!\d)"
)
MACHINE: Final = pattern(
    r"(?<![\w-])(?:(?:DESKTOP|LAPTOP|WIN)-[A-Z0-9]{5,12}|ip-\d{1,3}(?:-\d{1,3}){3}"
    r"|[\w-]{1,40}-(?:MacBook|iMac|Mac-?[Mm]ini|Mac-?Studio|Mac-?Pro)[\w-]{0,20})(?![\w-])"
)
EMAIL: Final = pattern(rf"(?<![\w.+%-])([\w.+%-]{{1,64}})@({_HOST})")
MAC: Final = pattern(r"(?<![\w:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])")
UUID: Final = pattern(
    r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?![0-9A-Za-z])"
)
SERIAL: Final = pattern(
    r"(\bserial(?:[ _-]?(?:no|num|number))?[\"']?\s{0,3}[:=#]\s{0,3}[\"']?)"
    r"(?=[\w-]{0,40}\d)[\w-]{4,40}",
    re.IGNORECASE,
)
V6: Final = pattern(
    r"(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:]{2,39}(?:(?:\d{1,3}\.){3}\d{1,3})?"
    r"(?:%[\w.-]{1,16})?(?![\w:])"
)
V4: Final = pattern(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]?\d)(?![A-Za-z_])")
# llama.cpp's own time stamps (minutes.seconds.milliseconds.microseconds) look like addresses.
STAMP: Final = pattern(r"\d{1,3}\.\d\d\.\d{3}\.\d{3}\Z")
STAMPED: Final = pattern(r"\s{1,3}[IWED](?:\s|\Z)")
VERSION: Final = pattern(r"(?:version|driver|release|v|ver\.?)[ :=\"']{0,3}\Z", re.IGNORECASE)
DOMAIN: Final = pattern(
    r"(?<![\w.@/\\-])(?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\.){1,8}"
    r"(?:lan|local|localdomain|internal|intranet|corp|home|private|arpa|com|net|org|edu|gov|mil|"
    r"int|info|biz|io|ai|dev|app|cloud|tech|online|xyz|site|de|uk|fr|es|it|nl|eu|us|ca|jp|cn|br|"
    r"au|ch|at|be|dk|fi|no|pt|ru|kr|mx|ar|cl|za|nz|ie|gr|cz|hu|ro|tr|ua|il|sg|hk|tw)"
    r"(?![\w-]|\.[\w])",
    re.IGNORECASE,
)
PRIVATE: Final = pattern(
    r"\.(?:lan|local|localdomain|internal|intranet|corp|home|private|arpa|ts\.net)\Z"
)
PUBLIC: Final = pattern(
    r"(?:[\w-]+\.)*(?:github\.com|githubusercontent\.com|ghcr\.io|huggingface\.co|hf\.co|ggml\.ai|"
    r"ggml\.org|pypi\.org|pythonhosted\.org|modelscope\.cn|example\.(?:com|org|net)|"
    r"docker\.io|nvidia\.com|amd\.com|intel\.com|khronos\.org|python\.org|jinja\.palletsprojects\.com)"
    r"\Z",
    re.IGNORECASE,
)
ALIAS: Final = pattern(r"(?:host|worker)-\d{1,4}\Z")
_SYSTEM: Final = pattern(
    r"/dev/(?:dri(?:/\w+)?|kfd|nvidia\w*|null|shm|stdin|stdout|stderr)\Z"
    r"|/proc/(?:self|meminfo|cpuinfo|mounts|\d+)(?:/\w+)*\Z|/sys/(?:class|module|kernel)(?:/[\w.:-]+)*\Z"
)


def reduced(path: str) -> str:
    """A path without its directories: ``<dir>/model.gguf``, ``<dir>`` when it names no file."""
    plain = re.sub(r"%2[Ff]|\\/", "/", path)
    if _SYSTEM.match(plain):
        return path
    names = [name for name in re.split(r"[/\\]+", plain) if name]
    if plain.startswith("/") and set(names) <= ROUTES:
        return path
    if (
        len(names) == 1
        and plain.startswith("/")
        and (len(names[0]) < 4 or names[0].lower() in FIELD_WORDS)
    ):
        return path
    last = names[-1] if names and plain[-1] not in "/\\" else ""
    if last in _BINARIES or SUFFIX.search(last) or re.fullmatch(r"sha256[-:][0-9a-f]{64}", last):
        return f"{DIRECTORY}/{last}"
    # The full stop of a sentence is not part of the name.
    if last.endswith(".") and SUFFIX.search(last.rstrip(".")):
        return f"{DIRECTORY}/{last}"
    return DIRECTORY


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    name = name.strip("[]")
    if name in {"localhost", "0.0.0.0", "::", "*", ""}:  # noqa: S104  recognised, not bound
        return True
    return is_address(name) and ipaddress.ip_address(name).is_loopback
