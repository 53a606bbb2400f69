// Package apiserver runs a real kube-apiserver and etcd for a test, on loopback
// and without nodes: what is left of Kubernetes when nobody schedules or runs
// pods. It owns their life; what a test asks of them is the test's. The programs
// are those that test/tools/build etcd kubernetes puts into bin/.
package apiserver
