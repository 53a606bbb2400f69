// Command devnode runs a development node; see `devnode help`.
package main

import (
	"os"

	"github.com/nodevirt/nodevirt/test/commands"
)

const usage = `devnode runs a development node of nodevirt in separate namespaces.

  devnode up            start the node, or what is missing of it
  devnode run           start the node and boot a guest in it, step by step
  devnode down          stop the node; with -purge, remove its state folder too
  devnode shell         open a shell in the node
  devnode exec CMD...   run a command in the node
  devnode status        show the node's daemons and pods
  devnode logs NAME     show the end of a daemon's log

The state folder is $NODEVIRT_DEV_DIR, or /var/lib/nodevirt-dev.
`

// table is what the first argument names. The node itself uses init, registry and shadow.
var table = map[string]commands.Command{
	"up":       up,
	"run":      run,
	"down":     down,
	"shell":    shell,
	"exec":     enter,
	"status":   status,
	"logs":     logs,
	"init":     first,
	"registry": images,
	"shadow":   shadow,
}

func main() { os.Exit(commands.Main("devnode", usage, table)) }
