# One image for all commands of `inferno`: the operator by default, the optimizer with `serve`.
# BASE names the base image by digest: python:3.12-slim-bookworm@sha256:... It has no default, as a
# digest is to be looked up where there is a registry (docs/guides/install.md).
ARG BASE
FROM ${BASE} AS build
ARG BASE
RUN case "$BASE" in *@sha256:*) ;; *) echo "BASE=$BASE: name the image by digest" >&2; exit 1 ;; esac
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY manifests/image manifests/image
COPY optimizer optimizer
COPY operator operator
COPY samples samples
RUN manifests/image/install.sh . /opt/inferno

FROM ${BASE}
COPY --from=build /opt/inferno /opt/inferno
ENV PATH=/opt/inferno/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    USER=inferno
# A numeric user, so that Kubernetes can verify that it is not root.
USER 65532:65532
ENTRYPOINT ["inferno"]
CMD ["operator"]
