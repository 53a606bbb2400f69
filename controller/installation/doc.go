// Package installation defines the kind KubeVirt: the object in which clients of KubeVirt's look for its version,
// and in which an administrator configures the cluster. The package owns which fields the object may have, that there is
// one object, and its status. It leaves what a field means to package config and to its readers.
package installation
