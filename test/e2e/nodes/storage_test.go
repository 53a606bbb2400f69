//go:build cluster && !slow

package nodes

// storage is of the slow tests.
const storage = false
