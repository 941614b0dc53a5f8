# SPDX-License-Identifier: Apache-2.0
# Everything that people and CI do here is a target; `make` alone lists them.
#
# Results go to build/, what outlives a clone (tools, a Go toolchain, kernels)
# to the folder that .ci/cache-dir names, by version or digest.

.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/sh

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
CACHE   := $(shell .ci/cache-dir)
GO_DIR  := $(shell .ci/go-dir)
GO      := $(GO_DIR)/go
export PATH := $(GO_DIR):$(PATH)

include .ci/tools.env
TOOLS              := $(CACHE)/tools
GOLANGCI_LINT      := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)/golangci-lint
BUF                := $(TOOLS)/buf-$(BUF_VERSION)/buf
PROTOC_GEN_GO      := $(TOOLS)/protoc-gen-go-$(PROTOC_GEN_GO_VERSION)/protoc-gen-go
PROTOC_GEN_GO_GRPC := $(TOOLS)/protoc-gen-go-grpc-$(PROTOC_GEN_GO_GRPC_VERSION)/protoc-gen-go-grpc

STEP    := .ci/step
RESULTS := build/test-results
TEST    := build/bin/testresults

# build/ may hold a kernel's source tree: never walk it.
GO_PACKAGES := ./kernel-broker/... ./tests/...
GO_CMDS     := $(patsubst %/main.go,./%,$(wildcard kernel-broker/cmd/*/main.go tests/cmd/*/main.go tests/*/cmd/*/main.go))
GO_LDFLAGS  := -s -w -X main.version=$(VERSION)
GO_SUITES   := $(patsubst %,./%/...,$(wildcard tests/lab tests/suites tests/factory \
	kernel-broker/factory/graph kernel-broker/factory/slim kernel-broker/factory/vm \
	kernel-broker/factory/measure))
# CI has 90 minutes on 2 cores and wants to be done in half of that. What it has
# no time for: who is trusted and what jobs do with their kernels, on the virtual
# cluster, and what boots a distribution's kernel for each test.
LONG_TESTS  := ^Test(Trust|Profiling|Chaos|Reproducible)
LONG_SUITES := $(patsubst %,./%/...,$(wildcard kernel-broker/agent/collect \
	kernel-broker/agent/kexec kernel-broker/factory/admission tests/systemd))
# Kernels with a profile or a trace take runs: kernelctl kernel build. Those
# that are only compared with are built by what compares them, and those with what
# collectors need are for the long suites: each of their files carries debug
# information, so that they take longer, and pahole.
PLAIN_KERNELS := $(patsubst catalog/kernels/%.yaml,%,$(shell \
	grep -LE '^(optimisation: *pgo|slimming: *trace)' catalog/kernels/*.yaml))
LONG_KERNELS  := $(filter %-profiling,$(PLAIN_KERNELS))
KERNELS       := $(filter-out bench-% $(LONG_KERNELS),$(PLAIN_KERNELS))
C_PARTS     := $(patsubst %/Makefile,%,$(wildcard slurm-plugin/Makefile \
	kernel-broker/factory/measure/plugin/Makefile tests/workloads/*/Makefile))

BPF_SOURCE  := kernel-broker/agent/collect/bpf/source

KBLAB        ?= build/bin/kblab
DEMO         ?= build/bin/kb-demo
BENCH_SWITCH ?= build/bin/kb-bench
# Extra arguments: make lab-up ARGS="-nodes 3", make test-unit ARGS="-run Foo".
ARGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

##: setting up

.PHONY: deps
deps: ## install what is missing: Debian packages (root or sudo), Go
	@.ci/install-packages
	@.ci/install-go

.PHONY: deps-long
deps-long: deps ## the same with what only the long suites need
	@.ci/install-packages packages-long.txt

$(GO):
	@.ci/install-go

.PHONY: tools
tools: $(GOLANGCI_LINT) $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) ## build linters and generators into the cache

