// Package images builds the OCI images that tests and the development node run, and pushes them to
// a registry: registry disks, hostile ones too, a pause image for sandboxes and a busybox for
// containers.
//
// It owns the images' content and layout. Guests' disks come from package guest, Debian packages
// from its package deb; the registry and the way to it are the caller's. Equal inputs give equal
// digests. Large files are streamed from disk each time that they are read.
package images
