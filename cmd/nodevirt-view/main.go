// Command nodevirt-view confines its own process and then executes
// qemu-storage-daemon, which shows a disk as a raw file. The shim starts it. It is
// a separate small program, so that it starts in a tenth of the time that the shim takes.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack/rawview"
)

var errUsage = errors.New("usage: nodevirt-view FOLDER; nodevirt-shim runs it with the folder of a view")

func main() {
	fmt.Fprintln(os.Stderr, "nodevirt-view:", run(os.Args[1:]))
	os.Exit(1)
}

// run returns only if it failed.
func run(args []string) error {
	if len(args) != 1 || args[0] == "" || args[0][0] == '-' {
		return errUsage
	}
	return rawview.Enter(args[0])
}
