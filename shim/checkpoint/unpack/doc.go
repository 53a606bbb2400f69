// Package unpack decompresses the disks of checkpoints in separate processes.
//
// A checkpoint is a stranger's, and few bytes of it can become very many. The process that decompresses a disk is confined as
// those that convert images are, and works in the VM's cgroup, so that the pod pays for its processor time and memory. The
// package owns both ends: the shim's, which passes on the compressed bytes, and the process's. It leaves the checksums to
// package checkpoint, and the cgroup to its caller.
package unpack
