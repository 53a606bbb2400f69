// Package kubevirt runs KubeVirt's own functional suite, unchanged, against nodevirt in a cluster:
// `make test-kubevirt`. testdata/outcomes.tsv holds how each spec ends, and the reason if it does not
// pass. A spec that gets worse fails the run; so does one that gets better, until the file says so.
//
// The package owns what the suite expects of a cluster (CRDs, guests under the names of KubeVirt's
// images), the run, and the comparison. The suite is built from the module in test/tools/kubevirt.
package kubevirt
