// Package share lets the objects of caches have equal parts in common: a VM's template and its instance's spec have
// the same disks, and so have most VMs of a cluster.
//
// It owns which parts are shared, and bounds what it remembers of them. It leaves to package controller which
// objects are cached. An object whose parts are shared must not be changed, as any object of a cache.
package share
