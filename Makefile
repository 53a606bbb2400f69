# nodevirt. `make help` lists the targets; the README says what nodevirt is for.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help build docs-site test-docs-site controller controller-arm64 test-arm image installer image-installer node-programs node-programs-arm64 man packages-deb packages-deb-arm64 release test-packages test-machine test-nested test-next-debian next-debian-e2e next-debian-critest next-debian-faults tools kubernetes storage packages run down shell status cluster cluster-down cluster-shell \
	unit test test-critest test-cluster test-migrations test-data test-attack test-cdi test-kubevirt test-ui test-conformance test-faults test-fuzz-cri test-many test-soak test-networks test-ceph test-upgrade fuzz bench bench-ceph bench-cluster bench-scale generate lint clean

BIN     := $(CURDIR)/bin
# This tag removes gRPC's debug pages. Their template engine makes the linker keep every method of every
# type: a third of the program, and of its memory. Tests have the same tags, so that they share the
# programs' build cache.
TAGS    := grpcnotrace
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# How many packages, and parallel tests of a package, run at once. Most tests wait for guests and daemons, so
# fewer would leave two processors idle.
PARALLEL ?= 4
# The timeout of one package's tests, with emulated guests.
TIMEOUT ?= 50m
# The slowest packages start first: started last, they would run on alone.
LONGEST = ./test/e2e/... ./test/guest
# The packages to test, and further flags: make test PKG=./test/node/... FLAGS='-v -run TestStart'
PKG   ?= $(LONGEST) ./...
FLAGS ?=
# How many tests may fail and be run again. One that passes then is named in the last lines: it is unsteady.
AGAIN ?=
# Without the folder's name in the programs, all clones and work trees share the build cache, as do packages.
GO     := env GOFLAGS='$(strip $(shell go env GOFLAGS 2>/dev/null) -trimpath)' go
GOTEST = $(GO:%go=%$(BIN)/gotest) $(AGAIN:%=-again=%)
# Without debugging data a test program is linked in half the time, and there are a hundred.
LEAN = '-ldflags=-s -w'
# How long make fuzz runs each target.
TIME  ?= 30s
# The number of nodes of make cluster, and of VMs of make bench-scale.
NODES ?= 2
VMS   ?= 10000
# Any value makes make test and make test-cluster also run the tests that are too slow for .ci/run.
SLOW ?=
TEST_TAGS    = $(TAGS)$(SLOW:%=,slow)
CLUSTER_TAGS = $(TEST_TAGS),cluster
# The number of rounds of make test-faults, and the seed of the first; each next round adds 1.
ROUNDS ?= 20
SEED   ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
# The number of calls of make test-fuzz-cri, and of ordinary containers of make test-many.
CALLS  ?= 10000
MANY   ?= 1000
# The number of moves of one guest, and of migrations with a fault, of make test-migrations.
MOVES      ?= 50
MIGRATIONS ?= 30
# The duration of make test-soak.
MINUTES ?= 10

# The version that make test-upgrade starts from. A clone may have no tags.
FROM ?= $(shell cut -d ' ' -f 1 deploy/release/last)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# With CGO_ENABLED=1 a missing gcc is an error; by default, Go would build without libvirt.
build: ## Build nodevirt, and the programs of the tests, the development node and cluster, into bin/
	@mkdir -p $(BIN)
	CGO_ENABLED=1 $(GO) build -tags $(TAGS) -ldflags '-X main.version=$(VERSION)' -o $(BIN)/ ./cmd/... ./test/cmd/... ./test/node/cmd/... ./test/cluster/cmd/...

# Statically linked and reproducible.
controller:
	@mkdir -p $(BIN)/image
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 $(GO) build -tags $(TAGS) -buildvcs=false \
		-ldflags '-s -w -buildid= -X main.version=$(VERSION)' -o $(BIN)/image/ ./cmd/nodevirt-controller

controller-arm64:
	@mkdir -p $(BIN)/image/arm64
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) build -tags $(TAGS) -buildvcs=false \
		-ldflags '-s -w -buildid= -X main.version=$(VERSION)' -o $(BIN)/image/arm64/ ./cmd/nodevirt-controller

