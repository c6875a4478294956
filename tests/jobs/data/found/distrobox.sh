#!/bin/bash

export XDG_RUNTIME_DIR="/run/user/$(id -u)"
export MY_DIR=/home/your-user-name

exec /usr/local/bin/distrobox enter rocm7-nightlies -- \
  ${MY_DIR}/llama.cpp/build/bin/llama-server \
  --models-preset ${MY_DIR}/llama.ini \
  --models-max 2 \
  --models-dir ${MY_DIR}/models \
  -fa on --no-mmap -ngl 999 --parallel 1  \
  -t 14 -tb 16 -cb --jinja --cache-type-k q8_0 --cache-type-v q8_0 --cache-reuse 12288 --batch-size 2048 --ubatch-size 512 \
  --host 0.0.0.0 --port ${LLM_PORT}
