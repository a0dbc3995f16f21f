# make run   sets everything up and takes four local nodes through the quick suite
# make test  sets everything up and runs the ordinary check: format, lint, types, imports, tests
# make gate  the tests of the slow lanes that run for every change; make test-all runs all lanes
# make docs  writes what docs/ has from the code anew, and builds the site into site/

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?= python3

.PHONY: setup system run test lint unit docs gate gate-packages gate-containers gate-served gate-nodes test-fresh test-all test-slow test-fuzz test-bounds test-e2e test-images test-browser test-production test-prometheus test-slurm test-docker test-runai test-baremetal kubernetes test-kubernetes bench release base-images mutants format clean

run: setup
	$(BIN)/seatrial run deployments/clusters/local.yaml --suite quick

# What measures rates of real nodes runs alone: it has the lock IDLE for itself, which all that runs beside `make test` shares.
IDLE := $(VENV)/.idle
ALONE := tests/integration/test_throughput.py tests/gpu
# The longest tests first
SHARING := tests/integration tests/unit tests/contract $(addprefix --ignore=,$(ALONE))
# One more than there are processors, since tests of real nodes wait half of the time; a worker has up to 2 GB
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 8 ? n + 1 : 8)))
PARALLEL := -n $(WORKERS) --dist worksteal

test: lint
	@scripts/test-packages
	$(BIN)/pytest -m "not slow" $(PARALLEL) $(SHARING)
	flock -o $(IDLE) $(BIN)/pytest -m "not slow" $(ALONE)

# What no test of `make test` can show: of each slow lane the tests marked `gate`, in three parts of which two run at a
# time. What holds the lock of tests/images is together. Most of them wait, so `.ci/run` runs them beside `make test`.
GATE_CONTAINERS := tests/images tests/docker tests/browser tests/e2e/kubernetes
WHEEL := tests/e2e/test_wheel.py
GATE_SERVED := tests/e2e tests/production --ignore=$(WHEEL)
GATE_NODES := $(WHEEL) tests/slurm tests/baremetal

gate: gate-packages
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target gate-containers gate-served gate-nodes

gate-packages: setup
	@for lane in test browser image slurm kubernetes; do scripts/$$lane-packages || true; done   # pytest skips what there is not

gate-containers:
	flock -s -o $(IDLE) $(BIN)/pytest -m gate $(GATE_CONTAINERS)

gate-served:
	flock -s -o $(IDLE) $(BIN)/pytest -m gate $(GATE_SERVED)

gate-nodes:
	flock -s -o $(IDLE) $(BIN)/pytest -m gate $(GATE_NODES)

test-fresh:   # `make run` and `make test` in a bare Debian 12 and a bare Ubuntu 24.04; half an hour, needs root and debootstrap
	scripts/test-fresh

test-all: test
	@for lane in slow fuzz bounds e2e production browser images docker prometheus slurm runai baremetal kubernetes; do \
		$(MAKE) --no-print-directory test-$$lane || failed="$$failed $$lane"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.measure

unit: setup
	$(BIN)/pytest -m "not slow" $(PARALLEL) tests/unit

docs: setup
	$(BIN)/python -m scripts.reference
	$(BIN)/mkdocs build --strict --quiet
	@echo site/index.html

test-slow: setup   # what `make test` leaves out
	@scripts/test-packages
	$(BIN)/pytest -m slow tests/unit tests/integration

test-fuzz: setup   # 10,000 broken inputs for everything that reads what nodes, files and other people hand in; SEED=2 makes others
	$(BIN)/pytest tests/fuzz --seed $(SEED)

test-bounds: setup   # with the oldest packages that pyproject.toml allows, and with the newest on each Python that is here
	scripts/test-bounds

test-e2e: setup   # `seatrial run` as people run it: whole checks of local nodes, slowed, cut and killed; 10 minutes
	$(BIN)/pytest tests/e2e

test-images: setup   # builds images/cpu for real and runs it; minutes the first time, skipped where the tools cannot be had
	@scripts/image-packages || true
	$(BIN)/pytest tests/images

test-docker: setup   # containers of images/cpu by podman's Docker-compatible socket; skipped where podman cannot be had
	@scripts/image-packages || true
	$(BIN)/pytest tests/docker

test-browser: setup   # report.html and Prefect's UI in headless Chromium; skipped where it cannot be had
	@scripts/browser-packages || true
	$(BIN)/pytest tests/browser

test-prometheus: setup   # the real Prometheus, node exporter and push gateway, unpacked from Debian's packages
	@scripts/prometheus-packages || true
	$(BIN)/pytest tests/integration/test_prometheus.py

test-slurm: setup   # a real Slurm of four virtual nodes, from Debian's packages; skipped where they cannot be had
	@scripts/slurm-packages || true
	$(BIN)/pytest tests/slurm

test-runai: setup   # a stand-in for the command runai, whose pods are namespaces with real processes
	$(BIN)/pytest tests/runai

test-baremetal: setup   # hosts that are up: namespaces with sshd of their own
	$(BIN)/pytest tests/baremetal

kubernetes: setup   # builds Kubernetes from source (20 minutes on two cores) and images/cpu, unless they are there
	$(BIN)/python -m tests.e2e.kubernetes build

test-kubernetes: setup   # a real cluster of two nodes; the first time builds it
	@test -n "$$SEATRIAL_TEST_KUBECONFIG" || $(MAKE) --no-print-directory kubernetes || true   # pytest skips what there is not
	$(BIN)/pytest tests/e2e/kubernetes

test-production: setup   # seatrial serve and a work pool with their processes killed, on SQLite and PostgreSQL, and an incident; 15 minutes, 30 on a busy machine
	@scripts/test-packages
	$(BIN)/pytest tests/production

release: setup   # wheel, sdist, SBOM and SHA256SUMS of the last commit, into dist/; KEY=FILE signs them
	$(BIN)/python -m scripts.release $(if $(KEY),--sign $(KEY))

base-images: setup   # writes the digest of each base image behind its tag, anew; needs their registries
	$(BIN)/python -m scripts.base_images

SEED ?= 1
NUMBER ?= 20
mutants: setup   # changes one thing of the code at a time and says what no test notices; an hour for 100 on an idle machine
	$(BIN)/python -m scripts.mutants $(SEED) $(NUMBER)

bench: setup
	$(BIN)/python benchmarks/local_nodes.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/quick_run.py
	$(BIN)/python benchmarks/judge_speed.py
	nice $(BIN)/python benchmarks/judge_error_rates.py   # a tenth of the trials of docs/error-rates.md; minutes

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: system $(STAMP)

system:
	@scripts/system-packages

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("seatrial needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@echo "1 of 3: a virtual environment, and uv, which installs the rest"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet 'uv>=0.5'
	@echo "2 of 3: seatrial and its packages, 7 GB with PyTorch; minutes the first time, the last of them to compile 19,000 files"
	@$(BIN)/uv pip install --compile-bytecode --python $(BIN)/python --editable '.[local,google,apprise,charts]' --group dev
	@$(BIN)/python -m compileall -q seatrial flows tasks   # uv leaves out what is installed in place
	@echo "3 of 3: Prefect's database, or the first run would wait for it"
	@DO_NOT_TRACK=1 $(BIN)/prefect server database upgrade --yes >/dev/null
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site