test-arm: controller controller-arm64 packages-deb-arm64 ## Run the programs for arm64 by emulation
	$(GO) run ./deploy/cmd/image -program $(BIN)/image/nodevirt-controller -arm64 $(BIN)/image/arm64/nodevirt-controller -o $(BIN)/image/index.tar
	qemu-aarch64 $(BIN)/image/arm64/nodevirt-controller -help
	qemu-aarch64 -L $(SYSROOT) $(PACKAGES)/arm64/nodevirt --version
	qemu-aarch64 -L $(SYSROOT) $(PACKAGES)/arm64/nodevirt-shim -version
	qemu-aarch64 -L $(SYSROOT) $(PACKAGES)/arm64/nodevirt-view 2>&1 | grep usage

image: controller ## Build the controller's image, without docker; FLAGS='-name HOST/NAME:TAG -push'
	$(GO) run ./deploy/cmd/image -program $(BIN)/image/nodevirt-controller -version '$(VERSION)' \
		-o $(BIN)/image/nodevirt-controller.tar $(FLAGS)

man: build ## Write the nodevirt command's man pages into bin/man/
	@rm -rf $(BIN)/man
	$(BIN)/nodevirt man $(BIN)/man

# Reproducible, like the controller. They link libvirt, so they run where its library and glibc are not older.
PACKAGES = $(BIN)/packages
node-programs: packages
	@rm -rf $(PACKAGES)/programs && mkdir -p $(PACKAGES)/programs
	CGO_ENABLED=1 $(GO) build -tags $(TAGS) -buildvcs=false -ldflags '-s -w -buildid= -X main.version=$(VERSION)' \
		-o $(PACKAGES)/programs/ ./cmd/nodevirt ./cmd/nodevirt-shim ./cmd/nodevirt-qemu ./cmd/nodevirt-view

# The libraries of libvirt for arm64 are unpacked into a folder: the host's architectures stay as they are.
SYSROOT = $(BIN)/sysroot/arm64
node-programs-arm64: packages
	@test/setup/packages arm64
	@deploy/packages/sysroot arm64 $(SYSROOT)
	@rm -rf $(PACKAGES)/arm64 && mkdir -p $(PACKAGES)/arm64
	CGO_ENABLED=1 GOOS=linux GOARCH=arm64 CC='aarch64-linux-gnu-gcc --sysroot=$(SYSROOT)' \
		PKG_CONFIG_SYSROOT_DIR=$(SYSROOT) PKG_CONFIG_LIBDIR=$(SYSROOT)/usr/lib/aarch64-linux-gnu/pkgconfig \
		$(GO) build -tags $(TAGS) -buildvcs=false -ldflags '-s -w -buildid= -X main.version=$(VERSION)' \
		-o $(PACKAGES)/arm64/ ./cmd/nodevirt ./cmd/nodevirt-shim ./cmd/nodevirt-qemu ./cmd/nodevirt-view

installer: node-programs
	@mkdir -p $(BIN)/image
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 $(GO) build -tags $(TAGS) -buildvcs=false \
		-ldflags '-s -w -buildid= -X main.version=$(VERSION)' -o $(BIN)/image/ ./cmd/nodevirt-installer

image-installer: installer ## Build the node installer's image, without docker; FLAGS='-name HOST/NAME:TAG -push'
	$(GO) run ./deploy/cmd/image -program $(BIN)/image/nodevirt-installer -programs $(PACKAGES)/programs \
		-version '$(VERSION)' -name registry.example.com/nodevirt/nodevirt-installer:latest \
		-o $(BIN)/image/nodevirt-installer.tar $(FLAGS)

packages-deb: node-programs ## Write the .deb and .rpm packages of this commit into bin/packages/
	@test/tools/build nfpm
	VERSION='$(VERSION)' deploy/packages/build $(PACKAGES) $(PACKAGES)/programs

packages-deb-arm64: node-programs-arm64 node-programs
	@test/tools/build nfpm
	ARCH=arm64 VERSION='$(VERSION)' deploy/packages/build $(PACKAGES) $(PACKAGES)/arm64 $(PACKAGES)/programs

