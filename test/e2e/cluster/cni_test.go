//go:build cluster && !examples

package cluster

// cni is nil: pods have the network of the nodes alone. With the tag examples they have Multus'.
func cni() func(map[string]any, string) { return nil }
