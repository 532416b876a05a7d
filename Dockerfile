# A worker with locked activities. Yours looks the same: install lock-interceptor, add your code, start it.
ARG PYTHON_IMAGE=python:3.13-slim
FROM ${PYTHON_IMAGE}

WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY lock_interceptor lock_interceptor
# with the command line, to look at locks from within: docker compose exec worker lock-interceptor list
RUN python -m pip install --no-cache-dir --root-user-action ignore '.[cli]'
COPY integration/example_worker.py ./

# nobody in particular, and certainly not root
USER 10001
CMD ["python", "example_worker.py"]
