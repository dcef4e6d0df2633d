# From a checkout to what trains and what serves. Stages:
#   wheel         compiles the library for one TensorFlow
#   trainer       the library and the examples
#   model-server  TensorFlow Serving with the ops inside (hours: it compiles TensorFlow)
#   gateway       REST in front of a model folder, or of a model server
#   dev           everything that `make test` needs
#   docker build --target gateway -t de-core/gateway .
# The defaults are those of serving_ops/versions.env; other bases and versions are build arguments.
ARG PYTHON_BUILD_IMAGE=python:3.11-bookworm
ARG PYTHON_RUN_IMAGE=python:3.11-slim-bookworm
ARG SERVING_BUILD_IMAGE=tensorflow/serving:2.20.0-devel
ARG SERVING_RUN_IMAGE=tensorflow/serving:2.20.0

FROM ${PYTHON_BUILD_IMAGE} AS wheel
ARG TENSORFLOW=2.20.0
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# TensorFlow first: a layer of its own, which a change of our sources does not touch.
RUN pip install --no-cache-dir "tensorflow==${TENSORFLOW}"
COPY pyproject.toml README.md LICENSE ./
COPY de_core de_core
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM ${PYTHON_RUN_IMAGE} AS base
ARG TENSORFLOW=2.20.0
LABEL org.opencontainers.image.title="de-core" org.opencontainers.image.licenses="Apache-2.0"
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TF_CPP_MIN_LOG_LEVEL=2
RUN pip install --no-cache-dir "tensorflow==${TENSORFLOW}" \
 && useradd --create-home --uid 1000 app \
 && mkdir /models && chown app /models
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl
WORKDIR /app

FROM base AS trainer
COPY examples examples
USER app
VOLUME /models
CMD ["python", "examples/train_ranking.py", "--out", "/models/ranking"]

FROM ${SERVING_BUILD_IMAGE} AS model-server-build
ARG TENSORFLOW_SERVING=2.20.0
# A compiler that is killed lacked memory: about 2 GB a job.
ARG BAZEL_JOBS=4
ARG BAZEL_MEMORY_MB=8192
COPY serving_ops /src/serving_ops
COPY de_core/cc /src/de_core/cc
WORKDIR /tensorflow-serving
# A devel image may hold other sources than its tag says.
RUN git fetch --tags --depth 1 origin "refs/tags/${TENSORFLOW_SERVING}" \
 && git checkout --force --detach FETCH_HEAD \
 && git tag --force "${TENSORFLOW_SERVING}" FETCH_HEAD
RUN /src/serving_ops/build_model_server.sh --tree /tensorflow-serving --output /out/tensorflow_model_server \
      --jobs "${BAZEL_JOBS}" --memory-mb "${BAZEL_MEMORY_MB}"

FROM ${SERVING_RUN_IMAGE} AS model-server
LABEL org.opencontainers.image.title="de-core model server"
COPY --from=model-server-build /out/tensorflow_model_server /usr/bin/tensorflow_model_server
# The base's entry point runs as root; nothing that it does needs that.
USER 1000
EXPOSE 8500 8501
# exec: the server itself gets SIGTERM, and finishes what runs.
ENV MODEL_NAME=ranking MODEL_BASE_PATH=/models
ENTRYPOINT ["/bin/sh", "-c", "exec tensorflow_model_server --port=8500 --rest_api_port=8501 --model_name=\"$MODEL_NAME\" --model_base_path=\"$MODEL_BASE_PATH/$MODEL_NAME\" \"$@\"", "model-server"]
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
  CMD ["/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8501 && printf 'GET /v1/models/%s HTTP/1.0\\r\\n\\r\\n' \"$MODEL_NAME\" >&3 && grep -q AVAILABLE <&3"]

FROM base AS gateway
RUN pip install --no-cache-dir "$(ls /wheels/*.whl)[server]" "tensorflow==${TENSORFLOW}"
COPY server server
USER app
VOLUME /models
EXPOSE 8501
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/readyz', timeout=2)"]
ENTRYPOINT ["python", "-m", "server", "--host", "0.0.0.0"]
CMD ["--model-dir", "/models/ranking"]

FROM ${PYTHON_BUILD_IMAGE} AS dev
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ make cmake ninja-build libgtest-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /work
COPY . .
CMD ["make", "test"]
