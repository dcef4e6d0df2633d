#!/usr/bin/env bash
# The first process of the model server's image. TensorFlow Serving handles no signals, and the kernel drops
# unhandled signals to a container's first process: `docker stop` would wait and then kill it. The server does not
# finish running requests: remove it from the load balancer first.
set -u
server=""
stopping=""
trap 'stopping=1; [[ -z "$server" ]] || kill -TERM "$server"' TERM INT

# By default TensorFlow Serving loads on one thread and retries a damaged version five times, a minute apart. No
# other version of any model loads meanwhile. Flags given to this script come last and take precedence.
tensorflow_model_server --port=8500 --rest_api_port=8501 \
  --num_load_threads=2 --load_retry_interval_micros=1000000 --max_num_load_retries=5 \
  --model_name="$MODEL_NAME" --model_base_path="$MODEL_BASE_PATH/$MODEL_NAME" "$@" &
server=$!
[[ -z "$stopping" ]] || kill -TERM "$server"

code=0
wait "$server" || code=$?
while kill -0 "$server" 2>/dev/null; do # a signal ends `wait` while the server still runs
  wait "$server" || code=$?
done
[[ -z "$stopping" ]] || code=0
exit "$code"
