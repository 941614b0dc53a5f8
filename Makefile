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
BENCHSTAT          := $(TOOLS)/benchstat-$(BENCHSTAT_VERSION)/benchstat
NFPM               := $(TOOLS)/nfpm-$(NFPM_VERSION)/nfpm
GOTESTSUM          := $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)/gotestsum

STEP    := .ci/step
RESULTS := build/test-results

# build/ may hold a kernel's source tree: never walk it.
GO_PACKAGES := ./kernel-broker/... ./tests/...
GO_CMDS     := $(patsubst %/main.go,./%,$(wildcard kernel-broker/cmd/*/main.go tests/*/cmd/*/main.go))
GO_LDFLAGS  := -s -w -X main.version=$(VERSION)
# make test is to be done within half an hour on 2 cores. On QEMU it has what only
# real kernels show: the main job, and faults of kernels, power and returns. What
# it has no time for is test-long's.
SUITES      ?= $(patsubst %,./%/...,$(wildcard tests/lab tests/suites \
	kernel-broker/factory/graph kernel-broker/factory/slim kernel-broker/factory/vm \
	kernel-broker/factory/measure))
# What newer versions of Slurm can change; a factory has none.
SLURM_SUITES ?= $(filter ./tests/%,$(SUITES))
# What make test runs, and what takes hours (Chaos, which has KB_CHAOS_JOBS jobs, and WholeSite).
LONG_SKIP   := ^Test(MainJob$$|FaultKernels$$|FaultPower$$|Chaos|WholeSite)
SKIP        ?= ^Test(SystemCores|Trust|Profiling|Chaos|Stress|WholeWay|ModulesOfOthers|FaultBroker|FaultEtcd|FaultController)
LONG_SUITES := $(patsubst %,./%/...,$(wildcard tests/suites tests/factory tests/gather tests/systemd \
	kernel-broker/agent/collect kernel-broker/agent/kexec kernel-broker/broker/power kernel-broker/factory/admission kernel-broker/factory/tune))
# What the suites boot; the demo and the lab boot Debian's own and mitgcm. Any other
# recipe by its name, if it needs no run or has training data; what collectors need is
# for the long suites, which have pahole.
KERNELS      ?= mitgcm suite-stock
demo lab-up: KERNELS = mitgcm $(filter suite-stock,$(ARGS))
LONG_KERNELS := mitgcm-profiling mitgcm-cores suite-gather suite-modules server
# One workload needs MPI, of deps-long.
MPI         := tests/workloads/mpi
C_PARTS     := $(filter-out $(MPI),$(patsubst %/Makefile,%,$(wildcard slurm-plugin/Makefile \
	kernel-broker/factory/measure/plugin/Makefile tests/workloads/*/Makefile)))

BPF_SOURCE  := kernel-broker/agent/collect/bpf/source

KBLAB        ?= build/bin/kblab
DEMO         ?= build/bin/kb-demo
# Extra arguments: make lab-up ARGS="-nodes 3", make test-unit ARGS="-run Foo".
ARGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

##: setting up

.PHONY: deps-demo
deps-demo: ## install what the demo and the lab need and is missing: Debian packages (root or sudo), Go
	@.ci/install-packages
	@.ci/install-go

.PHONY: deps
deps: deps-demo ## the same with what make test needs
	@.ci/install-packages packages-test.txt

.PHONY: deps-long
deps-long: deps ## the same with what only the long suites need
	@.ci/install-packages packages-long.txt

$(GO):
	@.ci/install-go

# Linters, generators and runners are built into the cache when one is needed.
$(GOLANGCI_LINT): | $(GO)
	@.ci/install-tool $(@D) github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
$(BUF): | $(GO)
	@.ci/install-tool $(@D) github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
$(PROTOC_GEN_GO): | $(GO)
	@.ci/install-tool $(@D) google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)
$(PROTOC_GEN_GO_GRPC): | $(GO)
	@.ci/install-tool $(@D) google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC_VERSION)
$(BENCHSTAT): | $(GO)
	@.ci/install-tool $(@D) golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION)
$(NFPM): | $(GO)
	@.ci/install-tool $(@D) github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
$(GOTESTSUM): | $(GO)
	@.ci/install-tool $(@D) gotest.tools/gotestsum@$(GOTESTSUM_VERSION)

$(RESULTS):
	@mkdir -p $@

##: building

.PHONY: build
build: build-go build-c ## build everything but the kernels, into build/
build: COLLECTORS := needed

