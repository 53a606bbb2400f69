package cluster

import (
	"context"
	"fmt"

	"github.com/nodevirt/nodevirt/test/node"
)

// Policy is the part of a node's network that enforces NetworkPolicies.
const Policy = "network-policy"

// policyTable is its table.
const policyTable = "network-policies"

// policyNode is that part. The bridge of pods passes frames to the node's netfilter, which is the kernel's
// default in a new network namespace.
func (o Options) policyNode(i int) node.Component {
	return node.Component{
		Name: Policy,
		Args: []string{
			o.bin("network-policy"), "-node=" + nodeName(i), "-table=" + policyTable,
			"-kubeconfig=" + o.path("pki", "policy.kubeconfig"),
		},
		Ready: func(ctx context.Context, n *node.Node) error {
			if out, err := n.Command(ctx, "nft", "list", "table", "inet", policyTable).CombinedOutput(); err != nil {
				return fmt.Errorf("find the table of policies: %w: %s", err, out)
			}
			return nil
		},
	}
}
