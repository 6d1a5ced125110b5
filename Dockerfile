# One image for all commands of `inferno`: the operator by default, the optimizer with `serve`.
FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY manifests/image manifests/image
COPY optimizer optimizer
COPY operator operator
RUN manifests/image/install.sh . /opt/inferno

FROM python:3.12-slim-bookworm
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
