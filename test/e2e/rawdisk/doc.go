// Package rawdisk tests disks that are expanded, on a node whose file system has reflinks: what
// happens to them between the tries of a create, and when their pods, their images or the shim go.
package rawdisk
