// Command nodevirt-view confines its own process and then executes a program that works for a stranger:
// qemu-storage-daemon, which shows a disk as a raw file, qemu-img, which converts one, virtiofsd, which
// shows a guest a folder, or this program itself, which decompresses a checkpoint's disk. The shim starts it. It is a separate
// small program, so that it starts in a tenth of the time that the shim takes.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack/confine"
	"github.com/nodevirt/nodevirt/imageunpack/rawview"
	"github.com/nodevirt/nodevirt/shim/checkpoint/unpack"
	"github.com/nodevirt/nodevirt/shim/virtiofs"
)

var errUsage = errors.New("usage: nodevirt-view [convert] FOLDER, nodevirt-view share FOLDER PROGRAM, or nodevirt-view unpack BYTES EXTRA; nodevirt-shim runs it")

func main() {
	if len(os.Args) == 4 && os.Args[1] == unpack.Command {
		os.Exit(unpack.Main(os.Args[2], os.Args[3], os.Stderr))
	}
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
