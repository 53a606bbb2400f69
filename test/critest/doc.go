// Package critest runs critest, cri-tools' suite for CRI runtimes, against containerd and against the
// shim, and compares: `make test-critest`. Each spec must end in the same way with the shim in
// between, and with the handler of VMs, whose sandboxes and ordinary containers are as all others.
//
// It owns the images that critest wants to pull, the runs and their comparison. What the specs ask
// for is critest's own; VM containers, which it knows nothing of, are package criwalk's. What
// containerd does by itself is kept in testdata/direct.golden, and found out again when a pinned
// version has changed or when the shim seems to differ. The tests are behind the build tag "critest",
// for they take minutes.
package critest
