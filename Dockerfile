# Images for training and serving, from a checkout. Stages:
#   wheel          compiles the library for one TensorFlow
#   trainer        the library and the examples
#   gateway        REST and gRPC in front of a model folder, or of model servers
#   gateway-front  the same, only in front of model servers: no TensorFlow, a tenth of the size
#   dev            everything that `make test` needs
#   model-server   TensorFlow Serving with the ops inside (hours: it compiles TensorFlow)
#   docker build --target gateway -t de-core/gateway .
# The defaults are the versions in serving_ops/versions.env. Build arguments choose other base images, by tag or by
# digest (--build-arg PYTHON_RUN_IMAGE=python@sha256:...). serving_ops/lock.py pins the Python packages.
# 64-bit ARM (--platform linux/arm64) has all stages except the model server, whose base images are x86-64 only. Nobody
# has built them for ARM yet.
ARG PYTHON_BUILD_IMAGE=python:3.11-bookworm
ARG PYTHON_RUN_IMAGE=python:3.11-slim-bookworm
ARG SERVING_BUILD_IMAGE=tensorflow/serving:2.20.0-devel
ARG SERVING_RUN_IMAGE=tensorflow/serving:2.20.0

FROM ${PYTHON_BUILD_IMAGE} AS build
RUN python -m venv --without-pip /opt/app
ENV PATH=/opt/app/bin:$PATH PIP_PYTHON=/opt/app/bin/python PIP_NO_CACHE_DIR=1

# TensorFlow has its own layer, so that a change of our sources does not rebuild it.
FROM build AS tensorflow
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*
COPY serving_ops/locks/tensorflow.txt /locks/
RUN pip install --require-hashes -r /locks/tensorflow.txt

FROM tensorflow AS wheel
WORKDIR /src
COPY pyproject.toml LICENSE NOTICE ./
COPY de_core de_core
COPY de_core_cli de_core_cli
# An empty README, so that a change of the real one compiles nothing.
RUN touch README.md && pip wheel --no-deps --wheel-dir /wheels .

FROM wheel AS ops
RUN pip install --no-deps --prefix=/ops /wheels/*.whl

# Trainer and gateway share these libraries. Headers, symbols and clang's library are four tenths of TensorFlow, and only
# compiling needs them. The packages that only training needs are removed too: TensorFlow runs SavedModels without Keras.
FROM tensorflow AS libraries
RUN pip uninstall --yes libclang tensorboard tensorboard-data-server markdown werkzeug pillow setuptools wheel \
      keras h5py optree namex rich pygments markdown-it-py mdurl \
 && rm -r /opt/app/lib/python3*/site-packages/tensorflow/include \
 && strip --strip-unneeded /opt/app/lib/python3*/site-packages/tensorflow/libtensorflow_*.so.2

# These two stages add packages to the shared libraries.
FROM libraries AS training-libraries
RUN pip install --require-hashes --prefix=/training -r /locks/tensorflow.txt \
 && rm -r /training/lib/python3*/site-packages/clang /training/lib/python3*/site-packages/libclang*

FROM libraries AS gateway-libraries
COPY serving_ops/locks/gateway.txt /locks/
RUN pip install --require-hashes --prefix=/gateway -r /locks/gateway.txt

