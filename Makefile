# make help lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# git describe --dirty writes to .git, and tests that look there would not be taken from the cache.
VERSION ?= $(shell v=$$(git describe --tags --always 2>/dev/null) || { echo dev; exit; }; \
  git --no-optional-locks diff --quiet HEAD || v=$$v-dirty; echo $$v)
LDFLAGS := -s -w -X main.version=$(VERSION)
# One architecture of each system: another differs in nothing of ours.
PLATFORMS := linux/arm64 darwin/arm64 windows/amd64
TOOLS := $(or $(TINE_TEST_TOOLS),$(CURDIR)/.cache/tools)
FUZZTIME ?= 5s
BENCHFLAGS ?=
SOAKFLAGS ?=

export TINE_TEST_TOOLS := $(TOOLS)

# What compiles the same way is compiled once: the binaries, linters and plain tests
# share these settings, and trimmed paths share them between checkouts. The race
# detector needs others.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)
# SQLite in Go, translated from C, is most of what the race detector would look
# at, and its races are not ours to find; nor are wrong pointers in code of others.
RACE := -race -tags '$(TAGS)' '-gcflags=all=-d=checkptr=0' '-gcflags=github.com/tine-mcp/...=' \
  '-gcflags=github.com/ncruces/...=-race=false -d=checkptr=0'

# Tests of packages that do things at once run under the race detector, the
# longest first.
LONGEST := $(addprefix ./internal/,driver/docker driver/sandbox gateway driver/remote session driver/process upstream/...)
AT_ONCE := $(LONGEST) ./client $(addprefix ./internal/,agent/... driver/... identity/... layer native/... store/... telemetry workspace)
# make torture builds with this tag.
TAGS :=
# gVisor is compiled for the binary that needs it, and for nothing else.
OURS = $$(go list ./... | grep -v /cmd/tine-sandbox)

.NOTPARALLEL:

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# go build touches what it need not build again, and tests that look at it would not be
# taken from the cache.
.PHONY: build
build: ## build the static binaries, bin/tine and bin/tine-sandbox
	go build -ldflags '$(LDFLAGS)' -o .cache/bin/ ./cmd/...
	@mkdir -p bin; cd .cache/bin; for f in *; do cmp -s $$f ../../bin/$$f || { rm -f ../../bin/$$f; cp $$f ../../bin/; }; done

.PHONY: run
run: ## build and run the gateway, without what makes sandboxes
	go build -ldflags '$(LDFLAGS)' -o bin/tine ./cmd/tine
	bin/tine serve

.PHONY: setup
setup: ## fetch what the tests need into .cache/tools, install engines
	@SECONDS=0; e2e/setup.sh $(PARTS); echo "make: setup took $$SECONDS s"
PARTS :=

# The linters run while the tools are fetched, which they don't need. What the tools need
# compiled comes after them: two compilers at once would compile the same packages twice.
# The tests of the Python package mostly wait, so they run beside the others, and their
# output comes last. The engines that were started are stopped at the end, however it ends.
each = @$(MAKE) --no-print-directory setup PARTS=fetch & setup=$$!; \
	$(MAKE) --no-print-directory lint || { wait $$setup; exit 1; }; wait $$setup; \
	$(MAKE) --no-print-directory setup; \
	e2e/engine.sh with bash -euc ' \
	  run() { SECONDS=0; $(MAKE) --no-print-directory $$1 $(2); echo "make: $$1 took $$SECONDS s"; }; \
	  trap "wait" EXIT; run python >.cache/python.log 2>&1 & python=$$!; \
	  for t in $(1); do run $$t; done; \
	  wait $$python || { cat .cache/python.log; exit 1; }; cat .cache/python.log'

.PHONY: test
test: ## everything that CI runs: one of each kind
	$(call each,unit e2e)

.PHONY: torture
torture: ## every test at full size, and every platform; takes an hour
	$(call each,cross unit e2e,TAGS=torture TINE_TORTURE=1 TESTTIME=60m)

TESTTIME ?= 20m