.PHONY: bundle bundle-arm bundle-update test-bundle
BUNDLE = $(BIN)/bundle
bundle: node-programs ## Build the image with all software of a node, and its bill of materials; FLAGS='-name HOST/NAME:TAG -push'
	@mkdir -p $(BUNDLE)
	$(GO) run ./deploy/cmd/bundle -programs $(PACKAGES)/programs -version '$(VERSION)' -o $(BUNDLE)/nodevirt-bundle-amd64.tar $(FLAGS)

bundle-arm: node-programs-arm64 ## Build that image for nodes of arm64
	@mkdir -p $(BUNDLE)
	$(GO) run ./deploy/cmd/bundle -architecture arm64 -programs $(PACKAGES)/arm64 -version '$(VERSION)' \
		-o $(BUNDLE)/nodevirt-bundle-arm64.tar $(FLAGS)

bundle-update: ## Write the lock files of the bundle, with the versions that Debian has now
	$(GO) run ./deploy/cmd/bundle -update $(FLAGS)

test-bundle: node-programs ## Build the bundle twice, compare, and run its programs in an empty root
	$(GO) vet -tags $(TAGS),packages ./test/bundle
	$(GOTEST) -tags $(TAGS),packages -count 1 -timeout $(TIMEOUT) -v $(FLAGS) ./test/bundle -programs $(PACKAGES)/programs

# The names of the images of the controller and the installer in a release's manifests and chart.
IMAGE           ?= registry.example.com/nodevirt/nodevirt-controller
INSTALLER_IMAGE ?= registry.example.com/nodevirt/nodevirt-installer
release: packages-deb packages-deb-arm64 controller controller-arm64 installer ## Write all files of a release into bin/release/; VERSION=v1.2.3 IMAGE=HOST/NAME INSTALLER_IMAGE=HOST/NAME FLAGS=-push
	@test/tools/build render
	VERSION='$(VERSION)' IMAGE='$(IMAGE)' INSTALLER_IMAGE='$(INSTALLER_IMAGE)' FLAGS='$(FLAGS)' deploy/release/build $(BIN)/release $(PACKAGES)

# Hugo reads the pages, the theme and nothing of the network. Files of an earlier site are removed. Without
# --quiet, which hides its errors.
docs-site: ## Write the documentation as static pages into bin/site/
	@test/tools/build hugo
	HUGO_PARAMS_VERSION='$(VERSION)' $(BIN)/hugo --source docs/site --destination $(BIN)/site --cleanDestinationDir --noBuildLock

test-docs-site: docs-site ## Follow all links of the documentation's pages, and look for requests to other sites
	$(GO) vet -tags $(TAGS),docsite ./test/docsite
	$(GOTEST) -tags $(TAGS),docsite -count 1 $(FLAGS) ./test/docsite

# UI is a folder with the source of kubevirt-manager, which docs/ui.md describes.
test-ui: packages kubernetes storage build controller ## Drive the web UI in the folder UI in a browser, in front of a cluster; UI=FOLDER
	@test/setup/packages ui
	@test/tools/build cdi
	@test/ui/build '$(UI)'
	$(GO) vet -tags $(TAGS),ui ./test/ui
	$(GOTEST) -tags $(TAGS),ui -count 1 -timeout $(TIMEOUT) ./test/ui -ui '$(abspath $(UI))' $(FLAGS)

tools: ## Build containerd, runc, crictl and Multus at their pinned versions into bin/
	@test/tools/build

packages: ## Install the Debian packages that are missing
	@test/setup/packages

run: packages tools build ## Bring up a development node and boot a guest in it
	@$(BIN)/devnode run

down: ## Stop the development node; its state folder stays for a quick start
	@[ ! -x $(BIN)/devnode ] || $(BIN)/devnode down

shell: ## Open a shell in the development node, where crictl works
	@$(BIN)/devnode shell

status: ## Show the development node's daemons, pods and containers
	@$(BIN)/devnode status

kubernetes: tools
	@test/tools/build kubernetes etcd coredns virtctl

storage: tools
	@test/tools/build csi