FROM build AS front-libraries
RUN apt-get update \
 && apt-get install -y --no-install-recommends binutils \
 && rm -rf /var/lib/apt/lists/*
COPY serving_ops/locks/gateway.txt /locks/
# Remove symbols and numpy's tests. Do not strip the libraries in *.libs: wheels patch them, and strip would break them.
RUN pip install --require-hashes -r /locks/gateway.txt \
 && find /opt/app/lib -path '*/numpy/*' -type d -name tests -prune -exec rm -r {} + \
 && find /opt/app/lib -name '*.so' ! -path '*.libs/*' -exec strip --strip-unneeded {} +

FROM ${PYTHON_RUN_IMAGE} AS base
ENV PATH=/opt/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TF_CPP_MIN_LOG_LEVEL=2
RUN useradd --create-home --uid 1000 app && mkdir /models && chown app /models
WORKDIR /app
LABEL org.opencontainers.image.licenses="Apache-2.0" org.opencontainers.image.version="0.1.0"

FROM base AS runtime
COPY --from=libraries /opt/app /opt/app
COPY --from=ops /ops /opt/app
ARG TENSORFLOW=2.20.0
LABEL de-core.tensorflow="${TENSORFLOW}"

FROM runtime AS trainer
LABEL org.opencontainers.image.title="de-core trainer" \
      org.opencontainers.image.description="Trains models with growing embedding tables and exports them."
COPY --from=training-libraries /training /opt/app
COPY examples examples
# A number, because Kubernetes' runAsNonRoot does not resolve names.
USER 1000
# The kernel drops unhandled signals to a container's first process. Python handles this one, unless the process that starts
# the container ignores it.
STOPSIGNAL SIGINT
CMD ["python", "examples/train_ranking.py", "--out", "/models/ranking"]

FROM runtime AS gateway
LABEL org.opencontainers.image.title="de-core gateway" \
      org.opencontainers.image.description="TensorFlow Serving's REST and gRPC, in front of a model folder or of model servers."
COPY --from=gateway-libraries /gateway /opt/app
COPY server server
USER 1000
EXPOSE 8501
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["python", "-m", "server.process.health"]
ENTRYPOINT ["python", "-m", "server", "--host", "0.0.0.0"]
CMD ["--model-dir", "/models/ranking"]

FROM base AS gateway-front
LABEL org.opencontainers.image.title="de-core gateway-front" \
      org.opencontainers.image.description="TensorFlow Serving's REST and gRPC, in front of model servers."
COPY --from=front-libraries /opt/app /opt/app
COPY server server
USER 1000
EXPOSE 8501
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["python", "-m", "server.process.health"]
ENV DE_GATEWAY_ENGINE=tfserving
ENTRYPOINT ["python", "-m", "server", "--host", "0.0.0.0"]

FROM ${PYTHON_BUILD_IMAGE} AS dev
LABEL org.opencontainers.image.title="de-core dev" org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
 && apt-get install -y --no-install-recommends git g++ make cmake ninja-build libgtest-dev redis-server redis-tools chromium prometheus \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 app \
 && mkdir /work && chown app /work
WORKDIR /work
USER 1000
COPY --chown=app . .
CMD ["make", "test"]

# These stages come last, because some builders build every stage before the target.
FROM ${SERVING_BUILD_IMAGE} AS model-server-build
ARG TENSORFLOW_SERVING=2.20.0
# A job needs about 2 GB of memory. If a compiler is killed, use fewer jobs.
ARG BAZEL_JOBS=4
ARG BAZEL_MEMORY_MB=8192
ARG SERVING_SOURCES=https://github.com/tensorflow/serving
WORKDIR /tensorflow-serving
# The image's sources come without git and may differ from its tag, so fetch the tag.
RUN git init --quiet \
 && git fetch --quiet --depth 1 "${SERVING_SOURCES}" "refs/tags/${TENSORFLOW_SERVING}:refs/tags/${TENSORFLOW_SERVING}" \
 && git checkout --quiet --force --detach "refs/tags/${TENSORFLOW_SERVING}" \
 && git clean --quiet --force -d
COPY serving_ops /src/serving_ops
COPY de_core/cc /src/de_core/cc
RUN /src/serving_ops/build_model_server.sh --tree /tensorflow-serving --output /out/tensorflow_model_server \
      --jobs "${BAZEL_JOBS}" --memory-mb "${BAZEL_MEMORY_MB}"

FROM ${SERVING_RUN_IMAGE} AS model-server
LABEL org.opencontainers.image.title="de-core model server" org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="TensorFlow Serving with the ops of growing embedding tables inside."
COPY --from=model-server-build /out/tensorflow_model_server /usr/bin/tensorflow_model_server
COPY serving_ops/run_model_server.sh /usr/bin/run_model_server
# The base's entry point runs as root without need.
USER 1000
EXPOSE 8500 8501
ENV MODEL_NAME=ranking MODEL_BASE_PATH=/models
ENTRYPOINT ["/usr/bin/run_model_server"]
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
  CMD ["/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8501 && printf 'GET /v1/models/%s HTTP/1.0\\r\\n\\r\\n' \"$MODEL_NAME\" >&3 && grep -q AVAILABLE <&3"]