$(GOLANGCI_LINT): | $(GO)
	@.ci/install-tool $(@D) github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
$(BUF): | $(GO)
	@.ci/install-tool $(@D) github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
$(PROTOC_GEN_GO): | $(GO)
	@.ci/install-tool $(@D) google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)
$(PROTOC_GEN_GO_GRPC): | $(GO)
	@.ci/install-tool $(@D) google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC_VERSION)

##: building

.PHONY: build
build: build-bpf build-go build-c ## build everything but the kernels, into build/

# The agent embeds what this makes. Go code builds without it, and an agent
# built so has no collectors and says so: hence build-go leaves it out, with a
# word, on a machine that has no compiler for it.
.PHONY: build-bpf
build-bpf: ## compile the collectors' programs for the kernel
	@$(STEP) build/bpf $(MAKE) -s --no-print-directory -C $(BPF_SOURCE)

.PHONY: build-go
build-go: | $(GO)
	@if command -v clang >/dev/null && [ -e /usr/include/bpf/bpf_helpers.h ]; then \
		$(MAKE) -s --no-print-directory build-bpf; \
	else \
		echo "build/go: no clang or libbpf-dev: the agent is built without collectors" >&2; \
	fi
	@mkdir -p build/bin
	@$(STEP) build/go env CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(GO_LDFLAGS)' -o build/bin/ $(GO_CMDS)

.PHONY: build-c
build-c:
	@for part in $(C_PARTS); do $(STEP) build/$$part $(MAKE) -s --no-print-directory -C $$part || exit; done

.PHONY: kernels
kernels: build-go ## build or take from the cache every kernel of the catalog, and Debian's own
	@for kernel in $(KERNELS); do \
		$(STEP) kernel/$$kernel build/bin/kernel-factory build --kernel $$kernel --out build/kernels/$$kernel || exit; \
	done
	@$(STEP) kernel/stock build/bin/kernel-factory distribution --out build/kernels/stock

.PHONY: kernels-long
kernels-long: deps-long build-go ## build or take from the cache the kernels that only the long suites need
	@for kernel in $(LONG_KERNELS); do \
		$(STEP) kernel/$$kernel build/bin/kernel-factory build --kernel $$kernel --out build/kernels/$$kernel || exit; \
	done

