// Command nodevirt-view confines its own process and then executes a program of QEMU's that reads a
// stranger's disk: qemu-storage-daemon, which shows the disk as a raw file, or qemu-img, which converts
// it. The shim starts it. It is a separate small program, so that it starts in a tenth of the time that
// the shim takes.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack/confine"
	"github.com/nodevirt/nodevirt/imageunpack/rawview"
)

var errUsage = errors.New("usage: nodevirt-view [convert] FOLDER; nodevirt-shim runs it")

func main() {
	fmt.Fprintln(os.Stderr, "nodevirt-view:", run(os.Args[1:]))
	os.Exit(1)
}

// run returns only if it failed.
func run(args []string) error {
	enter := rawview.Enter
	if len(args) > 0 && args[0] == "convert" {
		enter, args = confine.Enter, args[1:]
	}
	if len(args) != 1 || args[0] == "" || args[0][0] == '-' {
		return errUsage
	}
	return enter(args[0])
}