# With more memory the compiler and the linters collect less garbage.
lint: export GOGC := 400
.PHONY: lint
lint: build ## gofmt, go vet, staticcheck, the API of node, types on macOS
	@bad=$$(gofmt -l $$(find . -path './.*' -prune -o -name '*.go' -print)); if [ -n "$$bad" ]; then echo "not formatted; run gofmt -w on:"; echo "$$bad"; exit 1; fi
	go vet $(OURS)
	go vet -C tools ./...
	go vet -C node ./...
	go tool -modfile=tools/go.mod staticcheck -tags torture $(OURS)
	cd node && go tool -modfile=../tools/go.mod staticcheck ./...
	go test -C tools -vet=off -count=1 ./api ./platforms

# Tests of drivers and stores wait for engines and disks much of the time, so that
# one more package than there are processors has work for all of them.
AT_A_TIME := $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 1)))

.PHONY: unit
unit: build ## unit tests, with the race detector where things happen at once
	TINE_BIN=$(CURDIR)/bin/tine CGO_ENABLED=1 e2e/engine.sh with go test -p $(AT_A_TIME) $(RACE) -vet=off -timeout $(TESTTIME) $(AT_ONCE)
	TINE_BIN=$(CURDIR)/bin/tine e2e/engine.sh with go test -vet=off -tags '$(TAGS)' -timeout $(TESTTIME) $$(go list ./... | grep -vxF -e $(shell go list .)/e2e -f <(go list $(AT_ONCE)))
	go test -C tools ./image
	CGO_ENABLED=1 go test -C node $(RACE) -vet=off -timeout $(TESTTIME) ./...
	go test -C node -vet=off -run "TestBig|TestTooBig" ./...

.PHONY: cross
cross: ## compile for other platforms
	@for p in $(PLATFORMS); do \
	  echo "cross: $$p"; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} go build -o /dev/null ./cmd/...; \
	done
	GOOS=windows GOARCH=amd64 go vet $(OURS)
	GOOS=windows GOARCH=amd64 go vet -C node ./...

.PHONY: e2e
e2e: setup build ## end-to-end tests on bin/tine
	TINE_BIN=$(CURDIR)/bin/tine e2e/engine.sh with go test -vet=off -parallel 4 -tags '$(TAGS)' -count=1 -v -timeout $(TESTTIME) ./e2e

# The tests that kill a gateway begin with one of an earlier commit.
KILLS := ^Test(Kill|KillLeavesNoChild|TornWrite|SessionKill|RolloutKilled|SandboxKill.*|SandboxRest|Docker.*Killed|DockerAdopts)$$
.PHONY: upgrade
upgrade: setup build ## kill gateways of the commit FROM, and go on with this one
	rm -rf .cache/from && git worktree prune && git worktree add --detach .cache/from $(or $(FROM),$(error FROM=commit is missing))
	go build -C .cache/from -o $(CURDIR)/.cache/tine-from ./cmd/tine
	git worktree remove --force .cache/from
	TINE_OLD_BIN=$(CURDIR)/.cache/tine-from TINE_BIN=$(CURDIR)/bin/tine e2e/engine.sh with go test -vet=off -parallel 2 -tags '$(TAGS)' -count=1 -v -timeout $(TESTTIME) ./e2e -run '$(KILLS)'

# The environment is made anew when what is pinned changes. TINE_BIN names another binary than the one built here.
PYENV := $(CURDIR)/.cache/python
PYPINS := sdk/python/requirements-dev.txt e2e/tools/jupyter.txt
# tineworld.nodes works with two major versions of the package mcp, which can't be in one environment.
PYOLD := $(CURDIR)/.cache/python-mcp1
PYOLDPINS := sdk/python/requirements-mcp1.txt
venv = @cat $(2) sdk/python/pyproject.toml | cmp -s - $(1)/pinned || { \
	  rm -rf $(1) && python3 -m venv $(1) && \
	  $(1)/bin/pip install -q --disable-pip-version-check --no-deps $(2:%=-r %) && \
	  $(1)/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e sdk/python && \
	  $(1)/bin/pip check && cat $(2) sdk/python/pyproject.toml >$(1)/pinned; }

