// Command nodevirt-view confines its own process and then executes a program that works for a stranger:
// qemu-storage-daemon, which shows a disk as a raw file, qemu-img, which converts one, or virtiofsd,
// which shows a guest a folder. The shim starts it. It is a separate small program, so that it starts in a tenth of the time that
// the shim takes.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack/confine"
	"github.com/nodevirt/nodevirt/imageunpack/rawview"
	"github.com/nodevirt/nodevirt/shim/virtiofs"
)

var errUsage = errors.New("usage: nodevirt-view [convert] FOLDER, or nodevirt-view share FOLDER PROGRAM; nodevirt-shim runs it")

func main() {
	fmt.Fprintln(os.Stderr, "nodevirt-view:", run(os.Args[1:]))
	os.Exit(1)
}

// run returns only if it failed.
func run(args []string) error {
	if len(args) > 0 && args[0] == "share" {
		return share(args[1:])
	}
	enter := rawview.Enter
	if len(args) > 0 && args[0] == "convert" {
		enter, args = confine.Enter, args[1:]
	}
	if len(args) != 1 || args[0] == "" || args[0][0] == '-' {
		return errUsage
	}
	return enter(args[0])
}

func share(args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	return virtiofs.Enter(args[0], args[1])
}
