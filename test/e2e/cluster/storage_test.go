//go:build cluster && !slow

package cluster

// storage is of the slow tests.
const storage = false
