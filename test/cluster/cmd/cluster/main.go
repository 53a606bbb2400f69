// Command cluster runs a Kubernetes cluster on one machine; see `cluster help`.
package main

import (
	"os"

	"github.com/nodevirt/nodevirt/test/commands"
)

const usage = `cluster runs a Kubernetes cluster with nodevirt in separate namespaces.

  cluster up            start the cluster, or what is missing of it; -nodes 1
  cluster run           start the cluster and a virtual machine in it, step by step; -nodes 1
  cluster down          stop it, and remove all that it kept
  cluster shell         open a shell that is set to it and in its network
  cluster exec CMD...   run a command as in that shell
  cluster logs NAME     show the end of a daemon's log

The state folder is $NODEVIRT_CLUSTER_DIR, or /var/lib/nodevirt-cluster.
`

var table = map[string]commands.Command{
	"up":    up,
	"run":   run,
	"down":  down,
	"shell": shell,
	"exec":  enter,
	"logs":  logs,
}

func main() { os.Exit(commands.Main("cluster", usage, table)) }
