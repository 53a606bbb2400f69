// Command nodevirt-view becomes the process that shows a disk as a raw file. The shim starts it, and
// it ends as qemu-storage-daemon: what comes before that, which has to happen in the process itself,
// is all that it holds, so that it starts in a tenth of the time that the shim does.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack/rawview"
)

var errUsage = errors.New("usage: nodevirt-view FOLDER, of a view that nodevirt-shim has prepared; nodevirt-shim itself runs it")

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
