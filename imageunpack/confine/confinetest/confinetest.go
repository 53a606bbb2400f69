// Package confinetest makes a test program its own stage: the process between the start of a confined
// program and that program.
package confinetest

import (
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack/confine"
)

// flag marks a process that is a stage.
const flag = "-confine"

// Enter executes a confined program if the process was started by a command of [Stage]. A TestMain calls
// it first.
func Enter() {
	if len(os.Args) == 3 && os.Args[1] == flag {
		fmt.Fprintln(os.Stderr, confine.Enter(os.Args[2]))
		os.Exit(1)
	}
}

// Stage returns the command that makes this test program a stage.
func Stage() []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{self, flag}
}
