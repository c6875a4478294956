#!/usr/bin/env bash
# Two models on one machine.
set -euo pipefail

MODEL_DIR=/srv/models
CTX="-c 8192"
PORT="${PORT:-8081}"

cat > /tmp/ignored <<EOF
llama-server -m never.gguf
EOF

echo "starting llama-server" >&2
CUDA_VISIBLE_DEVICES=0 exec nohup /opt/llama/bin/llama-server \
    -m "$MODEL_DIR/a model.gguf" $CTX \
    --port "$PORT" --api-key 'k # y' \
    -t $(nproc) $EXTRA_ARGS "$@" \
    > server.log 2>&1 &

ARGS=(
  -m $MODEL_DIR/b.gguf  # the small one
  --jinja
)
ARGS+=(-np 2)
llama-server "${ARGS[@]}" && pkill -f llama-server
docker run --rm -v /m:/m -e LLAMA_ARG_N_PARALLEL=3 ghcr.io/ggml-org/llama.cpp:server-cuda -m /m/c.gguf -ngl 99
