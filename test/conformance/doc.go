// Package conformance runs Kubernetes' own end-to-end suite, unchanged, on two clusters: the kubelets of one
// run plain containerd, those of the other the shim. Each spec must end in the same way on both:
// `make test-conformance`. testdata/outcomes.tsv holds how each spec ends, and the reason if it does not pass.
//
// The package owns the images that specs name, the runs, and the comparison. The suite is built from the
// module in test/tools/e2e.
package conformance
