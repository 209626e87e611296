FROM python:3.11-slim

# What tickets are printed in: a name may be in any script.
RUN apt-get update && \
    apt-get install --yes --no-install-recommends \
        fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji && \
    rm -rf /var/lib/apt/lists/*

WORKDIR /app
COPY requirements.lock ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock

COPY ticketing ticketing
COPY workers workers
COPY indexes indexes
COPY scripts scripts

ENV PYTHONUNBUFFERED=1
RUN useradd --system --no-create-home ticketing
USER ticketing
CMD ["python", "-m", "ticketing.api"]
