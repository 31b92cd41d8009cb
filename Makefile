# muxpost. `make help` lists the targets; each says what it needs.

BIN       := $(CURDIR)/bin
TOOLS     := $(CURDIR)/.bin
VERSION   := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT    := $(shell git rev-parse HEAD 2>/dev/null)
DIRTY     := $(shell test -z "$$(git status --porcelain 2>/dev/null)" || echo true)
V         := muxpost.dev/muxpost/internal/version
LDFLAGS   := -X $(V).Version=$(VERSION) -X $(V).Commit=$(COMMIT) -X $(V).Dirty=$(DIRTY)
RACE      ?=
TESTFLAGS ?=
GO        ?= go
PREVIOUS  := $(shell grep -v '^\#' deploy/previous)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build every program into bin/
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/muxpost ./cmd/muxpost-exec ./test/fakeagent ./test/fakegithub/cmd/fakegithub \
		./test/drill/cmd/muxpost-drill
	@for s in tmuxd dispatcher poller; do \
		CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/muxpost-$$s ./services/$$s || exit 1; done

.PHONY: setup
setup: ## install tmux and PostgreSQL with apt where they are missing
	@scripts/setup.sh

.PHONY: dist
dist: ## pack what a machine with systemd needs into dist/: static programs, units, install.sh
	@into=$$(mktemp -d) && to=$$into/muxpost-$(VERSION) && $(MAKE) --no-print-directory build BIN=$$to/bin && rm $$to/bin/fakegithub && \
		cp deploy/systemd/* LICENSE $$to/ && mkdir -p dist && \
		tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$$(git log -1 --format=%ct 2>/dev/null || echo 0) -C $$into -cz \
			-f dist/muxpost-$(VERSION)-linux-$$($(GO) env GOARCH).tar.gz muxpost-$(VERSION) && rm -r $$into && \
		echo dist/muxpost-$(VERSION)-linux-$$($(GO) env GOARCH).tar.gz

.PHONY: demo
demo: setup build ## show one comment reaching one agent, end to end
	@$(GO) run ./test/demo -bin $(BIN)

.PHONY: test
test: ## run all tests (RACE=1 adds the race detector)
	@scripts/setup.sh tests
	@# -count 1: many tests build the programs that they run, of which the cache of results knows nothing
	$(GO) test $(if $(RACE),-race) -count 1 -parallel 8 -timeout 15m $(TESTFLAGS) work

.PHONY: bench
bench: setup ## measure tmuxd, the ledger and the whole way of an event beside bare tmux, Postgres and gRPC (minutes; nothing else should run)
	@$(GO) run ./services/tmuxd/internal/bench
	@out=$$($(GO) test ./services/poller/internal/webhook -run '^$$' -bench Bare -benchtime 1x -count 1 -timeout 5m); ended=$$?; \
		echo "$$out" | grep -E '^(ratio|--- |FAIL)|bench_test.go'; exit $$ended
	@$(GO) run ./services/poller/internal/bench
	@$(GO) run ./test/bench

.PHONY: bench-compare
bench-compare: setup ## measure this tree and the commit BASE in turns, TURNS (3) times, and compare them with benchstat
	@scripts/bench-compare.sh "$(BASE)" $(TURNS)

.PHONY: stress
stress: setup ## a thousand deliveries into a hundred sessions while things break (minutes)
	STRESS_SESSIONS=100 $(GO) test ./services/tmuxd -race -count 1 -v -timeout 20m -run '^TestStress_'

.PHONY: scale
scale: setup ## what a dispatcher does with a thousand hosts and fifty thousand sessions (a minute; nothing else should run)
	SCALE_HOSTS=1000 SCALE_SESSIONS=50000 SCALE_SECONDS=15 $(GO) test ./services/dispatcher -count 1 -v -timeout 10m -run '^TestScale_'

.PHONY: load
load: setup ## what comes all at once: ten thousand items after an outage, a thousand events for one item (minutes)
	LOAD_ITEMS=$(or $(LOAD_ITEMS),10000) LOAD_HOSTS=$(or $(LOAD_HOSTS),20) LOAD_EVENTS=$(or $(LOAD_EVENTS),1000) \
		$(GO) test ./test/load -count 1 -v -timeout 40m -run '^TestLoad_'

.PHONY: fuzz
fuzz: setup ## fuzz every parser, encoder and call in turn, each for FUZZ_TIME (60s); FUZZ_ONLY chooses by name
	@scripts/fuzz.sh

.PHONY: sizing
sizing: setup build ## what an event takes in Postgres and on disk, and what everything takes while nothing happens (two minutes)
	@$(GO) run ./test/sizing -bin $(BIN)

.PHONY: drill
drill: ## break things on three hosts for DRILL_TIME (10m), by DRILL_SEED, with further flags in DRILL_ARGS (as root: hosts are namespaces)
	@scripts/setup.sh tests
	@$(GO) run ./test/drill/cmd/drill-build -o $(BIN)/drill -clocks
	@$(BIN)/drill/bin/muxpost-drill -clocks -next $(BIN)/drill/next -time $(or $(DRILL_TIME),10m) $(if $(DRILL_SEED),-seed $(DRILL_SEED)) $(DRILL_ARGS)

.PHONY: drill-mutations
drill-mutations: ## switch off one guard after the other, and see that the drill notices (half an hour; nothing else should run)
	@scripts/setup.sh tests
	@$(GO) run ./test/drill/cmd/drill-mutants

.PHONY: test-harnesses
test-harnesses: setup ## deliveries into the real agent programs that MUXPOST_TEST_HARNESSES names (HARNESS_PROMPTS, HARNESS_KILLS, HARNESS_SEED)
	@test -n "$(MUXPOST_TEST_HARNESSES)" || { echo "set MUXPOST_TEST_HARNESSES to the directories where codex and opencode lie"; exit 1; }
	HARNESS_PROMPTS=$(or $(HARNESS_PROMPTS),200) HARNESS_KILLS=$(or $(HARNESS_KILLS),50) \
		$(GO) test ./test/harnesses -count 1 -v -timeout 4h -run '^TestHarness_TheFigures' -skip '/fakeagent'

.PHONY: compose-test
compose-test: ## try the stack of deploy/compose on a Docker engine, which is installed and started where there is none (as root, minutes)
	@deploy/compose/testing/engine.sh start
	@deploy/compose/testing/images.sh base postgres
	@$(GO) run ./test/compose; ended=$$?; deploy/compose/testing/engine.sh stop; exit $$ended

.PHONY: systemd-test
systemd-test: ## try the units of deploy/systemd on machines that systemd runs, in containers (as root, minutes)
	@deploy/compose/testing/engine.sh start
	@deploy/compose/testing/images.sh base
	@$(GO) run ./test/systemd; ended=$$?; deploy/compose/testing/engine.sh stop; exit $$ended

.PHONY: upgrade-test
upgrade-test: setup ## replace every program by that of the release before and back, in every order, with events on their way (minutes)
	UPGRADE_ROUNDS=$(or $(UPGRADE_ROUNDS),1) $(GO) test ./test/e2e -count 1 -v -timeout 1h -run '^TestUpgrade_'

.PHONY: lint
lint: $(TOOLS)/.lint ## run the linters (the first run compiles them: minutes)
	$(TOOLS)/golangci-lint run $$($(GO) list -m -f '{{.Dir}}/...')
	cd proto && PATH=$(TOOLS):$$PATH buf lint
	@git cat-file -e '$(PREVIOUS)^{commit}' || { echo "this clone does not have $(PREVIOUS), which deploy/previous names: git fetch --unshallow --tags"; exit 1; }
	cd proto && PATH=$(TOOLS):$$PATH buf breaking --against '../.git#ref=$(PREVIOUS),subdir=proto'

.PHONY: grpcurl
grpcurl: $(TOOLS)/.dev ## compile grpcurl into .bin/ (minutes), with which the recipes of docs/operations.md are tried too

.PHONY: generate
generate: $(TOOLS)/.buf $(TOOLS)/.proto ## make proto/gen from proto/api
	cd proto && PATH=$(TOOLS):$$PATH buf lint && PATH=$(TOOLS):$$PATH buf format -w api && PATH=$(TOOLS):$$PATH buf generate
	$(GO) test ./internal/arch -run Generated -update

.PHONY: verify
verify: ## prove that generated code and module files are current
	@before=$$(mktemp -d) && cp -a proto/gen proto/gen.sum $$before && $(MAKE) --no-print-directory generate >/dev/null && \
		diff -r $$before/gen proto/gen && diff $$before/gen.sum proto/gen.sum && rm -r $$before && echo "generated code is current"
	@for m in . proto; do (cd $$m && GOWORK=off $(GO) mod tidy -diff && GOWORK=off $(GO) build ./...) || exit 1; done && echo "module files are current"
	@test -z "$$(gofmt -l $$(git ls-files '*.go' | grep -v ^proto/gen/))" || { echo "run gofmt -w on:"; gofmt -l $$(git ls-files '*.go'); exit 1; }

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN) dist

# Tools are modules of their own, compiled once: a stamp decides.
$(TOOLS)/.%: tools/%/go.mod tools/%/go.sum
	@mkdir -p $(TOOLS)
	GOWORK=off GOBIN=$(TOOLS) $(GO) -C tools/$* install tool
	@touch $@