cluster: packages kubernetes storage build controller ## Bring up a Kubernetes cluster of two nodes on this host, and a VM in it; NODES=1
	@$(BIN)/cluster run -nodes $(NODES)

cluster-down: ## Stop the cluster, and remove its files
	@[ ! -x $(BIN)/cluster ] || $(BIN)/cluster down

cluster-shell: ## Open a shell in the cluster's network, where kubectl works
	@$(BIN)/cluster shell

# By default, every test runs here. A test that needs root, QEMU or another part calls needs.Parts of package
# test/needs, or a helper that does, which ends the test if NODEVIRT_UNIT is set. make test runs all tests.
# Without -count 1: these tests run no program of the checkout, so Go's cached results are valid.
unit: ## Run the tests that need neither root, QEMU, a network nor built tools; FLAGS=-cover
	@NODEVIRT_UNIT=1 $(GO) test -tags $(TAGS) $(LEAN) -parallel 16 $(FLAGS) $$(go list $(PKG) | grep -v /test/e2e)

test-networks: ## Ask guests on each kind of network of pods whom they reach, and who reaches them; FLAGS=-update
	$(GO) test -tags $(TAGS),slow -count 1 -timeout $(TIMEOUT) ./netsetup -run 'TestMatrix$$' $(FLAGS)

.PHONY: race test-race

# The tests of make unit. -vet=off: go vet ran before. The race detector needs its own build of all packages.
race: packages build ## Run the units with Go's race detector
	NODEVIRT_UNIT=1 $(GOTEST) -race -tags $(TAGS) $(LEAN) -vet=off -p 2 -parallel 16 -timeout $(TIMEOUT) $(FLAGS) \
		$$(go list $(PKG) | grep -v /test/e2e | sed 's,^[^/]*/[^/]*/[^/]*/,./,')

# A test fails if the detector has reported a race in the log of its node's shim. Afterwards the shim is the
# ordinary one again.
test-race: packages tools kubernetes build ## Run the tests on a node with a shim that has Go's race detector
	CGO_ENABLED=1 $(GO) build -race -tags $(TAGS) -ldflags '-X main.version=$(VERSION)' -o $(BIN)/ ./cmd/nodevirt-shim
	$(GOTEST) -tags $(TEST_TAGS) $(LEAN) -vet=off -count 1 -p $(PARALLEL) -parallel $(PARALLEL) -timeout $(TIMEOUT) $(FLAGS) ./test/e2e/...; \
	code=$$?; $(MAKE) --no-print-directory build && exit $$code

# -count 1: Go's cache ignores changes of the programs that a test runs. -vet=off: go vet ran before.
test: packages tools kubernetes build ## Run the units, and the tests on a node with real components; SLOW=1 for the slow ones, too
	@test/tools/build promtool render crds
	$(GO) vet -tags $(TAGS),slow ./...
	$(GOTEST) -tags $(TEST_TAGS) $(LEAN) -vet=off -count 1 -p $(PARALLEL) -parallel $(PARALLEL) -timeout $(TIMEOUT) $(FLAGS) $(PKG)

test-faults: packages tools build ## Break a node with running guests; ROUNDS=200 SEED=1
	$(GO) vet -tags $(TAGS),faults ./test/faults
	$(GOTEST) -tags $(TAGS),faults -count 1 -timeout 1h $(FLAGS) ./test/faults -rounds $(ROUNDS) -seed $(SEED)

FAULTS = $(GOTEST) -count 1 -timeout 2h -v $(FLAGS)

test-fuzz-cri: packages tools build ## Compare random CRI calls with a model; CALLS=10000 SEED=1
	$(FAULTS) -tags $(TAGS),faults -run 'TestFuzzCRI$$' ./test/faults -calls $(CALLS) -seed $(SEED)

test-many: packages tools build ## Run VMs beside ordinary containers; MANY=1000
	$(FAULTS) -tags $(TAGS),faults -run 'TestMany$$' ./test/faults -many $(MANY)

test-soak: packages tools build ## Run VMs one after the other, and look for growth; MINUTES=10
	$(GO) vet -tags $(TAGS),faults,soak ./test/faults
	$(FAULTS) -tags $(TAGS),faults,soak -run 'TestSoak$$' ./test/faults -minutes $(MINUTES)

