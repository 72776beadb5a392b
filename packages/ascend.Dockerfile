# For Ascend NPUs of the kind 910B, with the vendor's CANN and torch_npu; CHIP=a3 for 910C. The machine needs its driver alone.
#   docker build -f packages/ascend.Dockerfile -t apus-ascend .
#   docker run --rm --ipc=host --device /dev/davinci0 --device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc \
#     -v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro -v /usr/local/dcmi:/usr/local/dcmi:ro -v /models:/models \
#     apus-ascend sft --model /models/NAME --dataset /models/rows.jsonl
ARG CANN=8.3.rc1
ARG CHIP=910b
# The same image to build in and to run in: torch_npu asks for all of CANN.
FROM quay.io/ascend/cann:${CANN}-${CHIP}-ubuntu22.04-py3.11 AS build
ARG TORCH=2.7.1
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /source
COPY . .
# Static archives of what the program links with: the wheel asks for nothing of the image but libcurl.
# hadolint ignore=SC1091,DL3042
RUN . scripts/common.sh \
 && install_missing "${build_packages[@]}" zip \
 && pip install "torch==$TORCH" "torch_npu==$TORCH" numpy pyyaml \
 && scripts/build-wheel python3

FROM quay.io/ascend/cann:${CANN}-${CHIP}-ubuntu22.04-py3.11
ARG TORCH=2.7.1
COPY --from=build /source/dist /tmp/dist
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends libcurl4 \
 && rm -rf /var/lib/apt/lists/* \
 && pip install --no-cache-dir "torch==$TORCH" "torch_npu==$TORCH" numpy pyyaml /tmp/dist/apus-*.whl \
 && rm -rf /tmp/dist
ENV HCCL_CONNECT_TIMEOUT=600
WORKDIR /work
ENTRYPOINT ["apus"]
CMD ["--help"]
