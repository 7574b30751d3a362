# `make` alone lists what there is.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -X main.version=$(VERSION)

# The race detector needs a C compiler; `make test RACE=` goes without.
RACE     ?= -race
FUZZTIME ?= 10s

.DEFAULT_GOAL := help
.PHONY: help build run smoke test race bench fuzz lint vectors ci clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/executor and bin/toolworker
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/executor ./cmd/toolworker

run: build ## start everything in one process: server, demo tools, executor
	./bin/executor dev

smoke: build ## build both programs and use them once, as the README says
	TOOLBUS_BIN=$(CURDIR)/bin $(GO) test -count=1 -timeout 60s -run '^TestSmoke$$' -v ./internal/e2e

test: ## run all tests, under the race detector
	$(GO) test $(RACE) -timeout 10m ./...

race: ## look for rare races: the same tests five times, in random order
	$(GO) test -race -count=5 -shuffle=on -timeout 30m ./...

bench: ## run all benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

fuzz: ## fuzz every target for 10 s (FUZZTIME=1m for longer)
	@set -e; for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "--- $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

lint: ## gofmt, go vet, staticcheck
	@out=$$(gofmt -l .); test -z "$$out" || { echo "not gofmt-ed:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

vectors: ## write the golden vectors of wire anew; look at the difference before you commit it
	$(GO) test ./wire -update

ci: ## what the build machine runs
	./.ci/run

clean: ## remove what was built
	rm -rf bin