test-packages: packages-deb ## Check the packages, and install, upgrade and purge them in a folder
	@test/setup/packages check
	$(GO) vet -tags $(TAGS),packages ./test/packages
	$(GOTEST) -tags $(TAGS),packages -count 1 -timeout $(TIMEOUT) $(FLAGS) ./test/packages

# By default the machine is one of namespaces. With VM=1 it is a VM of nodevirt's with a separate kernel, whose
# guests an emulated QEMU emulates.
test-machine: packages-deb kubernetes build ## Install, upgrade and purge the packages on a Debian with systemd, and run VMs there; VM=1
	$(GO) vet -tags $(TAGS),machine ./test/e2e/machine
	$(GOTEST) -tags $(TAGS),machine -count 1 -timeout 3h -v ./test/e2e/machine $(VM:%=-vm) $(FLAGS)

# By emulation, that takes long: run nothing beside it.
test-nested: packages kubernetes build controller ## Run the example of a Kubernetes cluster whose nodes are VMs
	@test/tools/build kubeadm
	$(GO) vet -tags $(TAGS),nested ./test/e2e/nested
	$(GOTEST) -tags $(TAGS),nested -count 1 -timeout 3h -v ./test/e2e/nested $(FLAGS)

# Programs in bin/ stay those that were built for Debian 12, as in the packages. A suite that fails keeps no other
# from running.
SUITES ?= e2e critest faults
test-next-debian: packages tools kubernetes build ## Run the node's tests, critest and the faults with Debian 13's libvirt and QEMU; SUITES='e2e critest faults', FLAGS=
	@test/tools/build promtool critest
	@failed=; for suite in $(SUITES); do $(MAKE) --no-print-directory next-debian-$$suite || failed="$$failed $$suite"; done; \
	[ -z "$$failed" ] || { echo "With Debian 13's libvirt and QEMU these suites failed:$$failed"; exit 1; }; \
	echo "With Debian 13's libvirt and QEMU these suites passed: $(SUITES)"

NEXT_DEBIAN = test/setup/debian13 $(GOTEST) -count 1 $(LEAN)
next-debian-e2e:
	$(NEXT_DEBIAN) -tags $(TAGS),slow -p $(PARALLEL) -parallel $(PARALLEL) -timeout $(TIMEOUT) $(FLAGS) ./shim/migrate ./test/e2e/...
next-debian-critest:
	$(NEXT_DEBIAN) -tags $(TAGS),critest -timeout $(TIMEOUT) $(FLAGS) ./test/critest
next-debian-faults:
	$(NEXT_DEBIAN) -tags $(TAGS),faults -timeout 1h $(FLAGS) ./test/faults -rounds $(ROUNDS) -seed $(SEED)

# Not for .ci/run: Ceph's packages take 200 MB.
test-ceph: packages kubernetes build controller ## Run VMs on RBD images of a small Ceph, whose packages it installs
	@test/setup/packages ceph
	$(GO) vet -tags $(TAGS),cluster,ceph ./test/ceph ./test/e2e ./test/e2e/migration ./test/e2e/cluster
	$(GOTEST) -tags $(TAGS),ceph -count 1 -p 1 -timeout $(TIMEOUT) ./test/ceph ./test/e2e ./test/e2e/migration -run 'TestCluster$$|TestRBD$$|TestRBDMoves$$' $(FLAGS)
	$(GOTEST) -tags $(TAGS),cluster,ceph -count 1 -timeout $(TIMEOUT) ./test/e2e/cluster -run 'TestTheExampleOfRBD$$' $(FLAGS)

# -v prints the table.
test-critest: packages tools kubernetes build ## Run cri-tools' critest without and with the shim, and compare
	@test/tools/build critest
	$(GO) vet -tags $(TAGS),critest ./test/critest
	$(GOTEST) -tags $(TAGS),critest -count 1 -timeout $(TIMEOUT) -v $(FLAGS) ./test/critest

