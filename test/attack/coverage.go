package attack

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Suite is where a bound is exceeded.
type Suite string

const (
	// Node is test/e2e, with a node whose VMs belong to two namespaces.
	Node Suite = "node"
	// Controller is test/e2e/admission, with an API server and the controller.
	Controller Suite = "controller"
	// Package is the test that the table of bounds names: nothing is shared there that a neighbour waits for, or the
	// neighbour is part of that test.
	Package Suite = "package"
)

// where returns the suite that exceeds each bound.
func where() map[string]Suite {
	return map[string]Suite{
		"an object in admission":                              Controller,
		"elements of an object's lists":                       Package,
		"reviews at a time":                                   Controller,
		"long reviews at a time":                              Controller,
		"presets of a namespace":                              Controller,
		"handshakes with the controller":                      Controller,
		"the controller's memory":                             Controller,
		"objects that a review reads of a namespace":          Package,
		"objects that a reconciler reads past its cache":      Package,
		"PVCs with the label of a VM's state":                 Package,
		"objects in the controller's memory":                  Controller,
		"labels, finalizers, owners of these objects":         Controller,
		"pods with VMs' labels":                               Package,
		"pods, PVCs and quotas in the controller's memory":    Package,
		"connections to the controller":                       Package,
		"a request to the controller and its reply":           Package,
		"consoles, displays, forwarded ports":                 Package,
		"data that a stream's user leaves unread":             Package,
		"screenshots in the controller":                       Package,
		"agents' reports in the controller":                   Package,
		"the export proxy's connections":                      Package,
		"the export proxy's requests":                         Package,
		"an export's connections":                             Package,
		"an export's downloads":                               Package,
		"QEMU's log":                                          Package,
		"the console's log":                                   Package,
		"an agent's answers, exec's output":                   Node,
		"an overlay, an `emptyDisk`":                          Package,
		"a TPM's files":                                       Package,
		"memory":                                              Package,
		"portals of a network disk":                           Package,
		"an image's disk":                                     Package,
		"the work of a conversion":                            Package,
		"a conversion's memory and processor":                 Node,
		"conversions at a time":                               Node,
		"a conversion's turn":                                 Package,
		"a checkpoint's memory and disks":                     Node,
		"a part of a checkpoint's disk":                       Package,
		"pages of a checkpoint's memory":                      Package,
		"shared RAM of checkpoints":                           Package,
		"devices' state of checkpoints":                       Package,
		"the input of `exec -i`":                              Node,
		"streams to pods of VMs":                              Node,
		"connections to the server of streams":                Node,
		"controls of a VM, such as `pause`":                   Node,
		"calls to libvirtd that users order":                  Node,
		"calls that libvirtd does not answer":                 Package,
		"screenshots at a time":                               Node,
		"agents' answers above 1 MiB":                         Node,
		"ports for guests that move with their pod's address": Package,
		"hooks":                           Package,
		"errors, events, conditions":      Package,
		"spans that wait for a collector": Package,
		"records":                         Package,
	}
}

// checkBounds fails unless the attacks of a suite exceed all bounds that are the suite's.
func checkBounds(t *testing.T, suite Suite, attacks []Attack) {
	t.Helper()
	var have, want []string
	for _, a := range attacks {
		have = append(have, a.Bounds...)
	}
	for _, what := range slices.Sorted(maps.Keys(where())) {
		if where()[what] == suite {
			want = append(want, what)
		}
	}
	slices.Sort(have)
	if diff := cmp.Diff(want, slices.Compact(have)); diff != "" {
		t.Errorf("the attacks on the %s exceed other bounds than package attack says: (-want +have)\n%s", suite, diff)
	}
}
