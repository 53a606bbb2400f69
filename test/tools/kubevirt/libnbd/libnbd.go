// Package libnbd replaces a module that KubeVirt's requirements name and its tests never import.
// Go's module proxy does not serve it.
package libnbd
