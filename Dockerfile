# Three images of one checkout: `wheel` compiles, `trainer` has the library, `gateway` serves a model folder.
#   docker build --target gateway -t de-gateway .
#   docker run -p 8501:8501 -v "$PWD/exported:/models" de-gateway
ARG BUILD_IMAGE=python:3.11-bookworm
ARG RUN_IMAGE=python:3.11-slim-bookworm

FROM ${BUILD_IMAGE} AS wheel
ARG DE_CORE_TENSORFLOW=2.21
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# TensorFlow first: a layer of its own, which a change of our sources does not touch.
RUN pip install --no-cache-dir "tensorflow==${DE_CORE_TENSORFLOW}.*"
COPY pyproject.toml README.md LICENSE ./
COPY de_core de_core
RUN pip wheel --no-deps --wheel-dir /wheels .

FROM ${RUN_IMAGE} AS trainer
ARG DE_CORE_TENSORFLOW=2.21
RUN pip install --no-cache-dir "tensorflow==${DE_CORE_TENSORFLOW}.*"
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl
WORKDIR /work
COPY examples examples
CMD ["python", "examples/train_ranking.py"]

FROM trainer AS gateway
RUN pip install --no-cache-dir "$(ls /wheels/*.whl)[server]"
COPY server server
RUN useradd --system --create-home gateway
USER gateway
EXPOSE 8501
ENTRYPOINT ["python", "-m", "server", "--host", "0.0.0.0"]
CMD ["--model-dir", "/models"]