# -p 1: each package starts its own cluster.
test-cluster: packages kubernetes $(SLOW:%=storage) build controller ## Run the tests that need a cluster; SLOW=1 for the slow ones, too
	$(SLOW:%=test/tools/build metrics_server agent_sandbox otelcol)
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 $(GO) build -tags $(TAGS) -buildvcs=false -ldflags '-s -w -buildid=' \
		-o $(BIN)/image/ ./test/hooksidecar/cmd/...
	$(GO) vet -tags $(TAGS),cluster,slow,examples,away ./test/e2e/cluster ./test/e2e/nodes ./test/e2e/dedicated ./test/e2e/devices ./test/e2e/traces
	$(GOTEST) -tags $(CLUSTER_TAGS) -count 1 -p 1 -timeout $(TIMEOUT) ./test/e2e/cluster $(SLOW:%=./test/e2e/nodes ./test/e2e/dedicated ./test/e2e/devices ./test/e2e/traces) $(FLAGS)

# FROM is a revision of this repository, by default the released one that deploy/release/last names.
test-upgrade: packages kubernetes build controller ## Upgrade a cluster with running VMs from version FROM to this one, and back, by kubectl and Helm; FROM=v0.1.0
	@test/tools/build helm
	@test/e2e/upgrade/older '$(FROM)' $(BIN)/older
	$(GO) vet -tags $(TAGS),upgrade ./test/e2e/upgrade
	UPGRADE_FROM=$(abspath $(BIN))/older $(GOTEST) -tags $(TAGS),upgrade -count 1 -timeout $(TIMEOUT) ./test/e2e/upgrade $(FLAGS)

test-migrations: VMS = 20
test-migrations: packages kubernetes storage build controller ## Drain a node with VMs, move one again and again, and break migrations; VMS=20 MOVES=50 MIGRATIONS=30 SEED=1
	$(GO) vet -tags $(TAGS),cluster,slow ./test/e2e/nodes
	$(GOTEST) -tags $(TAGS),cluster,slow -count 1 -timeout 4h -v ./test/e2e/nodes -run 'TestDrainedNode$$|TestManyMoves$$|TestBrokenMigrations$$' \
		-vms $(VMS) -moves $(MOVES) -migrations $(MIGRATIONS) -seed $(SEED) $(FLAGS)

SEQUENCES ?= 200
test-data: packages kubernetes storage build controller ## Run random sequences of what users do to VMs' disks; SEQUENCES=200 SEED=1, FLAGS=-time=10m
	$(GO) vet -tags $(TAGS),data ./test/e2e/data
	$(GOTEST) -tags $(TAGS),data -count 1 -parallel $(PARALLEL) -timeout 4h ./test/e2e/data -sequences $(SEQUENCES) -seed $(SEED) $(FLAGS)

ATTACK = $(GOTEST) -tags $(TAGS),attack -count 1 -timeout 1h -v -run 'TestAttack$$'

test-attack: packages tools kubernetes build controller ## Exceed bounds of a node and of the controller, and measure a neighbour's starts, stops, commands and admission
	$(GO) vet -tags $(TAGS),attack ./test/e2e ./test/e2e/admission
	$(ATTACK) ./test/e2e/admission $(FLAGS)
	$(ATTACK) ./test/e2e $(FLAGS)

# Not for .ci/run: CDI takes minutes to build.
test-cdi: packages kubernetes storage build controller ## Run VMs on DataVolumes that CDI fills
	@test/tools/build cdi
	$(GO) vet -tags $(TAGS),cdi ./test/e2e/cdi
	$(GOTEST) -tags $(TAGS),cdi -count 1 -parallel $(PARALLEL) -timeout $(TIMEOUT) $(FLAGS) ./test/e2e/cdi

