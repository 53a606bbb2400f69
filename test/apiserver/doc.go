// Package apiserver runs a real kube-apiserver and etcd for a test, on loopback
// and without nodes: Kubernetes without a scheduler and kubelets. It owns their
// flags and files; package daemon runs the processes, and requests are the test's.
// It runs the programs that test/tools/build etcd kubernetes puts into bin/.
package apiserver
