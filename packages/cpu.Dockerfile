# For processors, with Debian's libtorch.
#   docker build -f packages/cpu.Dockerfile -t apus .
#   docker run --rm -p 8000:8000 -v /models:/models apus deploy --model /models/NAME --host 0.0.0.0 --api_key SECRET
FROM debian:12-slim AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /source
COPY . .
# hadolint ignore=SC1091
RUN . scripts/common.sh \
 && install_missing "${build_packages[@]}" "${torch_packages[@]}" \
 && configure_and_build release -DAPUS_TESTS=OFF \
 && (cd build && cpack -G DEB)

FROM debian:12-slim
COPY --from=build /source/build/apus_*.deb /tmp/
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates libopenblas0-pthread /tmp/apus_*.deb \
 && rm -rf /var/lib/apt/lists/* /tmp/apus_*.deb
WORKDIR /work
ENTRYPOINT ["apus"]
CMD ["--help"]
