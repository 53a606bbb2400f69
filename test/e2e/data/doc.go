// Package data runs random sequences of what users do to VMs' disks in a cluster: snapshots, restores by each
// policy, clones, changes of templates, hot-plugged volumes, and removals. A model knows which mark each disk must
// have. After each step each mark that a user may expect is there, on the disk itself and in the guest.
package data