.PHONY: pyenv pyenvs
pyenv:
	$(call venv,$(PYENV),$(PYPINS))
pyenvs: pyenv
	$(call venv,$(PYOLD),$(PYOLDPINS))

.PHONY: python
python: pyenvs ## type check and test the Python package on bin/tine
	@[ -x "$${TINE_BIN:-bin/tine}" ] || $(MAKE) --no-print-directory build
	cd sdk/python && $(PYENV)/bin/mypy && TINE_BIN="$${TINE_BIN:-$(CURDIR)/bin/tine}" $(PYENV)/bin/pytest
	cd sdk/python && TINE_BIN="$${TINE_BIN:-$(CURDIR)/bin/tine}" $(PYOLD)/bin/pytest -W default --disable-warnings tests/test_nodes*.py

# Sandboxes are for Linux, so that only its wheels have the program that makes them. Files in
# wheels have a fixed time: the same source and Go make the same wheels.
WHEELS ?= linux/amd64 $(PLATFORMS)
.PHONY: wheel
wheel: pyenv ## write the Python package with the programs in it, dist/*.whl, and its source, dist/*.tar.gz
	rm -rf dist/wheel dist/tineworld-*
	@for p in $(WHEELS); do \
	  echo "wheel: $$p: compiling, which takes minutes the first time"; programs=dist/wheel/$${p/\//-}; mkdir -p $$programs; \
	  main=./cmd/tine; if [ $${p%/*} = linux ]; then main=./cmd/...; fi; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} go build -ldflags '$(LDFLAGS)' -o $$programs/ $$main; \
	  echo "wheel: $$p: packing"; \
	  (cd sdk/python && TINE_PROGRAMS=$(CURDIR)/$$programs $(PYENV)/bin/python -m hatchling build -t wheel -d $(CURDIR)/dist); \
	done
	cd sdk/python && $(PYENV)/bin/python -m hatchling build -t sdist -d $(CURDIR)/dist

# Each adapter is tested with its library in an environment of its own, since they pin different versions of
# the same packages. A library that needs a newer Python than 3.11 says so in its folder, in a file `python`.
TRAINERS ?= $(notdir $(patsubst %/requirements.txt,%,$(wildcard sdk/python/trainers/*/requirements.txt)))
.PHONY: trainers
trainers: ## test the adapters for trainers with the real libraries; TRAINERS=trl for one
	@[ -x "$${TINE_BIN:-bin/tine}" ] || $(MAKE) --no-print-directory build
	@for t in $(TRAINERS); do echo "trainers: $$t"; sdk/python/trainers/run.sh $$t || exit 1; done

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	@go list -f '{{.Dir}} {{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}' ./... | while read -r dir files; do \
	  [ -n "$$files" ] || continue; \
	  for f in $$(cd "$$dir" && grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$files | awk '{print $$2}'); do \
	    echo "fuzz: $${dir#$(CURDIR)/} $$f"; \
	    (cd "$$dir" && go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) . </dev/null) || exit 1; \
	  done; \
	done

.PHONY: bench
bench: build ## measure the relay against a plain reverse proxy, sessions and kernels
	go run ./bench -tine bin/tine $(BENCHFLAGS)

.PHONY: peers
peers: ## fetch what the benchmark compares kernels with into .cache/tools
	bench/peers.sh

.PHONY: soak
soak: build ## 100,000 calls and 200 reconnects: what is still held afterwards
	go run ./bench soak -tine bin/tine $(SOAKFLAGS)

.PHONY: image
image: ## write a container image, dist/tine-image.tar (docker load, podman load)
	GOOS=linux go build -ldflags '$(LDFLAGS)' -o dist/ ./cmd/...
	go run -C tools ./image -binary $(CURDIR)/dist/tine -tag tine:$(VERSION) -o $(CURDIR)/dist/tine-image.tar

.PHONY: deploytest
deploytest: image ## run the systemd unit and the compose file for real; needs root on Debian
	deploy/systemd/try.sh
	deploy/compose/try.sh

.PHONY: clean
clean: ## remove what was built; .cache/tools stays
	rm -rf bin dist