.PHONY: generate
generate: $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) ## generate kernel-broker/api/v1 from proto/
	@rm -f kernel-broker/api/v1/*.pb.go
	@cd proto && $(BUF) generate

.PHONY: verify-generate
verify-generate: $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) ## check that the generated code is what proto/ gives
	@$(STEP) lint/generated .ci/verify-generate $(BUF)

# buf finds its plugins on PATH.
generate verify-generate: export PATH := $(dir $(PROTOC_GEN_GO)):$(dir $(PROTOC_GEN_GO_GRPC)):$(PATH)

##: checking; each lint-x has its fix-x where a machine can do it

LINTS := lint-go lint-modules lint-proto lint-api verify-generate lint-shell lint-c lint-yaml lint-lua

.PHONY: lint
lint: ## run every lint-* check, all of them even when one finds something
	@$(MAKE) -k --no-print-directory $(LINTS)

.PHONY: lint-go
lint-go: $(GOLANGCI_LINT) ## golangci-lint, gofmt and goimports among it
	@$(STEP) lint/go $(GOLANGCI_LINT) run $(GO_PACKAGES)

.PHONY: fix-go
fix-go: $(GOLANGCI_LINT) ## repair what golangci-lint can repair, format Go
	@$(GOLANGCI_LINT) run --fix $(GO_PACKAGES)
	@$(GOLANGCI_LINT) fmt $(GO_PACKAGES)

.PHONY: lint-proto
lint-proto: $(BUF) ## buf lint and format
	@$(STEP) lint/proto $(BUF) lint proto
	@$(STEP) lint/proto-format $(BUF) format --diff --exit-code proto

.PHONY: fix-proto
fix-proto: $(BUF) ## format proto/
	@$(BUF) format --write proto

.PHONY: lint-api
lint-api: $(BUF) ## buf breaking against the API that was promised, proto/promised.txtpb
	@$(STEP) lint/api .ci/verify-api $(BUF)

.PHONY: fix-api
fix-api: $(BUF) ## promise the API as it is now, breaking what was promised before
	@$(BUF) build proto --as-file-descriptor-set --exclude-source-info -o proto/promised.txtpb

.PHONY: lint-shell
lint-shell: ## shellcheck
	@$(STEP) lint/shell sh -c '.ci/shell-scripts | xargs shellcheck -x -P SCRIPTDIR'

.PHONY: lint-c
lint-c: ## clang-format, cppcheck, scan-build
	@$(STEP) lint/c-format .ci/verify-format
	@$(STEP) lint/c-analysis .ci/analyse-c $(C_PARTS)

.PHONY: fix-c
fix-c: ## format C
	@.ci/files '*.c' '*.h' | xargs -r clang-format -i

.PHONY: lint-yaml
lint-yaml: ## yamllint
	@$(STEP) lint/yaml sh -c ".ci/files '*.yaml' '*.yml' | xargs yamllint --strict"

.PHONY: lint-lua
lint-lua: ## luac -p
	@$(STEP) lint/lua sh -c ".ci/files '*.lua' | xargs -r luac5.3 -p"

.PHONY: lint-modules
lint-modules: | $(GO) ## go.mod and go.sum say what the code needs
	@$(STEP) lint/modules $(GO) mod tidy -diff

# Its database is on the network: no part of lint, which needs none. VULNDB is a
# copy of it as a folder, file:///...
.PHONY: govulncheck
govulncheck: | $(GO) ## known vulnerabilities in what the code calls (VULNDB=file:///FOLDER for a copy of Go's database)
	@$(GO) run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) $(if $(VULNDB),-db $(VULNDB)) -tags lab,emulated $(GO_PACKAGES)

.PHONY: fix-modules
fix-modules: | $(GO) ## go mod tidy
	@$(GO) mod tidy

.PHONY: fix
fix: fix-go fix-proto fix-c ## run every fix-* that changes only the layout

##: testing

$(TEST): $(filter-out %_test.go,$(wildcard tests/cmd/testresults/*.go)) | $(GO)
	@mkdir -p $(@D)
	@CGO_ENABLED=0 $(GO) build -o $@ ./tests/cmd/testresults

.PHONY: test
test: deps build lint kernels test-unit test-flood test-c test-emulated test-suites ## everything, as CI does it

.PHONY: test-unit
test-unit: $(TEST) ## Go tests with the race detector; fuzz targets run their seeds
	@$(STEP) unit $(TEST) go -o $(RESULTS)/unit.jsonl -- -race $(ARGS) $(GO_PACKAGES)

FUZZTIME ?= 600

.PHONY: fuzz
fuzz: | $(GO) ## run each fuzz target for FUZZTIME seconds (600), or those that match FUZZ (FUZZ=rpc)
	@$(STEP) fuzz .ci/fuzz $(GO) $(FUZZTIME) $(FUZZ)

.PHONY: test-flood
test-flood: $(TEST) ## 10,000 connections, which the race detector of test-unit has no room for
	@$(STEP) flood $(TEST) go -o $(RESULTS)/flood.jsonl -v -- -count=1 -run TenThousand $(ARGS) ./kernel-broker/broker/server

.PHONY: test-store
test-store: $(TEST) ## only the store's conformance suite, on memory and on etcd (part of test-unit)
	@$(STEP) store $(TEST) go -o $(RESULTS)/store.jsonl -v -- -race -count=1 $(ARGS) ./kernel-broker/broker/store/... ./kernel-broker/broker/store/etcdserver/...

.PHONY: test-c
test-c: $(TEST) ## C tests under the sanitizers, TAP
	@$(STEP) c $(TEST) tap -o $(RESULTS)/c.tap -- sh -c \
		'status=0; for part in $(C_PARTS); do $(MAKE) -s --no-print-directory -C $$part test || status=1; done; exit $$status'

# Versions of Slurm, each from its Debian suite: bookworm, trixie, sid.
SLURM ?= 22.05

# The model takes its actions by chance and time: make model, and test-long.
EMULATED_SKIP ?= ^TestModel$$

.PHONY: test-emulated
test-emulated: build-go build-c $(TEST) ## Slurm's side on emulated clusters, in seconds each (SLURM="22.05 24.11 26.05" for all versions)
	@status=0; for version in $(SLURM); do \
		results=emulated; [ $$version = 22.05 ] || results=emulated-$$version; \
		KB_SLURM=$$version $(STEP) $$results $(TEST) go -o $(RESULTS)/$$results.jsonl -v -- \
			-tags emulated -count=1 -timeout 40m -p 2 -parallel 4 -skip '$(EMULATED_SKIP)' $(ARGS) ./tests/emulated/... || status=1; \
	done; exit $$status

.PHONY: test-suites
test-suites: build kernels $(TEST) ## the suites on the virtual cluster (root or user namespaces)
	@$(STEP) suites $(TEST) go -o $(RESULTS)/suites.jsonl -v -- -tags lab -count=1 -timeout 60m -p 1 -skip '$(LONG_TESTS)|^TestWholeWay' $(ARGS) $(GO_SUITES)

.PHONY: test-long
test-long: deps-long build kernels kernels-long $(TEST) ## the suites that CI has no time for: trust and profiling on the cluster, collectors, Secure Boot, systemd (more than an hour)
	@$(MAKE) --no-print-directory test-emulated SLURM="24.11 26.05" EMULATED_SKIP=none
	@$(STEP) long-suites $(TEST) go -o $(RESULTS)/long-suites.jsonl -v -- -tags lab -count=1 -timeout 150m -p 1 -run '$(LONG_TESTS)' $(ARGS) ./tests/suites/... ./tests/factory/...
	@$(STEP) long $(TEST) go -o $(RESULTS)/long.jsonl -v -- -tags lab -count=1 -timeout 90m -p 1 $(ARGS) $(LONG_SUITES)

.PHONY: test-units
test-units: deps-long build kernels $(TEST) ## only the systemd units, on two machines with Debian's systemd and Slurm (part of test-long)
	@$(STEP) units $(TEST) go -o $(RESULTS)/units.jsonl -v -- -tags lab -count=1 -timeout 60m $(ARGS) ./tests/systemd/...

.PHONY: test-whole-way
test-whole-way: build kernels $(TEST) ## from a job's profile to a kernel made of it and a job on that (compiles two kernels the first time)
	@$(STEP) whole-way $(TEST) go -o $(RESULTS)/whole-way.jsonl -v -- -tags lab -count=1 -timeout 300m -run '^TestWholeWay' $(ARGS) ./tests/suites/...

PGO_KERNELS := build/kernels-pgo

.PHONY: test-suites-pgo
test-suites-pgo: build kernels $(TEST) ## the same with mitgcm's profile-guided kernel in the place of its slim one
	@build/bin/kernelctl kernel build mitgcm-pgo --publish never
	@rm -rf $(PGO_KERNELS) && mkdir -p $(PGO_KERNELS)/mitgcm
	@ln -s ../kernels/stock ../kernels/suite-stock $(PGO_KERNELS)/
	@folder=$$(build/bin/kernelctl kernel candidates mitgcm-pgo -o json | jq -er '.candidates[0].kernel') && \
		cp "$$folder/bzImage" $(PGO_KERNELS)/mitgcm/ && \
		jq '.name = "mitgcm"' "$$folder/kernel.json" >$(PGO_KERNELS)/mitgcm/kernel.json
	@KB_LAB_KERNELS=$(CURDIR)/$(PGO_KERNELS) $(STEP) suites-pgo $(TEST) go -o $(RESULTS)/suites-pgo.jsonl -v -- \
		-tags lab -count=1 -timeout 60m -p 1 -skip '$(LONG_TESTS)|^TestWholeWay' $(ARGS) ./tests/suites/...

.PHONY: model
model: build-go build-c ## 2,000 random actions of users, administrators and faults on emulated clusters (SLURM="22.05 24.11 26.05", STEPS=2000; an hour each)
	@for version in $(SLURM); do KB_SLURM=$$version KB_MODEL_SEED=random KB_MODEL_STEPS=$(or $(STEPS),2000) KB_MODEL_LANES=3 \
		$(GO) test -tags emulated ./tests/emulated/model -run TestModel -count=1 -v -timeout 300m $(ARGS) || exit; done

.PHONY: stress
stress: build kernels ## 100 mixed jobs of two users, with ReturnToService 0 and 1 (about 30 minutes)
	@KB_STRESS_JOBS=100 $(GO) test -tags lab ./tests/suites -run TestStress -count=1 -v -timeout 90m $(ARGS)

.PHONY: chaos
chaos: build kernels ## 300 long jobs on three nodes, ReturnToService 0, 1 and 2, while nodes, daemons and an administrator do what they do (hours)
	@KB_CHAOS_JOBS=100 $(GO) test -tags lab ./tests/suites -run TestChaos -count=1 -v -timeout 300m $(ARGS)

##: using

.PHONY: demo
demo: deps build kernels ## a job gets its kernel on a virtual cluster, from start to end
	@$(DEMO) $(ARGS)

.PHONY: bench-switch
bench-switch: build kernels ## measure the switch, phase by phase
	@$(BENCH_SWITCH) $(ARGS)

.PHONY: bench-kernels
bench-kernels: build ## kernels side by side under all workloads (hours the first time; goes on where it was)
	@build/bin/kernel-factory bench kernels --out build/bench-kernels $(ARGS)

.PHONY: bench-choices
bench-choices: build ## kernels without protections of memory, and of branch probabilities alone (an hour the first time)
	@build/bin/kernel-factory bench choices --out build/bench-choices $(ARGS)

.PHONY: bench-profiling
bench-profiling: deps-long build ## what the fragment profiling costs a slim kernel while nobody looks
	@build/bin/kernel-factory bench profiling --out build/bench-profiling $(ARGS)

.PHONY: bench-authorisation
bench-authorisation: | $(GO) ## measure what it adds to a call to know who makes it, judge it and record it
	@CGO_ENABLED=0 $(GO) build -o build/bin/kb-authcost ./tests/authcost/cmd/kb-authcost
	@build/bin/kb-authcost --go $(GO) $(ARGS)

.PHONY: bench-build-cost
bench-build-cost: build ## what a kernel's builds cost against plain make (about 15 minutes)
	@build/bin/kb-buildcost $(ARGS)

.PHONY: bench-collectors
bench-collectors: deps-long build kernels ## what the collectors of profiling runs cost jobs (half an hour and more)
	@build/bin/kb-collectcost $(ARGS)

.PHONY: emulated-shell
emulated-shell: build-go build-c ## a shell on an emulated cluster, which ends with it (KB_SLURM=26.05, ARGS="--user root")
	@build/bin/kb-emulated $(ARGS)

.PHONY: lab-up
lab-up: build kernels ## start a virtual cluster
	@$(KBLAB) up $(ARGS)

.PHONY: lab-shell
lab-shell: ## a user's shell on the virtual cluster
	@$(KBLAB) shell $(ARGS)

.PHONY: lab-down
lab-down: ## stop the virtual cluster
	@$(KBLAB) down $(ARGS)

DESTDIR     ?=
prefix      ?= /usr
bindir      ?= $(prefix)/bin
sbindir     ?= $(prefix)/sbin
libexecdir  ?= $(prefix)/libexec/kernel-broker
datadir     ?= $(prefix)/share/kernel-broker
mandir      ?= $(prefix)/share/man
unitdir     ?= $(prefix)/lib/systemd/system
sysconfdir  ?= /etc

# Configurations are installed as samples, which nobody edits: nothing that an
# administrator wrote is ever overwritten.
SAMPLES := kernel-broker/cmd/kernel-broker/broker.sample.yaml:broker.yaml \
	kernel-broker/agent/config/agent.sample.yaml:agent.yaml \
	kernel-broker/api/client/client.yaml:client.yaml \
	kernel-broker/factory/site/factory.yaml:factory.yaml \
	kernel-broker/auth/authz/policy.sample.yaml:policy.yaml \
	kernel-broker/auth/signing/trust.sample.yaml:trust.yaml

.PHONY: install
install: build ## install below DESTDIR
	install -D -m 0755 -t $(DESTDIR)$(bindir) build/bin/kernelctl build/bin/kernel-factory
	install -D -m 0755 -t $(DESTDIR)$(sbindir) build/bin/kernel-broker build/bin/kernel-broker-agent
	install -D -m 0755 -t $(DESTDIR)$(libexecdir) build/bin/kernel-broker-hook build/bin/kernel-broker-node-hook
	for hook in prolog-slurmctld epilog-slurmctld reboot; do \
		ln -sfn kernel-broker-hook $(DESTDIR)$(libexecdir)/$$hook || exit; \
	done
	ln -sfn kernel-broker-node-hook $(DESTDIR)$(libexecdir)/epilog
	install -D -m 0755 -t $(DESTDIR)$(libexecdir) build/measure/kbcount.so
	find build/workloads -maxdepth 1 -type f -perm -0100 ! -name '*-sanitized' \
		-exec install -D -m 0755 -t $(DESTDIR)$(libexecdir)/workloads {} +
	cd catalog && find . -type f -exec install -D -m 0644 {} $(abspath $(DESTDIR)$(datadir))/catalog/{} \;
	for sample in $(SAMPLES); do \
		install -D -m 0644 $${sample%%:*} $(DESTDIR)$(sysconfdir)/kernel-broker/$${sample##*:}.sample || exit; \
	done
	install -D -m 0644 docs/ops/slurm.conf.sample $(DESTDIR)$(sysconfdir)/kernel-broker/slurm.conf.sample
	install -D -m 0644 -t $(DESTDIR)$(unitdir) kernel-broker/systemd/*.service
	install -D -m 0644 -t $(DESTDIR)$(datadir)/slurmd.service.d kernel-broker/systemd/slurmd.service.d/*.conf
	rm -rf build/man && mkdir -p build/man && build/bin/kernelctl man build/man
	install -D -m 0644 -t $(DESTDIR)$(mandir)/man1 build/man/*.1
	install -D -m 0644 -t $(DESTDIR)$(mandir)/man8 kernel-broker/man/*.8
	ln -sfn kernel-broker-hook.8 $(DESTDIR)$(mandir)/man8/kernel-broker-node-hook.8
	$(MAKE) -C slurm-plugin install DESTDIR=$(abspath $(DESTDIR)) sysconfdir=$(sysconfdir) mandir=$(mandir)

.PHONY: clean
clean: ## remove build/
	rm -rf build
	@$(MAKE) -s --no-print-directory -C $(BPF_SOURCE) clean

.PHONY: clean-cache
clean-cache: ## remove the cache: tools, Go, kernels
	@case "$(CACHE)" in ''|/|"$(HOME)") echo "not removing \"$(CACHE)\"" >&2; exit 1;; esac
	rm -rf -- "$(CACHE)"