# Which specs run and how many at once: FOCUS and FILES, regular expressions of words and of files;
# LABELS, ginkgo's filter; PROCS. FAST=1 runs some that pass in a few minutes, NEW=1 with FILES those without an outcome.
# WAIT=1 runs those that need a StorageClass which waits for a pod.
test-kubevirt: packages kubernetes $(if $(FAST),,storage) build controller ## Run KubeVirt's functional suite; FAST=1, NEW=1, WAIT=1, LABELS=, FOCUS=, FILES=, PROCS=2, FLAGS=-update
	@test/tools/build kubevirt $(if $(FAST),,cdi sidecars prometheus)
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 $(GO) build -tags $(TAGS) -buildvcs=false -ldflags '-s -w -buildid=' \
		-o $(BIN)/image/ ./test/kubevirt/cmd/...
	$(GO) vet -tags $(TAGS),kubevirt ./test/kubevirt
	KUBEVIRT_LABELS='$(LABELS)' KUBEVIRT_FOCUS='$(FOCUS)' KUBEVIRT_FILES='$(FILES)' KUBEVIRT_PROCS='$(PROCS)' KUBEVIRT_FAST='$(FAST)' KUBEVIRT_NEW='$(NEW)' KUBEVIRT_WAIT='$(WAIT)' \
		$(GOTEST) -tags $(TAGS),kubevirt -count 1 -timeout 4h ./test/kubevirt $(FLAGS)

# SIDE=shim or SIDE=containerd runs one cluster alone; VM=1 one where the suite's pods are VMs; NODE=1 what measures nodes. FOCUS and SKIP are regular expressions of specs' words.
# CONFORMANCE_TIME=2h ends a cluster's run, whose specs that ended then count.
test-conformance: packages kubernetes build $(VM:%=controller) ## Run Kubernetes' conformance with and without the shim, and compare; FOCUS=, SKIP=, SIDE=, VM=, NODE=, PROCS=10, FLAGS=-update
	@test/tools/build e2e $(NODE:%=e2e_node)
	$(GO) vet -tags $(TAGS),conformance ./test/conformance
	CONFORMANCE_FOCUS='$(FOCUS)' CONFORMANCE_SKIP='$(SKIP)' CONFORMANCE_SIDE='$(SIDE)' CONFORMANCE_PROCS='$(PROCS)' \
		$(GOTEST) -tags $(TAGS),conformance -count 1 -timeout 12h -run '$(if $(NODE),TestNode,$(if $(VM),TestVMs,TestSuite))$$' ./test/conformance $(FLAGS)

fuzz: packages ## Run each fuzz target for a while; TIME=30s FLAGS='-run Inspect'
	$(GO) run ./test/cmd/fuzz -time $(TIME) -tags $(TAGS) $(FLAGS)

bench: packages tools build ## Measure what the shim costs; FLAGS='-help' lists the choices
	$(GO) run ./test/bench/cmd/bench -out $(BIN)/bench $(FLAGS)

bench-ceph: packages tools build ## Measure guests' disks on RBD, on a small Ceph, whose packages it installs
	@test/setup/packages ceph
	$(GO) run ./test/bench/cmd/bench -only iorbd -out $(BIN)/bench/ceph $(FLAGS)

generate: ## Regenerate the CRDs and the lists of supported fields
	@test/tools/build crds
	$(GO) run ./deploy/cmd/kinds | $(BIN)/crds deploy/crds
	$(GO) test ./docs -run TestSupported -update
	$(GO) test ./controller/admission -run TestFields -update
	$(GO) test ./controller/vm -run TestSources -update

bench-cluster: packages kubernetes build controller ## Measure VMs in a cluster, beside ordinary pods; FLAGS='-help'
	$(GO) run ./test/bench/cluster/cmd/bench-cluster -out $(BIN)/bench/cluster $(FLAGS)

bench-scale: NODES = 1000
bench-scale: kubernetes controller ## Measure the controller with many VMs on nodes that KWOK plays; NODES=1000 VMS=10000
	@test/tools/build kwok
	$(GO) run ./test/bench/control/cmd/bench-scale -nodes $(NODES) -vms $(VMS) -out $(BIN)/bench/scale $(FLAGS)

lint: packages ## Check that go.mod is tidy, the docs and the words, and run the linters
	go mod tidy -diff
	$(GO) test -count=1 ./docs
	@test/tools/build lint
	$(BIN)/golangci-lint run --allow-parallel-runners

clean: down cluster-down ## Stop the development node and remove it and bin/
	@[ ! -x $(BIN)/devnode ] || $(BIN)/devnode down -purge
	rm -rf $(BIN)
