#!/usr/bin/env bash
# The first process of the model server's image. TensorFlow Serving takes no signals, and the kernel keeps from a
# container's first process those that it does not take: `docker stop` would wait in vain and kill it in the end.
# The server does not finish what runs: take it out of the balancer first.
set -u
server=""
stopping=""
trap 'stopping=1; [[ -z "$server" ]] || kill -TERM "$server"' TERM INT

# TensorFlow Serving's defaults load on one thread and try a damaged version five times more, a minute apart. No other
# version of any model loads in those five minutes. Flags given to this script come last and win.
tensorflow_model_server --port=8500 --rest_api_port=8501 \
  --num_load_threads=2 --load_retry_interval_micros=1000000 --max_num_load_retries=5 \
  --model_name="$MODEL_NAME" --model_base_path="$MODEL_BASE_PATH/$MODEL_NAME" "$@" &
server=$!
[[ -z "$stopping" ]] || kill -TERM "$server"

code=0
wait "$server" || code=$?
while kill -0 "$server" 2>/dev/null; do # a signal ends the wait before the server
  wait "$server" || code=$?
done
[[ -z "$stopping" ]] || code=0
exit "$code"
