# About 1.4 GB: 1.27 GB of packages (0.61 of it torch) and the base image. Runs with a read-only root file
# system except for /store (tensors that visitors share) and /tmp.
FROM python:3.11-slim AS packages

WORKDIR /build
COPY requirements.txt ./
# torch first, from its own CPU index: the default build pulls in gigabytes of CUDA libraries. Its tests and
# C++ headers are not needed.
RUN python -m venv --without-pip /venv \
    && pip --python /venv/bin/python install --no-cache-dir \
        --index-url https://download.pytorch.org/whl/cpu "$(grep '^torch==' requirements.txt)" \
    && pip --python /venv/bin/python install --no-cache-dir -r requirements.txt \
    && rm -rf /venv/lib/python3.11/site-packages/torch/test /venv/lib/python3.11/site-packages/torch/include


FROM python:3.11-slim

ENV PATH=/venv/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 QUANTSCOPE_STORE=/store
COPY --from=packages /venv /venv
WORKDIR /app
COPY app.py ./
COPY .streamlit .streamlit
COPY pages pages
COPY quantcore quantcore
RUN python -m compileall -q app.py pages quantcore \
    && useradd --uid 1000 --no-create-home --home-dir /tmp quantscope \
    && install -d -o quantscope /store
USER quantscope

EXPOSE 8501
# Nothing, including the health check, answers until the app has warmed up.
HEALTHCHECK --start-period=60s --interval=5s --timeout=4s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=3)"]
# Unlike `streamlit run`, this accepts no connections before the app is ready, so that a proxy can tell. The
# websocket options are those of `streamlit run`.
CMD ["uvicorn", "app:app", "--host", "0.0.0.0", "--port", "8501", "--timeout-graceful-shutdown", "5", "--ws", "websockets-sansio", "--ws-ping-interval", "30", "--ws-ping-timeout", "30", "--ws-per-message-deflate", "false"]
