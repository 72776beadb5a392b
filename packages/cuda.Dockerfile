# For NVIDIA GPUs, with the torch of pip, which brings CUDA. The machine needs its driver and the container toolkit alone.
#   docker build -f packages/cuda.Dockerfile -t apus-cuda .
#   docker run --rm --gpus all --ipc=host -v /models:/models apus-cuda sft --model /models/NAME --dataset /models/rows.jsonl
FROM python:3.12-slim-bookworm AS build
ARG TORCH=2.11.0
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /source
COPY . .
# hadolint ignore=SC1091,DL3042
RUN . scripts/common.sh \
 && install_missing "${build_packages[@]}" zip \
 && pip install "torch==$TORCH" numpy \
 && APUS_DEPS='' scripts/build-wheel python3

FROM python:3.12-slim-bookworm
COPY --from=build /source/dist /tmp/dist
# What the program itself links with beside torch.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends libcurl4 libpcre2-8-0 libutf8proc2 libyaml-cpp0.7 libjpeg62-turbo libpng16-16 \
      libwebp7 libwebpdemux2 libavformat59 libavcodec59 libswscale6 libswresample4 \
 && rm -rf /var/lib/apt/lists/* \
 && pip install --no-cache-dir /tmp/dist/apus-*.whl \
 && rm -rf /tmp/dist
WORKDIR /work
ENTRYPOINT ["apus"]
CMD ["--help"]
