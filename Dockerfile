# genpr on NVIDIA GPUs, and on CPUs where there is none. See docs/clusters.md, "Docker".
#   docker build --tag genpr .
#   docker run --rm --gpus all --volume "$PWD:/data" --volume genpr-cache:/cache genpr score real/ fake/
FROM nvidia/cuda:13.0.1-base-ubuntu24.04

# The wheels of torch bring all other CUDA libraries. Versions of apt packages follow the base image.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

ENV PATH=/opt/genpr/bin:$PATH \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY genpr genpr
# The package itself is installed, with the requirements of pyproject.toml.
# hadolint ignore=DL3013
RUN python3 -m venv /opt/genpr && pip install ".[parquet]"

# The cache must belong to the user and be closed to others.
RUN useradd --create-home --uid 10001 genpr && install --directory --mode=700 --owner=genpr /cache /data
USER 10001
ENV GENPR_CACHE=/cache
WORKDIR /data
ENTRYPOINT ["genpr"]
CMD ["--help"]