# The agent embeds the collectors' programs for the kernel. Go code builds without
# them, and an agent built so says that it has none: on a machine without a compiler
# for them build-go leaves them out, with a word, and build fails. grpcnotrace omits
# gRPC's tracing pages, a fifth of an agent that a node reads at each boot.
.PHONY: build-go
build-go: | $(GO) ## compile the Go programs, and the collectors where there is clang
	@if [ "$(COLLECTORS)" ] || { command -v clang && [ -e /usr/include/bpf/bpf_helpers.h ]; } >/dev/null; then \
		$(STEP) build/bpf $(MAKE) -s --no-print-directory -C $(BPF_SOURCE); \
	else \
		echo "build/go: no clang or libbpf-dev: the agent is built without collectors" >&2; \
	fi
	@mkdir -p build/bin
	@$(STEP) build/go env CGO_ENABLED=0 $(GO) build -trimpath -tags grpcnotrace -ldflags '$(GO_LDFLAGS)' -o build/bin/ $(GO_CMDS)

.PHONY: build-c
build-c: ## compile the plugin and the workloads
	@for part in $(C_PARTS); do $(STEP) build/$$part $(MAKE) -s --no-print-directory -C $$part || exit; done

.PHONY: kernels
kernels: build-go ## build or take from the cache the kernels of demo and tests, at -O2, and Debian's own, or KERNELS="redis nginx", OPTIMISED=1 by their profiles
	@for kernel in $(KERNELS); do \
		$(STEP) kernel/$$kernel build/bin/kernel-factory build $(if $(OPTIMISED),,--quick) --kernel $$kernel --out build/kernels/$$kernel || exit; \
	done
	@$(STEP) kernel/stock build/bin/kernel-factory distribution --out build/kernels/stock

