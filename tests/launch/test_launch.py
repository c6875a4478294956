"""What the server makes of a command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from arriero.base.sizes import MIB
from arriero.command import builtin_flags, parse_command, parse_help
from arriero.launch.launch import Launch, launch_of

MODEL = Path("m.gguf")


def settings(args: str = "", environ: dict[str, str] | None = None, **kwargs: Any) -> Launch:
    words = ["llama-server", "-m", "m.gguf", *shlex.split(args)]
    return launch_of(parse_command(words, builtin_flags(), environ or {}), MODEL, **kwargs)


def test_slots_left_to_the_server_are_four_in_one_cache() -> None:
    request = settings("-c 8192").params
    assert (request.n_seq_max, request.kv_unified) == (4, True)
    request = settings("-c 8192 -np -1").params
    assert (request.n_seq_max, request.kv_unified) == (4, True)


def test_slots_that_are_named_have_a_cache_each_unless_unified() -> None:
    assert settings("-np 4").params.kv_unified is False
    assert settings("-np 4 -kvu").params.kv_unified is True


@pytest.mark.parametrize(
    ("args", "build", "tokens", "given"),
    [
        ("-c 5000", None, 5000, True),
        ("-c 0 -np 3", None, 96000, True),
        ("-c 0 -np 3", 10434, 0, True),
        ("", None, 0, False),
        ("-np 3", 11434, 96000, False),
        ("-np 3", 10434, 0, False),
        ("-np 3 -kvu", 11434, 0, False),
        ("-np 3 -fit off", 11434, 0, False),
    ],
)
def test_context(args: str, build: int | None, tokens: int, given: bool) -> None:
    made = settings(args, n_ctx_train=32000, build=build)
    assert (made.params.n_ctx, made.context_given) == (tokens, given)


def test_an_embedding_server_reads_a_prompt_in_one_piece() -> None:
    request = settings("--embedding -ub 256 -np 2").params
    assert (request.n_batch, request.n_outputs_max) == (256, 256)
    assert settings("--rerank").params.embeddings


def test_drafts_need_outputs_and_planes() -> None:
    request = settings("-np 2 --spec-type draft-mtp --spec-draft-n-max 5").params
    assert (request.n_rs_seq, request.n_outputs_max, request.load_mtp) == (5, 12, True)
    request = settings("-np 2 --spec-type ngram-simple").params
    assert (request.n_rs_seq, request.n_outputs_max) == (0, 98)
    draft = settings("-np 2 --spec-type draft-mtp -ctk q8_0").draft
    assert draft is not None
    assert (draft.ctx_type, draft.n_rs_seq, draft.n_outputs_max) == ("mtp", 0, 2)
    assert draft.type_k == "f16"
    own = settings("-np 2 -ngl 3 -md d.gguf -ctkd q8_0 -ngld 1 -devd none -ncmoed 1").draft
    assert own is not None
    assert (own.model, own.type_k, own.n_gpu_layers, own.devices) == (
        Path("d.gguf"),
        "q8_0",
        1,
        (),
    )
    assert len(own.overrides) == 1
    assert settings("-np 2 -c 4096").draft is None


def test_a_draft_model_drafts_where_it_is_told_to() -> None:
    alone = settings("-np 2 -md d.gguf")
    assert (alone.speculation, alone.params.n_outputs_max) == ((), 2)
    assert alone.draft is not None
    assert settings("-np 2 -md d.gguf --spec-type none").params.n_outputs_max == 2
    told = settings("-np 2 -md d.gguf --spec-type draft-simple")
    assert (told.speculation, told.params.n_outputs_max) == (("draft-simple",), 8)
    assert told.draft == alone.draft


def test_a_draft_model_drafts_where_no_flag_says_how() -> None:
    old = parse_help("-m, --model FNAME  path\n-md, --model-draft FNAME  draft model\n")
    command = parse_command(["llama-server", "-m", "m.gguf", "-md", "d.gguf"], old, {})
    assert launch_of(command, Path("m.gguf")).speculation == ("draft-simple",)


def test_a_quantised_v_cache_turns_flash_attention_on() -> None:
    assert settings("-ctv q8_0").params.flash_attn == "on"
    assert settings("-ctv q8_0 -fa off").params.flash_attn == "off"
    assert settings("-fa 1").params.flash_attn == "on"
    assert settings().params.flash_attn == "auto"


def test_placement() -> None:
    request = settings("-ngl 12 -ts 3,1 -sm none -mg 1 -dev CUDA1,CUDA0 -nkvo -nr").params
    assert request.n_gpu_layers == 12
    assert request.tensor_split == (3.0, 1.0)
    assert (request.split_mode, request.main_gpu) == ("none", 1)
    assert request.devices == ("CUDA1", "CUDA0")
    assert not request.offload_kqv
    assert not request.use_extra_bufts
    assert settings("-ngl all").params.n_gpu_layers == -1
    assert settings("-dev none").params.devices == ()


def test_overrides_come_in_the_order_of_the_command() -> None:
    made = settings(r"-ot 'blk\.1\..*=CUDA1,a=CPU' -ncmoe 2 -cmoe")
    experts = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
    assert made.overrides == (
        (r"blk\.1\..*", "CUDA1"),
        ("a", "CPU"),
        (rf"blk\.(?:0|1){experts}", "CPU"),
        (experts, "CPU"),
    )


@pytest.mark.parametrize(
    ("args", "mapped"),
    [
        ("", True),
        ("--no-mmap", False),
        ("-lm none", False),
        ("-lm mlock", False),
        ("-lm mmap+mlock", True),
        ("-lm auto", True),
        ("-lm dio", False),
        ("--no-mmap -lm mmap", True),
    ],
)
def test_mapping(args: str, mapped: bool) -> None:
    assert settings(args).mmap is mapped


def test_host_caches() -> None:
    assert settings().cache_ram == 8192 * MIB
    assert settings("-cram 0").cache_ram == 0
    assert settings("-cram -1").cache_ram is None
    assert settings("-ctxcp 3").checkpoints == 3
    assert settings().checkpoints == 32
    assert settings("-fitt 512").fit_target(3) == 512 * MIB
    assert settings("-fitt 512,256").fit_targets == (512 * MIB, 256 * MIB)


def test_variables_count_as_flags_do() -> None:
    made = settings(environ={"LLAMA_ARG_CTX_SIZE": "1234", "LLAMA_ARG_N_PARALLEL": "3"})
    assert (made.params.n_ctx, made.params.n_seq_max) == (1234, 3)


@pytest.mark.parametrize(
    ("flags", "prompt_cache", "checkpoints"),
    [
        # what builds 10068 and 10434 log: "size limit: 512 MiB", "no limit", "max = 5"
        ("-cram 512x -ctxcp 5x", 512 * MIB, 5),
        ("-cram -7 -ctxcp 0", None, 0),
        ("", 8192 * MIB, 32),
    ],
)
def test_numbers_of_the_caches_are_read_as_far_as_they_go(
    flags: str, prompt_cache: int | None, checkpoints: int
) -> None:
    made = settings(flags)
    assert (made.cache_ram, made.checkpoints) == (prompt_cache, checkpoints)


def test_what_a_launch_says_beside_the_parameters() -> None:
    made = settings("--rpc a:1,b:2 --rpc a:1 --threads-http 3 --no-warmup -lm mlock -ub 64 -c 0")
    assert made.workers == ("a:1", "b:2")
    assert (made.http_threads, made.warmup, made.mlock, made.mmap) == (3, False, True, False)
    assert (made.batch.given, made.batch.ubatch_given, made.context_asked) == (False, True, 0)


@pytest.mark.parametrize(
    ("flags", "n_ubatch"),
    [("", 512), ("-ub 64", 64), ("-ub 0", 2048), ("-b 256 -ub 0", 256), ("-b 256 -ub -1", 256)],
)
def test_no_micro_batch_is_one_as_large_as_the_batch(flags: str, n_ubatch: int) -> None:
    assert settings(flags).params.n_ubatch == n_ubatch


@pytest.mark.parametrize(("said", "flash"), [("1", "on"), ("0", "off"), ("auto", "auto")])
def test_flash_attention_of_a_projector_is_that_of_the_model(said: str, flash: str) -> None:
    made = settings(f"--mmproj p.gguf -fa {said}")
    assert made.projector is not None
    # build 10434 logs "warmup: flash attention is disabled" for -fa 0
    assert (made.projector.flash_attn, made.params.flash_attn) == (flash, flash)


@pytest.mark.parametrize(
    ("flags", "given", "open_"),
    [
        ("", None, True),
        ("-ngl auto", None, True),
        ("-ngl -1", None, True),
        ("-ngl all", -2, False),
        ("-ngl 0", 0, False),
        ("-ngl $LAYERS", None, False),
    ],
)
def test_layers_that_nobody_can_read_are_not_left_to_the_engine(
    flags: str, given: int | None, open_: bool
) -> None:
    made = launch_of(parse_command(["llama-server", *flags.split()], builtin_flags(), {}))
    assert (made.layers_given, made.layers_open) == (given, open_)
