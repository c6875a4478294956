"""Which layers keep a recurrent state, and how large one row of it is."""

from __future__ import annotations

from dataclasses import replace

from arriero.memory.architectures import Recurrent, State
from arriero.memory.hparams.keys import Keys
from arriero.memory.hparams.model import Flags, Hparams


def with_recurrent(keys: Keys, h: Hparams) -> Hparams:
    """The recurrent layers and the size of their state."""
    match keys.rules.recurrent:
        case None:
            return h
        case Recurrent.ALL:
            layers = (True,) * h.n_layer_all
        case Recurrent.NO_KV_HEADS:
            counted = h.n_layer_all if keys.arch == "glm5-next" else h.n_layer
            layers = tuple(il < counted and heads == 0 for il, heads in enumerate(h.n_head_kv))
        case Recurrent.IDLE:
            layers = tuple(
                il < h.n_layer and h.n_head_kv[il] == 0 and h.n_ff[il] == 0
                for il in range(h.n_layer_all)
            )
        case Recurrent.INTERVAL:
            layers = _interval(keys, h)
    r, s = _state(keys, h)
    return replace(h, is_recurrent=layers, n_embd_r=r, n_embd_s=s)


def _interval(keys: Keys, h: Hparams) -> Flags:
    listed = keys.per_layer("attention.recurrent_layers", h.n_layer_all)
    if listed is not None:
        return tuple(map(bool, listed))
    n = keys.number("full_attention_interval", keys.rules.interval)
    if n <= 0:
        raise keys.wrong("full_attention_interval", f"is {n}")
    return tuple(il < h.n_layer and (il + 1) % n != 0 for il in range(h.n_layer_all))


def _state(keys: Keys, h: Hparams) -> tuple[int, int]:
    """Elements of one row of the convolution's (or token shift's) state, and of the other."""
    match keys.rules.state:
        case State.WKV:
            head = keys.number("wkv.head_size")
            return keys.number("token_shift_count", 2) * h.n_embd, h.n_embd * head
        case State.SHORT_CONVOLUTION:
            return h.n_embd * max(keys.number("shortconv.l_cache") - 1, 0), 0
        case State.KDA:
            head, taps = keys.number("kda.head_dim"), keys.number("ssm.conv_kernel")
            return 3 * (taps - 1 if taps else 3) * h.n_head[0] * head, head**2 * h.n_head[0]
        case State.LIGHTNING:
            return 0, h.head_k**2 * h.n_head[0]
        case _:
            taps, inner = keys.number("ssm.conv_kernel"), keys.number("ssm.inner_size")
            state = keys.number("ssm.state_size")
            grouped = keys.rules.state is State.SSM
            groups = keys.number("ssm.group_count") if grouped else 0
            return max(taps - 1, 0) * (inner + 2 * groups * state), state * inner
