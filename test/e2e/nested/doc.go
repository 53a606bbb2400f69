// Package nested tests the example of a Kubernetes cluster whose nodes are VMs, as a user runs it: its script,
// its manifests, and the commands of its page. The nodes' image has real programs of Kubernetes, which kubeadm
// starts from images in the outer cluster's registry.
//
// `make test-nested` runs it. Without KVM it takes long, and needs the machine for itself.
package nested
