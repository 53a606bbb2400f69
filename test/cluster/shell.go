package cluster

import (
	"fmt"
	"os"
	"strings"

	"github.com/nodevirt/nodevirt/test/node"
)

// Exec replaces this process by a program that has its terminal and working directory, runs in the control
// plane's network, and finds kubectl set to the cluster.
func (c *Cluster) Exec(name string, args ...string) error {
	here, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("enter the cluster: %w", err)
	}
	line := append([]string{
		"--chdir=" + here, "KUBECONFIG=" + c.o.path("pki", "admin.kubeconfig"), "KUBECACHEDIR=" + c.o.path("kubectl"), name,
	}, args...)
	return c.control.Exec("env", line...)
}

// LogTail is the end of a daemon's log, by its component's name, in each node that has one; see node's.
func (c *Cluster) LogTail(component string, lines int) string {
	var all []string
	for _, n := range append([]*node.Node{c.control}, c.nodes...) {
		if n != nil && n.Has(component) {
			all = append(all, n.LogTail(component, lines))
		}
	}
	if len(all) == 0 {
		return "no node has a log of " + component
	}
	return strings.Join(all, "\n")
}
