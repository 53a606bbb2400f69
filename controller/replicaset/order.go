package replicaset

import (
	"cmp"
	"slices"

	kubevirt "kubevirt.io/api/core/v1"
)

// order sorts replicas so that those which are missed least come first. KubeVirt
// promises no order; this is that of Kubernetes' ReplicaSets: without a node, not
// running, not ready, on the node with most of them, the youngest.
func order(replicas []*instance) {
	onNode := map[string]int{}
	for _, vmi := range replicas {
		onNode[vmi.Status.NodeName]++
	}
	slices.SortFunc(replicas, func(a, b *instance) int {
		return cmp.Or(
			cmp.Compare(worth(a), worth(b)),
			cmp.Compare(onNode[b.Status.NodeName], onNode[a.Status.NodeName]),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// worth is the higher the further an instance has come.
func worth(vmi *instance) int {
	switch {
	case vmi.Status.NodeName == "":
		return 0
	case vmi.Status.Phase != kubevirt.Running:
		return 1
	case !isReady(vmi):
		return 2
	}
	return 3
}
