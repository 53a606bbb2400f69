// Command nodevirt-qemu limits its own process to the files of a VM, and then executes QEMU, with RAM
// that other VMs share and with taps of the pod if the shim has them. libvirt starts it in QEMU's place, by a link that the shim makes. It is a separate small program, since each start of a
// VM waits for it.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/shim/domain/landlock"
	"github.com/nodevirt/nodevirt/shim/domain/ramfd"
	"github.com/nodevirt/nodevirt/shim/domain/tapfd"
)

var errUsage = errors.New("usage: libvirtd runs nodevirt-qemu by the link that nodevirt-shim makes")

func main() {
	fmt.Fprintln(os.Stderr, "nodevirt-qemu:", run(os.Args, os.Environ()))
	os.Exit(1)
}

// run returns only if it failed. The first of args is the path of the link.
func run(args, env []string) error {
	if !filepath.IsAbs(args[0]) {
		return errUsage
	}
	args, err := ramfd.Take(args, env)
	if err != nil {
		return err
	}
	if err := tapfd.Take(args, env); err != nil {
		return err
	}
	return landlock.Enter(args, env)
}
