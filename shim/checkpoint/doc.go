// Package checkpoint reads and writes checkpoints of VMs: a guest's memory, what the guest
// wrote to its disks, and what a node must provide to resume it.
//
// It owns the format. A checkpoint is a set of files: [ManifestName] describes the others,
// each of which is compressed with zstd. On disk it is a tar archive with these files. An
// image with the same files at its root is the same checkpoint, so that
// "FROM the VM's image, ADD the archive" builds an image to resume from.
//
// A checkpoint is a stranger's input. All sizes and counts are bounded, the names of files
// are fixed by the format, and the checksums are compared before a guest uses a file. The
// package leaves to others what the manifest's content means to a domain: package compat
// checks that.
package checkpoint
