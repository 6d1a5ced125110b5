# The operator and every other command of `inferno` in one image.
FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY optimizer optimizer
COPY operator operator
RUN python -m venv /opt/inferno \
 && /opt/inferno/bin/pip install --no-cache-dir --constraint constraints.txt .

FROM python:3.12-slim-bookworm
COPY --from=build /opt/inferno /opt/inferno
ENV PATH=/opt/inferno/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["inferno"]
CMD ["operator"]
