#!/usr/bin/env bash
# Builds TensorFlow Serving's model server with the ops of dynamic tables inside. Run it in the devel image:
#   serving_ops/build_model_server.sh [--tree /tensorflow-serving] [--output FILE] [--jobs N] [--memory-mb MB] [-- BAZEL OPTIONS]
# The first build compiles TensorFlow: it takes hours, and about 2 GB of memory per job. If a compiler is killed
# ("Killed signal terminated program"), memory ran out: use fewer --jobs.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

tree=/tensorflow-serving
output=/usr/local/bin/tensorflow_model_server
jobs="$(nproc)"
memory_mb="$(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)"
while (($# > 0)); do
  case "$1" in
    --tree) tree="$2"; shift 2 ;;
    --output) output="$2"; shift 2 ;;
    --jobs) jobs="$2"; shift 2 ;;
    --memory-mb) memory_mb="$2"; shift 2 ;;
    --) shift; break ;;
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "build_model_server: unknown option; see --help. Received: $1" >&2; exit 2 ;;
  esac
done

target=tensorflow_serving/model_servers:tensorflow_model_server
python3 "$here/apply_overlay.py" "$tree"
cd "$tree"
# Ask the build graph whether the server depends on the ops. Use the options of the build, because upstream sets
# options only for builds.
path="$(bazel cquery --config=release "$@" "somepath(//$target, //tensorflow_serving/custom_ops:de_core_ops)")"
grep -q custom_ops <<<"$path" || {
  echo "build_model_server: //$target must depend on the ops, and does not." >&2
  exit 1
}
bazel build --config=release --verbose_failures --jobs="$jobs" --local_ram_resources="$memory_mb" "$@" "//$target"
install -D "bazel-bin/tensorflow_serving/model_servers/tensorflow_model_server" "$output"
# Op names are strings in the binary. Without alwayslink the kernels, and so these strings, would be missing.
grep -q DeFrozenTableOpen "$output" || {
  echo "build_model_server: $output must hold the ops, and does not." >&2
  exit 1
}
echo "built $output"
