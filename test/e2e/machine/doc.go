// Package machine tests nodevirt on a machine as users have it: Debian 12 with systemd, containerd and a
// kubelet, to which the packages and nodevirt node install are applied, and from which they are removed.
// The machine joins a cluster of package cluster as a node.
//
// `make test-machine` runs it on a machine of namespaces, which has the kernel of the real one. With VM=1
// the machine is a VM of nodevirt's, with a separate kernel, cgroup v2 and AppArmor; its guests are then
// emulated by an emulated QEMU, which takes long. Some of the steps alone, which need those that set the
// machine up, are those of FLAGS='-run=TestMachine/^(boot|join.*|install_the.*|run_a_VM|reboot)$'.
package machine