.PHONY: generate
generate: $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) ## generate kernel-broker/api/v1 from proto/
	@rm -f kernel-broker/api/v1/*.pb.go
	@cd proto && $(BUF) generate

# buf finds its plugins on PATH.
generate lint: export PATH := $(dir $(PROTOC_GEN_GO)):$(dir $(PROTOC_GEN_GO_GRPC)):$(PATH)

##: checking

# .ci/lint runs them.
lint fix: export GO := $(GO)
lint: export GOLANGCI_LINT := $(GOLANGCI_LINT)
lint: export BUF := $(BUF)
lint: export GO_PACKAGES := $(GO_PACKAGES)
lint: export C_PARTS := $(C_PARTS)
lint: export GOVULNCHECK_VERSION := $(GOVULNCHECK_VERSION)
lint: export VULNDB := $(VULNDB)

.PHONY: lint
lint: $(GOLANGCI_LINT) $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) ## every check of the code, or those of ARGS="go modules proto api shell c-format yaml ... vulnerabilities"
	@.ci/lint $(ARGS)

.PHONY: fix
fix: $(GOLANGCI_LINT) $(BUF) ## repair what a machine can: layout, what golangci-lint repairs, go.mod
	@$(GO) mod tidy
	@$(GOLANGCI_LINT) run --fix $(GO_PACKAGES)
	@$(GOLANGCI_LINT) fmt $(GO_PACKAGES)
	@$(BUF) format --write proto
	@.ci/files '*.c' '*.h' | xargs -r clang-format -i

.PHONY: promise-api
promise-api: $(BUF) ## promise the API as it is now, breaking what was promised before
	@$(BUF) build proto --as-file-descriptor-set --exclude-source-info -o proto/promised.txtpb

##: testing

# $(call gotest,NAME,FORMAT) is a step that keeps Go's events in NAME.jsonl, for
# .ci/summary.
gotest = $(STEP) $(1) $(GOTESTSUM) --format $(2) --format-hide-empty-pkg --jsonfile $(RESULTS)/$(1).jsonl --

# The emulated clusters mostly wait, so that lint has the processors beside them.
.PHONY: test
test: deps build kernels $(GOLANGCI_LINT) $(BUF) $(GOTESTSUM) ## everything that CI runs (about 26 minutes on 2 cores, 38 the first time)
	@status=0; \
	nice $(MAKE) --no-print-directory lint & beside=$$!; \
	$(MAKE) --no-print-directory test-emulated || status=1; \
	wait $$beside || status=1; \
	for next in test-unit test-c test-suites; do $(MAKE) --no-print-directory $$next || status=1; done; \
	$(MAKE) --no-print-directory test-suites SLURM='$(NEWER_SLURM)' ARGS='-run ^TestMainJob$$$$' || status=1; \
	exit $$status

# 10,000 connections are more than the race detector has room for. What the
# documentation and the layout are held to has nothing to race with.
HELD_TO := ./tests/rules ./tests/docs

.PHONY: test-unit
test-unit: $(GOTESTSUM) | $(RESULTS) ## Go tests with the race detector (ARGS="-run Foo"); fuzz targets run their seeds
	@status=0; \
	$(call gotest,unit,pkgname-and-test-fails) -race -timeout 20m $(ARGS) $$($(GO) list $(GO_PACKAGES) | grep -vxF "$$($(GO) list $(HELD_TO))") || status=1; \
	$(call gotest,rules,pkgname-and-test-fails) -timeout 20m $(ARGS) $(HELD_TO) || status=1; \
	$(if $(ARGS),,$(call gotest,flood,testname) -count=1 -run TenThousand ./kernel-broker/broker/server || status=1;) \
	exit $$status

.PHONY: test-c
test-c: ## C tests under the sanitizers
	@status=0; for part in $(C_PARTS); do \
		$(STEP) c/$$(basename $$part) $(MAKE) -s --no-print-directory -C $$part test || status=1; \
	done; exit $$status

# Versions of Slurm, each from its Debian suite: bookworm, trixie, sid. One that sid
# does not have today is left out with a word.
SLURM       ?= 22.05
NEWER_SLURM := 24.11 26.05

# $(call slurms,NAME,COMMAND) runs the command on each of these versions, as the steps
# NAME, NAME-24.11, ..., which is $$result.
slurms = status=0; for version in $(SLURM); do \
		result=$(1); [ $$version = 22.05 ] || result=$(1)-$$version; \
		.ci/on-slurm $$version $$result $(2) || status=1; \
	done; exit $$status

# The model takes its actions by chance and time, a federation and Jobstats need slurmdbd, two brokers take two minutes, and
# upgrades need an earlier commit:
# test-long.
EMULATED_SKIP ?= ^Test(Model|Federation|Jobstats|BrokersTakeTurns|UpgradeThe.*)$$

.PHONY: test-emulated
test-emulated: build-go build-c $(GOTESTSUM) | $(RESULTS) ## Slurm's side on emulated clusters, in seconds each (SLURM="22.05 24.11 26.05" for all versions)
	@$(call slurms,emulated,$(call gotest,$$result,testname) \
		-tags emulated -count=1 -timeout 120m -p 2 -parallel 4 -skip '$(EMULATED_SKIP)' $(ARGS) ./tests/emulated/...)

# $(call suites,NAME,SKIP) runs packages on QEMU, two at a time: clusters wait most of
# their time, the factory computes.
suites = $(call gotest,$(1),testname) -tags lab -count=1 -timeout 300m -p 2 -skip '$(2)' $(ARGS)

.PHONY: test-suites
test-suites: build kernels $(GOTESTSUM) | $(RESULTS) ## the suites on QEMU that CI runs (root or user namespaces), or SLURM=26.05 SUITES=./tests/factory SKIP= ARGS="-run Foo"
	@$(call slurms,suites,$(call suites,$$result,$(SKIP)) $(if $(filter 22.05,$(SLURM)),$(SUITES),$(SLURM_SUITES)))

.PHONY: test-long
test-long: deps-long build kernels $(GOTESTSUM) | $(RESULTS) ## all other suites: newer Slurm, the model, faults of broker and etcd, trust, profiling, factory, collectors, Secure Boot, systemd (about one and a half hours)
	@status=0; rm -rf $(RESULTS)/*; \
	$(MAKE) --no-print-directory kernels KERNELS='$(LONG_KERNELS)' || status=1; \
	$(MAKE) --no-print-directory test-emulated SLURM="22.05 24.11 26.05" EMULATED_SKIP= || status=1; \
	$(STEP) c/mpi $(MAKE) -s --no-print-directory -C $(MPI) test || status=1; \
	$(STEP) c/slurmctld $(MAKE) -s --no-print-directory -C slurm-plugin test-slurm || status=1; \
	$(call suites,long,$(LONG_SKIP)) $(LONG_SUITES) || status=1; \
	.ci/summary $$status emulated emulated-24.11 emulated-26.05 c/mpi c/slurmctld long

.PHONY: test-xfstests
test-xfstests: XFSTESTS_KERNEL ?= suite-xfstests
test-xfstests: deps-long build $(GOTESTSUM) | $(RESULTS) ## xfstests' quick group on ext4 and tmpfs, with gathered short writes and without (XFSTESTS=DIR, a checkout; hours; XFSTESTS_KERNEL=suite-xfstests-fast for no checks of locks)
	@.ci/install-packages packages-xfstests.txt
	@$(MAKE) --no-print-directory kernels KERNELS=$(XFSTESTS_KERNEL)
	@rm -rf build/xfstests && mkdir -p build/xfstests && \
		cp -a '$(or $(XFSTESTS),$(error test-xfstests needs XFSTESTS=DIR, a checkout of xfstests))' build/xfstests/built
	@$(STEP) xfstests-build $(MAKE) -s --no-print-directory -C build/xfstests/built
	@KB_XFSTESTS=$(CURDIR)/build/xfstests/built KB_GATHER_KERNEL=$(CURDIR)/build/kernels/$(XFSTESTS_KERNEL)/bzImage $(call suites,xfstests) -timeout 0 -run TestXfstests ./tests/gather

FUZZTIME ?= 600

.PHONY: fuzz
fuzz: | $(GO) ## run each fuzz target for FUZZTIME seconds (600), or those that match FUZZ (FUZZ=broker/server)
	@$(STEP) fuzz .ci/fuzz $(GO) $(FUZZTIME) $(FUZZ)

.PHONY: soak
soak: | $(GO) ## 5,000 jobs of 1 to 1,000 nodes through a controller on a real etcd: memory and store as after 500 (a table and JSON; JOBS=1000 for fewer; an hour or so)
	@KB_SOAK_JOBS=$(or $(JOBS),5000) $(GO) test -tags soak ./kernel-broker/broker/controller -run TestSoak -count=1 -v -timeout 120m $(ARGS)

.PHONY: model
model: build-go build-c ## 2,000 random actions of users, administrators and faults on emulated clusters (SLURM="22.05 24.11 26.05", STEPS=2000, LANES=3; an hour each)
	@for version in $(SLURM); do KB_SLURM=$$version KB_MODEL_SEED=random KB_MODEL_STEPS=$(or $(STEPS),2000) KB_MODEL_LANES=$(or $(LANES),3) \
		$(GO) test -tags emulated ./tests/emulated/model -run TestModel -count=1 -v -timeout 300m $(ARGS) || exit; done

##: using

.PHONY: demo
demo: deps-demo build kernels ## a job gets its kernel on a virtual cluster, from start to end; KEEP=1 keeps the cluster and shows it in a browser
	@$(DEMO) $(if $(KEEP),--keep) $(ARGS)

.PHONY: bench-switch
bench-switch: build kernels ## measure the switch, phase by phase
	@build/bin/kb-bench switch $(ARGS)

# BENCH is one of catalog/benches: branches, choices, hpc, inputs, kernels, models, passes, processors, profiling, servers, versions, writes.
BENCH ?= kernels

.PHONY: bench-kernels
bench-kernels: build $(if $(filter profiling versions writes,$(BENCH)),deps-long) ## kernels side by side under all workloads, or another bench of catalog/benches (BENCH=hpc; hours the first time)
	@build/bin/kb-kernels $(BENCH) --out build/bench-$(BENCH) $(ARGS)

# Calls without identity, decision and record, and calls with them, in rounds that take turns.
BENCH_ROUNDS ?= 10
AUTH         := build/bench-authorisation

.PHONY: bench-authorisation
bench-authorisation: $(BENCHSTAT) ## measure what it adds to a call to know who makes it, authorize and record it (goal: 2 ms at the median)
	@mkdir -p build && CGO_ENABLED=0 $(GO) test -c -o $(AUTH).test ./kernel-broker/broker/server
	@cd kernel-broker/broker/server && for round in $$(seq $(BENCH_ROUNDS)); do \
		$(CURDIR)/$(AUTH).test -test.run '^$$' -test.bench '^BenchmarkAuthorisation$$' $(ARGS) || exit; \
	done >$(CURDIR)/$(AUTH).txt
	@jq -Rn '[inputs | capture("^Benchmark(?<name>[^\\s]+).* (?<median_us>[0-9.]+) median-us/op") | .median_us |= tonumber]' \
		$(AUTH).txt >$(AUTH).json
	@$(BENCHSTAT) -filter '.unit:median-us/op' -row /call -col '/way@(off socket munge)' $(AUTH).txt

.PHONY: bench-collect
bench-collect: deps-long build kernels ## measure what the collectors of profiling runs cost jobs (half an hour and more; NPB=DIR, the folder bin of the NAS benchmarks, adds four)
	@build/bin/kb-bench collect $(if $(NPB),--nas '$(NPB)') $(ARGS)

.PHONY: bench-cores
bench-cores: deps-long build ## count what interrupts an application, without and with a core for the system
	@$(MAKE) --no-print-directory kernels KERNELS=bench-cores
	@build/bin/kb-bench cores $(ARGS)

.PHONY: bench-mitgcm
bench-mitgcm: deps-long build ## run the real MITgcm as jobs on stock and on its kernel, and compare its results (MITGCM=DIR, a checkout)
	@$(MAKE) --no-print-directory kernels OPTIMISED=1
	@build/bin/kb-bench mitgcm --source "$(or $(MITGCM),$(error bench-mitgcm needs MITGCM=DIR, a checkout of MITgcm))" $(ARGS)

.PHONY: bench-mpi
bench-mpi: deps-long build ## measure MPI messages between two nodes on stock, slim and mitgcm (latency, bandwidth)
	@$(MAKE) --no-print-directory kernels KERNELS='slim mitgcm' OPTIMISED=1
	@$(STEP) build/$(MPI) $(MAKE) -s --no-print-directory -C $(MPI)
	@build/bin/kb-bench mpi $(ARGS)

.PHONY: bench-scale
bench-scale: build-go ## measure the broker at 1,000 and 10,000 simulated nodes, a quarter of an hour on two idle cores (ARGS="--nodes 1000 --pprof build/scale-profiles")
	@build/bin/kb-bench scale $(ARGS)

.PHONY: bench-faults
bench-faults: build-go ## kill, stop and cut off one of two brokers, and members of etcd, 30 times each, under jobs of simulated nodes (an hour; ARGS="--kinds kill --times 5")
	@build/bin/kb-bench faults $(ARGS)

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

# TestWholeSite's first step, whose machines stay.
.PHONY: site-up
site-up: deps-long build kernels ## six bare virtual machines with Debian's systemd, installed by the Ansible collection, until Ctrl-C (about 40 minutes on 2 cores, 9 GiB of memory)
	@KB_HOLD=$(CURDIR)/build/site $(GO) test -tags lab ./tests/systemd -run '^TestWholeSite$$/^from_bare_hosts$$' -count=1 -v -timeout 0 $(ARGS)

DESTDIR     ?=
prefix      ?= /usr
bindir      ?= $(prefix)/bin
sbindir     ?= $(prefix)/sbin
libexecdir  ?= $(prefix)/libexec/kernel-broker
datadir     ?= $(prefix)/share/kernel-broker
mandir      ?= $(prefix)/share/man
includedir  ?= $(prefix)/include
unitdir     ?= $(prefix)/lib/systemd/system
sysconfdir  ?= /etc

# Configurations are installed as samples, which nobody edits: nothing that an
# administrator wrote is ever overwritten.
sample = install -D -m 0644 $(1) $(DESTDIR)$(sysconfdir)/kernel-broker/$(2).sample

# What goes where, by the package that has it (packaging/): packages are made of
# these targets, so no file is named twice.
INSTALLS := install-broker install-agent install-client install-factory install-plugin

.PHONY: install
install: build $(INSTALLS) ## install below DESTDIR
	$(MAKE) -C slurm-plugin install-job-submit DESTDIR=$(abspath $(DESTDIR)) sysconfdir=$(sysconfdir)

.PHONY: $(INSTALLS)
install-broker:
	install -D -m 0755 -t $(DESTDIR)$(sbindir) build/bin/kernel-broker
	install -D -m 0755 -t $(DESTDIR)$(libexecdir) build/bin/kernel-broker-hook
	for hook in prolog-slurmctld epilog-slurmctld reboot; do \
		ln -sfn kernel-broker-hook $(DESTDIR)$(libexecdir)/$$hook || exit; \
	done
	$(call sample,kernel-broker/cmd/kernel-broker/broker.sample.yaml,broker.yaml)
	$(call sample,kernel-broker/auth/authz/policy.sample.yaml,policy.yaml)
	install -D -m 0644 docs/ops/slurm.conf.sample $(DESTDIR)$(sysconfdir)/kernel-broker/slurm.conf.sample
	install -D -m 0644 -t $(DESTDIR)$(datadir)/monitoring docs/ops/monitoring/alerts.yaml docs/ops/monitoring/dashboard.json
	install -D -m 0644 -t $(DESTDIR)$(unitdir) packaging/systemd/kernel-broker.service
	install -D -m 0644 packaging/systemd/sysusers.conf $(DESTDIR)$(prefix)/lib/sysusers.d/kernel-broker.conf
	install -D -m 0644 -t $(DESTDIR)$(mandir)/man8 packaging/man/kernel-broker.8 packaging/man/kernel-broker-hook.8

install-agent:
	install -D -m 0755 -t $(DESTDIR)$(sbindir) build/bin/kernel-broker-agent
	install -D -m 0755 -t $(DESTDIR)$(libexecdir) build/bin/kernel-broker-node-hook
	ln -sfn kernel-broker-node-hook $(DESTDIR)$(libexecdir)/epilog
	$(call sample,kernel-broker/agent/config/agent.sample.yaml,agent.yaml)
	$(call sample,kernel-broker/auth/signing/trust.sample.yaml,trust.yaml)
	install -D -m 0644 -t $(DESTDIR)$(unitdir) packaging/systemd/kernel-broker-agent.service packaging/systemd/kernel-broker-kexec.target
	install -D -m 0644 -t $(DESTDIR)$(datadir)/slurmd.service.d packaging/systemd/slurmd.service.d/*.conf
	install -D -m 0644 -t $(DESTDIR)$(mandir)/man8 packaging/man/kernel-broker-agent.8
	install -D -m 0644 packaging/man/kernel-broker-hook.8 $(DESTDIR)$(mandir)/man8/kernel-broker-node-hook.8

install-client:
	install -D -m 0755 -t $(DESTDIR)$(bindir) build/bin/kernelctl
	$(call sample,kernel-broker/api/client/client.yaml,client.yaml)
	rm -rf build/man build/completions && mkdir -p build/man build/completions && build/bin/kernelctl man build/man
	for shell in bash zsh fish; do build/bin/kernelctl completion $$shell >build/completions/$$shell || exit; done
	install -D -m 0644 build/completions/bash $(DESTDIR)$(prefix)/share/bash-completion/completions/kernelctl
	install -D -m 0644 build/completions/zsh $(DESTDIR)$(prefix)/share/zsh/vendor-completions/_kernelctl
	install -D -m 0644 build/completions/fish $(DESTDIR)$(prefix)/share/fish/vendor_completions.d/kernelctl.fish
	install -D -m 0644 -t $(DESTDIR)$(mandir)/man1 build/man/*.1
	install -D -m 0644 -t $(DESTDIR)$(unitdir) packaging/systemd/kernel-broker-client.service packaging/systemd/kernel-broker-client.timer

install-factory:
	install -D -m 0755 -t $(DESTDIR)$(bindir) build/bin/kernel-factory
	install -D -m 0755 -t $(DESTDIR)$(libexecdir) build/measure/kbcount.so
	find build/workloads -maxdepth 1 -type f -perm -0100 ! -name '*-sanitized' \
		-exec install -D -m 0755 -t $(DESTDIR)$(libexecdir)/workloads {} +
	cd catalog && find . -type f -exec install -D -m 0644 {} $(abspath $(DESTDIR)$(datadir))/catalog/{} \;
	$(call sample,kernel-broker/factory/site/factory.yaml,factory.yaml)
	install -D -m 0644 -t $(DESTDIR)$(mandir)/man1 packaging/man/kernel-factory.1

install-plugin:
	$(MAKE) -C slurm-plugin install-plugin DESTDIR=$(abspath $(DESTDIR)) mandir=$(mandir) includedir=$(includedir)

# The plugin is for one Slurm release, that of its headers.
SLURM_INCLUDE ?= /usr/include
PACKAGES := build/packages

.PHONY: packages
packages: build $(NFPM) ## deb and rpm packages, into build/packages (the plugin for another Slurm: SLURM_INCLUDE=/opt/slurm/include)
	@rm -rf $(PACKAGES)
	@for part in $(INSTALLS); do \
		$(STEP) packages/$$part $(MAKE) -s --no-print-directory $$part DESTDIR=$(PACKAGES)/root/$${part#install-} \
			prefix=/usr sysconfdir=/etc out=$(abspath $(PACKAGES))/plugin SLURM_CPPFLAGS=-I$(SLURM_INCLUDE) || exit; \
	done
	@NFPM=$(NFPM) SLURM_INCLUDE=$(SLURM_INCLUDE) $(STEP) packages/pack .ci/packages $(PACKAGES)/root '$(VERSION)' $(PACKAGES)

.PHONY: clean
clean: ## remove build/
	rm -rf build
	@$(MAKE) -s --no-print-directory -C $(BPF_SOURCE) clean
